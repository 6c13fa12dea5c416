/* The stand-in driver: devices, contexts, modules, and calls that fail. See standin/driver.h. */
#include "standin/driver.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "standin/impl.h"

wd_standin_state wd_the_standin;
static wd_standin_state *const s = &wd_the_standin;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t others = PTHREAD_COND_INITIALIZER;
static wd_cuda_api table;
static _Thread_local wd_cu_context current;

enum { DRIVER_VERSION = 13000, OTHER_PROCESSES_NS = 500000 };

/* ---- every call ---- */

wd_cu_result wd_standin_enter(bool needs_context)
{
    wd_cu_result result = WD_CU_SUCCESS;
    pthread_mutex_lock(&lock);
    s->counts.calls++;
    if (s->fail_call && !--s->fail_call)
        result = s->call_result;
    else if (needs_context && (!current || !current->retained))
        result = WD_CU_INVALID_CONTEXT;
    else if (needs_context)
        result = current->fault;
    if (result) pthread_mutex_unlock(&lock);
    return result;
}

void wd_standin_lock(void)
{
    pthread_mutex_lock(&lock);
}

void wd_standin_wait_for_others(void)
{
    wd_standin_reach(0);
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += OTHER_PROCESSES_NS;
    if (at.tv_nsec >= 1000000000) at = (struct timespec){at.tv_sec + 1, at.tv_nsec - 1000000000};
    pthread_cond_timedwait(&others, &lock, &at);
}

void wd_standin_tell_others(void)
{
    pthread_cond_broadcast(&others);
}

