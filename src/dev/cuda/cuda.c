/* Cuda devices: opening, closing, what they are like. See dev/cuda.h and dev/cuda/impl.h. */
#include "dev/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "dev/cuda/impl.h"

enum { CAPABILITY_MIN = 80 };
enum { LITTLE = 1 << 30 }; /* bytes; with more than this free, libraries have room to begin with */

/* ---- the devices that are open ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static wd_cuda_device *open_first;

wd_cuda_device *wd__cuda_owner(const void *address)
{
    pthread_mutex_lock(&open_lock);
    wd_cuda_device *device = open_first;
    while (device && !wd_device_has(&device->base, address)) device = device->next;
    pthread_mutex_unlock(&open_lock);
    return device;
}

static bool cuda_owns(wd_device *device, const void *address)
{
    (void)device;
    return wd__cuda_owner(address) != NULL;
}

static void forget(wd_cuda_device *device)
{
    pthread_mutex_lock(&open_lock);
    wd_cuda_device **at = &open_first;
    while (*at && *at != device) at = &(*at)->next;
    if (*at) *at = device->next;
    pthread_mutex_unlock(&open_lock);
}

/* Lets the device reach the memory of those that are open, and them reach its own, where the GPUs
 * can; where they cannot, the driver copies by way of host memory. */
static wd_status meet_peer(const wd_cuda_device *device, const wd_cuda_device *peer, wd_err *err)
{
    int can = 0;
    const wd_cuda_driver *driver = wd__cuda_driver_of(device);
    if (device->gpu.context == peer->gpu.context) return WD_OK;
    driver->device_can_access_peer(&can, device->gpu.number, peer->gpu.number);
    if (!can) return WD_OK;
    wd_cu_result result = driver->ctx_set_current(device->gpu.context);
    if (!result) result = driver->ctx_enable_peer_access(peer->gpu.context, 0);
    if (!result || result == WD_CU_PEER_ACCESS_ALREADY_ENABLED) return WD_OK;
    return wd__cuda_fail(err, driver, result, "%s: access to the memory of %s", device->base.name,
                         peer->base.name);
}

static wd_status meet_peers(wd_cuda_device *device, wd_err *err)
{
    wd_status status = WD_OK;
    pthread_mutex_lock(&open_lock);
    for (wd_cuda_device *p = open_first; p && status == WD_OK; p = p->next) {
        status = meet_peer(device, p, err);
        if (status == WD_OK) status = meet_peer(p, device, err);
    }
    if (status == WD_OK) {
        device->next = open_first;
        open_first = device;
    }
    pthread_mutex_unlock(&open_lock);
    return status;
}

/* ---- shares: tests of several devices on one GPU ---- */

enum { SHARES_MAX = 8 };

/* WD_GPU_SHARES=2 in the environment shows each GPU twice: behind the GPUs that the driver shows
 * come the same ones again, and each device has an equal part of its GPU's memory. A machine with
 * one GPU then runs what takes several, at no speed that means anything. */
static wd_status count_shares(int *out, wd_err *err)
{
    const char *said = getenv("WD_GPU_SHARES");
    *out = 1;
    if (!said || !*said) return WD_OK;
    *out = said[0] >= '1' && said[0] <= '0' + SHARES_MAX && !said[1] ? said[0] - '0' : 0;
    if (*out) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "WD_GPU_SHARES: expected a number from 1 to %d, found \"%.40s\"; it is for "
                   "tests: unset it",
                   SHARES_MAX, said);
}

/* The driver's number of device `number`. */
static wd_status find_gpu(wd_cuda_gpu *gpu, const wd_cuda_driver *driver, int number, wd_err *err)
{
    int shown = number + 1;
    WD_TRY(count_shares(&gpu->shares, err));
    wd_cu_result result = gpu->shares > 1 ? driver->device_get_count(&shown) : WD_CU_SUCCESS;
    if (!result) result = driver->device_get(&gpu->number, number % shown);
    if (!result) return WD_OK;
    return wd__cuda_fail(err, driver, result, "cuda:%d", number);
}

