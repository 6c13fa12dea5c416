/* Host memory: what is pinned, which copies of queues may use (see dev/device.h), and blocks for
 * pools.
 *
 * There is one list of all ranges of the process: memory that is pinned for one GPU is pinned for
 * all, so a range is valid for all devices of a kind. A range counts the same bytes in
 * core/memory.h for every device, so that a dry run counts as much as the real one. */
#include <sys/mman.h>
#include <unistd.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/memory.h"
#include "dev/device_impl.h"
#include "dev/pinned.h"

/* ---- pinned memory ---- */

typedef struct range {
    const wd_device *device; /* for which it was allocated or registered */
    char *address;
    size_t bytes;
    struct range *next;
} range;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static range *list_first;

static void add(range *new, wd_device *device, void *address, size_t bytes)
{
    *new = (range){device, address, bytes, NULL};
    pthread_mutex_lock(&list_lock);
    new->next = list_first;
    list_first = new;
    pthread_mutex_unlock(&list_lock);
}

/* Removes the device's range that begins at the address from the list. */
static range *take(const wd_device *device, const void *address)
{
    pthread_mutex_lock(&list_lock);
    range **at = &list_first;
    while (*at && ((*at)->address != address || (*at)->device != device)) at = &(*at)->next;
    range *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&list_lock);
    WD_REQUIRE(found, "%s: %p is no host memory that was allocated for it or registered with it",
               device->name, address);
    return found;
}

static bool has(const wd_device_kind *kind, const void *address, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&list_lock);
    for (const range *r = list_first; r && !found; r = r->next) {
        const uintptr_t past = (uintptr_t)address - (uintptr_t)r->address;
        found = r->device->kind == kind && past < r->bytes && bytes <= r->bytes - past;
    }
    pthread_mutex_unlock(&list_lock);
    return found;
}

void wd__pinned_close(const wd_device *device)
{
    pthread_mutex_lock(&list_lock);
    for (range **at = &list_first; *at;)
        if ((*at)->device == device)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&list_lock);
}

void wd__pinned_require(const wd_queue *queue, const void *address, size_t bytes)
{
    wd_device *device = queue->device;
    if (device->kind->owns(device, address)) return;
    WD_REQUIRE(has(device->kind, address, bytes),
               "%s: a copy of %zu bytes names host memory at %p that is neither from "
               "wd_host_alloc nor registered: use one of these, or wd_queue_copy_and_wait",
               device->name, bytes, address);
}

static wd_status take_host(void **out, wd_device *device, size_t bytes, const char *what,
                           wd_err *err)
{
    if (!device->kind->host_alloc) return wd_alloc(out, bytes, 1, what, err);
    const wd_status status = device->kind->host_alloc(out, device, bytes, err);
    if (status != WD_OK) return wd_fail_in(err, "%s: %s", device->name, what);
    wd_memory_hold_elsewhere(bytes, true);
    return WD_OK;
}

wd_status wd_host_alloc(void **out, wd_device *device, size_t bytes, const char *what, wd_err *err)
{
    range *new;
    void *block;
    if (!bytes) bytes = 1;
    WD_TRY(wd_alloc((void **)&new, 1, sizeof *new, what, err));
    const wd_status status = take_host(&block, device, bytes, what, err);
    if (status != WD_OK) {
        wd_free(new);
        return status;
    }
    *out = block;
    add(new, device, block, bytes);
    return WD_OK;
}

void wd_host_free(wd_device *device, void *block)
{
    if (!block) return;
    range *gone = take(device, block);
    if (device->kind->host_free) {
        device->kind->host_free(device, block, gone->bytes);
        wd_memory_hold_elsewhere(gone->bytes, false);
    } else {
        wd_free(block);
    }
    wd_free(gone);
}

wd_status wd_host_register(wd_device *device, void *address, size_t bytes, const char *what,
                           wd_err *err)
{
    range *new;
    wd_status status = WD_OK;
    WD_TRY(wd_alloc((void **)&new, 1, sizeof *new, what, err));
    if (device->kind->host_register)
        status = device->kind->host_register(device, address, bytes, err);
    if (status != WD_OK) {
        wd_free(new);
        return wd_fail_in(err, "%s: %s", device->name, what);
    }
    add(new, device, address, bytes);
    return WD_OK;
}

void wd_host_register_pool(wd_device *device, wd_device *processor)
{
    WD_REQUIRE(processor->traits.reads_host && !processor->blocks,
               "the pool of %s is to be registered, and has %zu blocks", processor->name,
               processor->blocks);
    processor->pool_with = device;
}

void wd_host_unregister(wd_device *device, void *address)
{
    if (!address) return;
    range *gone = take(device, address);
    if (device->kind->host_unregister) device->kind->host_unregister(device, address, gone->bytes);
    wd_free(gone);
}

/* ---- blocks for pools ---- */

enum { HUGE_PAGE = 2 << 20 };

wd_status wd_host_block_map(void **out, size_t bytes, wd_err *err)
{
    size_t extra = bytes < HUGE_PAGE ? 0 : HUGE_PAGE; /* so that it can begin at a huge page */
    char *start = MAP_FAILED;
    if (bytes + extra >= bytes)
        start =
            mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return wd_fail(err, WD_OUT_OF_MEMORY, "the system has no %zu bytes of memory", bytes);
    char *block = start;
    if (extra) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE), before = -(uintptr_t)start % HUGE_PAGE;
        block += before;
        if (before) munmap(start, before);
        if (before < extra) munmap(block + wd_round_up(bytes, page), extra - before);
        madvise(block, bytes, MADV_HUGEPAGE);
    }
    *out = block;
    return WD_OK;
}

void wd_host_block_unmap(void *block, size_t bytes)
{
    munmap(block, bytes);
}