wd_cu_result wd_standin_leave(wd_cu_result result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

wd_cu_context wd_standin_current(void)
{
    return current;
}

uint64_t wd_standin_random(uint64_t below)
{
    s->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = s->random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

#define ENTER(needs_context)                                                                       \
    do {                                                                                           \
        const wd_cu_result entered_ = wd_standin_enter(needs_context);                             \
        if (entered_) return entered_;                                                             \
    } while (0)

/* ---- devices ---- */

static bool is_device(wd_cu_device device)
{
    return device >= 0 && device < s->options.devices;
}

wd_cu_result wd_standin_init(unsigned flags)
{
    ENTER(false);
    return wd_standin_leave(flags                ? WD_CU_INVALID_VALUE
                            : s->options.devices ? WD_CU_SUCCESS
                                                 : WD_CU_NO_DEVICE);
}

wd_cu_result wd_standin_driver_get_version(int *version)
{
    ENTER(false);
    *version = s->options.driver_version ? s->options.driver_version : DRIVER_VERSION;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_get_error_name(wd_cu_result result, const char **name)
{
    switch (result) {
#define X(our_name, driver_name, value)                                                            \
    case value:                                                                                    \
        *name = #driver_name;                                                                      \
        return WD_CU_SUCCESS;
        WD_CU_RESULT_MAP(X)
#undef X
    default:
        return WD_CU_INVALID_VALUE;
    }
}

wd_cu_result wd_standin_get_error_string(wd_cu_result result, const char **text)
{
    (void)result;
    *text = "said by the stand-in driver";
    return WD_CU_SUCCESS;
}

wd_cu_result wd_standin_device_get_count(int *count)
{
    ENTER(false);
    *count = s->options.devices;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_device_get(wd_cu_device *device, int ordinal)
{
    ENTER(false);
    *device = ordinal;
    return wd_standin_leave(is_device(ordinal) ? WD_CU_SUCCESS : WD_CU_INVALID_DEVICE);
}

wd_cu_result wd_standin_device_get_name(char *name, int name_bytes, wd_cu_device device)
{
    ENTER(false);
    if (!is_device(device)) return wd_standin_leave(WD_CU_INVALID_DEVICE);
    const bool other = s->options.last_name && device == s->options.devices - 1;
    snprintf(name, (size_t)name_bytes, "%s", other ? s->options.last_name : s->options.name);
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_device_get_pci_bus_id(char *text, int text_bytes, wd_cu_device device)
{
    ENTER(false);
    if (!is_device(device)) return wd_standin_leave(WD_CU_INVALID_DEVICE);
    snprintf(text, (size_t)text_bytes, "0000:%02X:00.0", device + 1);
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_device_get_attribute(int *value, unsigned attribute, wd_cu_device device)
{
    ENTER(false);
    if (!is_device(device)) return wd_standin_leave(WD_CU_INVALID_DEVICE);
    const bool other = s->options.last_capability && device == s->options.devices - 1;
    const int capability = other ? s->options.last_capability : s->options.capability;
    switch (attribute) {
    case WD_CU_DEVICE_MULTIPROCESSORS:
        *value = 132;
        break;
    case WD_CU_DEVICE_CAPABILITY_MAJOR:
        *value = capability / 10;
        break;
    case WD_CU_DEVICE_CAPABILITY_MINOR:
        *value = capability % 10;
        break;
    default:
        return wd_standin_leave(WD_CU_INVALID_VALUE);
    }
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_device_total_mem(size_t *bytes, wd_cu_device device)
{
    ENTER(false);
    *bytes = s->options.bytes;
    return wd_standin_leave(is_device(device) ? WD_CU_SUCCESS : WD_CU_INVALID_DEVICE);
}

wd_cu_result wd_standin_device_can_access_peer(int *can, wd_cu_device device, wd_cu_device peer)
{
    ENTER(false);
    *can = device != peer && !s->options.no_peers;
    return wd_standin_leave(is_device(device) && is_device(peer) ? WD_CU_SUCCESS
                                                                 : WD_CU_INVALID_DEVICE);
}

/* ---- contexts ---- */

wd_cu_result wd_standin_device_primary_ctx_retain(wd_cu_context *context, wd_cu_device device)
{
    ENTER(false);
    if (!is_device(device)) return wd_standin_leave(WD_CU_INVALID_DEVICE);
    *context = &s->context[device];
    (*context)->device = device;
    (*context)->retained++;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_ctx_set_current(wd_cu_context context)
{
    ENTER(false);
    if (context && !context->retained) return wd_standin_leave(WD_CU_INVALID_CONTEXT);
    current = context;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_ctx_get_current(wd_cu_context *context)
{
    ENTER(false);
    *context = current;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_ctx_synchronize(void)
{
    ENTER(true);
    s->counts.host_waits++;
    wd_standin_drain(current->device);
    wd_standin_finish_copies();
    wd_standin_reach(0);
    return wd_standin_leave(current->fault);
}

wd_cu_result wd_standin_ctx_enable_peer_access(wd_cu_context peer, unsigned flags)
{
    ENTER(true);
    if (flags || !peer || peer == current || s->options.no_peers)
        return wd_standin_leave(WD_CU_INVALID_VALUE);
    bool *reaches = &s->peer[current->device][peer->device];
    const wd_cu_result result = *reaches ? WD_CU_PEER_ACCESS_ALREADY_ENABLED : WD_CU_SUCCESS;
    *reaches = true;
    return wd_standin_leave(result);
}

/* ---- modules: an image is not looked at; a function is the kernel of its name ---- */

wd_cu_result wd_standin_module_load_data(wd_cu_module *module, const void *image)
{
    ENTER(true);
    if (!image) return wd_standin_leave(WD_CU_INVALID_VALUE);
    if (s->options.load_result) return wd_standin_leave(s->options.load_result);
    *module = (wd_cu_module)s;
    s->modules++;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_module_unload(wd_cu_module module)
{
    ENTER(false);
    if (module != (wd_cu_module)s) return wd_standin_leave(WD_CU_INVALID_HANDLE);
    s->modules--;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_module_get_function(wd_cu_function *function, wd_cu_module module,
                                            const char *name)
{
    ENTER(true);
    if (module != (wd_cu_module)s) return wd_standin_leave(WD_CU_INVALID_HANDLE);
    const wd_standin_function *kernel = s->options.find ? s->options.find(name) : NULL;
    if (!kernel) return wd_standin_leave(WD_CU_NOT_FOUND);
    *function = (wd_cu_function)(uintptr_t)kernel;
    return wd_standin_leave(WD_CU_SUCCESS);
}

/* ---- tests ---- */

void wd_standin_install(const wd_standin_options *options)
{
    assert(options->devices <= WD_STANDIN_DEVICES_MAX);
    memset(s, 0, sizeof *s);
    s->options = *options;
    s->random = options->seed;
    table = options->libraries ? *options->libraries : (wd_cuda_api){0};
    table.has[WD_CUDA_DRIVER] = true;
#define X(result, field, symbol, parameters) table.driver.field = wd_standin_##field;
    WD_CUDA_DRIVER_MAP(X)
#undef X
    wd__cuda_api_use(&table);
}

int wd_standin_remove(void)
{
    pthread_mutex_lock(&lock);
    int left = s->modules;
    left += wd_standin_free_streams() + wd_standin_free_pools();
    current = NULL;
    wd__cuda_api_use(NULL);
    pthread_mutex_unlock(&lock);
    return left;
}

wd_standin_counts wd_standin_count(void)
{
    pthread_mutex_lock(&lock);
    const wd_standin_counts counts = s->counts;
    pthread_mutex_unlock(&lock);
    return counts;
}

void wd_standin_seed(uint64_t seed)
{
    pthread_mutex_lock(&lock);
    s->random = seed;
    pthread_mutex_unlock(&lock);
}

void wd_standin_fail_call(int64_t n, wd_cu_result result)
{
    pthread_mutex_lock(&lock);
    s->fail_call = n;
    s->call_result = result;
    pthread_mutex_unlock(&lock);
}

void wd_standin_fail_work(int64_t n, wd_cu_result result)
{
    pthread_mutex_lock(&lock);
    s->fail_work = n;
    s->work_result = result;
    pthread_mutex_unlock(&lock);
}