/* ---- open and close ---- */

static void cuda_close(wd_device *device)
{
    wd_cuda_device *d = wd__cuda_of(device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    forget(d);
    if (d->gpu.context) {
        driver->ctx_set_current(d->gpu.context);
        wd__cuda_dispatch_close(d);
        if (d->setup) driver->stream_destroy(d->setup);
        driver->ctx_set_current(NULL);
    }
    pthread_mutex_destroy(&d->fault_lock);
    wd_device_discard(device);
}

static const wd_device_kind cuda_kind = {
    .close = cuda_close,
    .alloc = wd__cuda_alloc,
    .free = wd__cuda_free,
    .queue_open = wd__cuda_queue_open,
    .queue_close = wd__cuda_queue_close,
    .reserve = wd_queue_grow_workspace,
    .copy = wd__cuda_queue_copy,
    .copy_and_wait = wd__cuda_queue_copy_and_wait,
    .launch = wd__cuda_queue_launch,
    .wait = wd__cuda_queue_wait,
    .event_open = wd__cuda_event_open,
    .event_close = wd__cuda_event_close,
    .event_record = wd__cuda_event_record,
    .event_wait_on = wd__cuda_event_wait_on,
    .event_wait = wd__cuda_event_wait,
    .event_is_done = wd__cuda_event_is_done,
    .workspace = wd__cuda_workspace,
    .can = wd__cuda_can,
    .prepare = wd__cuda_prepare,
    .fault = wd__cuda_fault,
    .measure_beside = wd__cuda_measure_beside,
    .reserve_beside = wd__cuda_reserve_beside,
    .host_alloc = wd__cuda_host_alloc,
    .host_free = wd__cuda_host_free,
    .host_register = wd__cuda_host_register,
    .host_unregister = wd__cuda_host_unregister,
    .owns = cuda_owns,
    .peers = &wd_cuda_peers_kind,
};

static wd_status attribute(int *out, const wd_cuda_driver *driver, unsigned which,
                           wd_cu_device number, wd_err *err)
{
    const wd_cu_result result = driver->device_get_attribute(out, which, number);
    if (!result) return WD_OK;
    return wd__cuda_fail(err, driver, result, "cuda:%d: attribute %u of the GPU", number, which);
}

/* What GPU `number` is, and its name, "cuda:1 (NVIDIA H200, 139 GiB)". */
static wd_status describe(wd_cuda_gpu *gpu, char *name, size_t name_bytes,
                          const wd_cuda_driver *driver, int number, wd_err *err)
{
    char model[64] = "";
    size_t bytes = 0;
    int major, minor;
    WD_TRY(find_gpu(gpu, driver, number, err));
    wd_cu_result result = driver->device_get_name(model, sizeof model - 1, gpu->number);
    if (!result) result = driver->device_total_mem(&bytes, gpu->number);
    if (result) return wd__cuda_fail(err, driver, result, "cuda:%d", number);
    WD_TRY(attribute(&major, driver, WD_CU_DEVICE_CAPABILITY_MAJOR, gpu->number, err));
    WD_TRY(attribute(&minor, driver, WD_CU_DEVICE_CAPABILITY_MINOR, gpu->number, err));
    WD_TRY(
        attribute(&gpu->multiprocessors, driver, WD_CU_DEVICE_MULTIPROCESSORS, gpu->number, err));
    gpu->capability = 10 * major + minor;
    snprintf(name, name_bytes, "cuda:%d (%s, %.0f GiB%s)", number, model, (double)bytes / (1 << 30),
             gpu->shares > 1 ? ", shared" : "");
    return WD_OK;
}

/* WD_UNSUPPORTED: the GPU is too old for the kernels of this program. */
static wd_status check_capability(const wd_cuda_gpu *gpu, const char *name, wd_err *err)
{
    if (gpu->capability >= CAPABILITY_MIN) return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s has compute capability %d.%d: expected 8.0 or later, such as A100 or RTX 30 "
                   "series",
                   name, gpu->capability / 10, gpu->capability % 10);
}

/* A context cannot be made: another process has the GPU, or its memory, for itself. */
static wd_status explain_context(const wd_cuda_device *d, wd_cu_result result, wd_err *err)
{
    wd_err why;
    const wd_status status =
        wd__cuda_fail(&why, wd__cuda_driver_of(d), result, "%s: its context", d->base.name);
    if (result != WD_CU_OUT_OF_MEMORY && result != WD_CU_DEVICE_UNAVAILABLE)
        return wd_fail(err, status, "%s", why.message);
    return wd_fail(err, status,
                   "%s; %s (nvidia-smi lists the processes): end these, or take another GPU or the "
                   "processor by --devices (--device)",
                   why.message,
                   status == WD_OUT_OF_MEMORY ? "other processes have nearly all of its memory"
                                              : "its compute mode lets only one process use it");
}

/* Every opening retains the primary context, and nothing releases it: libraries may keep state of a
 * context beyond their handles, which would not survive that it is destroyed. */
static wd_status open_context(wd_cuda_device *d, wd_err *err)
{
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    wd_cu_context context = NULL;
    wd_cu_result result = driver->device_primary_ctx_retain(&context, d->gpu.number);
    if (result) return explain_context(d, result, err);
    d->gpu.context = context;
    result = driver->ctx_set_current(context);
    if (!result) result = driver->stream_create(&d->setup, WD_CU_STREAM_NON_BLOCKING);
    if (result) return wd__cuda_fail(err, driver, result, "%s: a stream", d->base.name);
    return WD_OK;
}

static wd_status open_device(wd_cuda_device *d, int number, bool libraries, wd_err *err)
{
    size_t free, total;
    wd_err old;
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    WD_TRY(describe(&d->gpu, d->base.name, sizeof d->base.name, driver, number, err));
    if (check_capability(&d->gpu, d->base.name, &old) != WD_OK)
        return wd_fail(err, old.status,
                       "%s; name other GPUs (--devices cuda:1, --device cuda:1), or say --devices "
                       "cpu (--device cpu) to compute on the processor",
                       old.message);
    WD_TRY(open_context(d, err));
    const wd_cu_result result = driver->mem_get_info(&free, &total);
    if (result) return wd__cuda_fail(err, driver, result, "%s: its memory", d->base.name);
    const wd_status status = wd__cuda_dispatch_open(d, libraries, err);
    if (status == WD_OUT_OF_MEMORY && free < LITTLE)
        return wd_fail(err, status,
                       "%s: %.0f of %.0f MiB are free, too little for the libraries to begin with; "
                       "end other processes that have it (nvidia-smi lists them), or take another "
                       "GPU or the processor by --devices",
                       d->base.name, (double)free / (1 << 20), (double)total / (1 << 20));
    WD_TRY(status);
    WD_TRY(wd__cuda_pool_measure(d, free, err));
    return meet_peers(d, err);
}

enum { VISIBLE_TEXT = 160 };

/* What the environment says of the GPUs that the driver shows. */
static const char *describe_visible(char out[VISIBLE_TEXT])
{
    const char *said = getenv("CUDA_VISIBLE_DEVICES");
    if (said)
        snprintf(out, VISIBLE_TEXT,
                 "CUDA_VISIBLE_DEVICES is \"%.80s\" and hides the GPUs that it does not name",
                 said);
    else
        snprintf(out, VISIBLE_TEXT, "CUDA_VISIBLE_DEVICES is not set");
    return out;
}

/* The driver, initialised, and how many GPUs it has, each as often as it has shares. */
static wd_status begin(const wd_cuda_api **api, int *count, wd_err *err)
{
    int shares;
    *count = 0;
    WD_TRY(count_shares(&shares, err));
    WD_TRY(wd__cuda_api_need(api, WD_CUDA_DRIVER, err));
    wd_cu_result result = (*api)->driver.init(0);
    if (result == WD_CU_NO_DEVICE) return WD_OK;
    if (!result) result = (*api)->driver.device_get_count(count);
    *count *= shares;
    if (!result) return WD_OK;
    wd_err why;
    char hidden[VISIBLE_TEXT];
    wd__cuda_fail(&why, &(*api)->driver, result, "the NVIDIA driver cannot be used");
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s (%s); find out whether nvidia-smi shows the GPUs%s, or say --devices cpu "
                   "(--device cpu) to compute on the processor",
                   why.message, describe_visible(hidden),
                   result == WD_CU_SYSTEM_NOT_READY
                       ? ", and start nvidia-fabricmanager if they are joined by NVSwitch"
                       : " (after an update of the driver, restart the machine)");
}

wd_status wd_cuda_count(int *out, wd_err *err)
{
    const wd_cuda_api *api;
    return begin(&api, out, err);
}

static wd_status check_number(int number, int count, wd_err *err)
{
    char hidden[VISIBLE_TEXT];
    if (number >= 0 && number < count) return WD_OK;
    describe_visible(hidden);
    if (!count)
        return wd_fail(err, WD_UNSUPPORTED,
                       "the NVIDIA driver shows no GPU to this process (%s); find out whether "
                       "nvidia-smi lists one, and whether the container or the batch system gives "
                       "it to this process, or say --devices cpu (--device cpu) to compute on the "
                       "processor",
                       hidden);
    return wd_fail(err, WD_UNSUPPORTED,
                   "cuda:%d: expected a GPU below %d, for the NVIDIA driver shows %d to this "
                   "process (%s)",
                   number, count, count, hidden);
}

wd_status wd_cuda_require(int number, wd_err *err)
{
    const wd_cuda_api *api;
    int count;
    WD_TRY(begin(&api, &count, err));
    return check_number(number, count, err);
}

/* Counts GPU `number` if it can be used; else appends the reason to `out->why`. */
static void find_usable(wd_cuda_usable *out, const wd_cuda_driver *driver, int number)
{
    char name[96];
    wd_cuda_gpu gpu;
    wd_err err;
    wd_status status = describe(&gpu, name, sizeof name, driver, number, &err);
    if (status == WD_OK) status = check_capability(&gpu, name, &err);
    if (status == WD_OK)
        out->number[out->count++] = number;
    else
        wd_append_text(out->why, sizeof out->why, strlen(out->why), "%s%s", out->why[0] ? "; " : "",
                       err.message);
}

void wd_cuda_find_usable(wd_cuda_usable *out)
{
    const wd_cuda_api *api;
    wd_err err;
    int shown;
    *out = (wd_cuda_usable){0};
    const wd_status status = begin(&api, &shown, &err);
    out->has_driver = wd__cuda_api_found_driver();
    if (status != WD_OK) snprintf(out->why, sizeof out->why, "%s", err.message);
    for (int n = 0; status == WD_OK && n < shown && out->count < WD_CUDA_USABLE_MAX; n++)
        find_usable(out, &api->driver, n);
}

static wd_status open_cuda(wd_device **out, int number, bool libraries, wd_err *err)
{
    const wd_cuda_api *api;
    wd_cuda_device *d;
    int count;
    WD_TRY(begin(&api, &count, err));
    WD_TRY(check_number(number, count, err));
    WD_TRY(wd_device_create(&d, sizeof *d, &cuda_kind, err));
    pthread_mutex_init(&d->fault_lock, NULL);
    d->gpu.api = api;
    d->base.checks_copies = true;
    d->base.event_bytes = sizeof(wd_cuda_event);
    d->base.queue_bytes = sizeof(wd_cuda_queue);
    const wd_status status = open_device(d, number, libraries, err);
    if (status == WD_OK)
        *out = &d->base;
    else
        cuda_close(&d->base);
    return status;
}

wd_status wd_device_open_cuda(wd_device **out, int number, wd_err *err)
{
    return open_cuda(out, number, true, err);
}

wd_status wd__cuda_open_kernels(wd_device **out, int number, wd_err *err)
{
    return open_cuda(out, number, false, err);
}
