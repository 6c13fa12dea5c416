/* The stand-in driver's memory: blocks of devices, which are accessible only while work that may
 * touch them runs, and pinned host memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dev/guarded_memory.h"
#include "standin/impl.h"

/* A block of a device, or a range of pinned host memory. */
typedef struct range {
    struct range *next;
    char *start;
    size_t bytes;
    bool mapped; /* false: it is not ours */
    int device;  /* -1: host memory */
} range;

static wd_standin_state *const s = &wd_the_standin;
static range *device_ranges, *host_ranges;
static unsigned reached; /* devices whose memory is accessible */

enum { GARBAGE = 0xa5, GARBAGE_MAX = 4 << 20, ALIGNMENT = 256 };

static range *find(range *list, wd_cu_address address, size_t bytes)
{
    const uintptr_t at = (uintptr_t)address;
    for (range *r = list; r; r = r->next)
        if (at - (uintptr_t)r->start < r->bytes && bytes <= r->bytes - (at - (uintptr_t)r->start))
            return r;
    return NULL;
}

int wd_standin_owner(wd_cu_address address, size_t bytes)
{
    const range *r = find(device_ranges, address, bytes);
    return r ? r->device : -1;
}

bool wd_standin_is_pinned(wd_cu_address address, size_t bytes)
{
    return find(host_ranges, address, bytes) != NULL;
}

void wd_standin_reach(unsigned mask)
{
    for (range *r = device_ranges; r && mask != reached; r = r->next)
        if (((mask ^ reached) >> r->device) & 1)
            wd_guarded_set_open(r->start, r->bytes, (mask >> r->device) & 1);
    reached = mask;
}

/* Bytes of its memory that a device has not given out. */
size_t wd_standin_free_bytes(int device)
{
    size_t used = s->options.bytes_of_others + s->options.bytes_of_context +
                  (size_t)s->bytes_of_libraries[device];
    for (const range *r = device_ranges; r; r = r->next)
        if (r->device == device) used += r->bytes;
    return used < s->options.bytes ? s->options.bytes - used : 0;
}

void wd_standin_use_memory(int device, int64_t bytes)
{
    s->bytes_of_libraries[device] += bytes;
}

wd_cu_result wd_standin_mem_get_info(size_t *free, size_t *total)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    *free = wd_standin_free_bytes(wd_standin_current()->device);
    *total = s->options.bytes;
    return wd_standin_leave(WD_CU_SUCCESS);
}

static range *map(range **list, size_t bytes, int device)
{
    range *r = calloc(1, sizeof *r);
    char *start = wd_guarded_map(bytes, ALIGNMENT);
    if (!r || !start) abort();
    *r = (range){*list, start, bytes, true, device};
    wd_guarded_set_open(start, bytes, true);
    memset(start, GARBAGE, bytes < GARBAGE_MAX ? bytes : GARBAGE_MAX);
    *list = r;
    return r;
}

static void unmap(range **at)
{
    range *r = *at;
    *at = r->next;
    if (r->mapped) wd_guarded_unmap(r->start, r->bytes);
    free(r);
}

/* The place in the list of the range that begins there and is a mapping of ours or not. */
static range **place_of(range **list, const void *start, bool mapped)
{
    while (*list && ((*list)->start != (const char *)start || (*list)->mapped != mapped))
        list = &(*list)->next;
    return list;
}

wd_cu_result wd_standin_mem_alloc(wd_cu_address *address, size_t bytes)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    const int device = wd_standin_current()->device;
    if (!bytes) return wd_standin_leave(WD_CU_INVALID_VALUE);
    if (bytes > wd_standin_free_bytes(device)) return wd_standin_leave(WD_CU_OUT_OF_MEMORY);
    s->counts.allocations++;
    range *r = map(&device_ranges, bytes, device);
    wd_guarded_set_open(r->start, bytes, (reached >> device) & 1);
    *address = (wd_cu_address)(uintptr_t)r->start;
    return wd_standin_leave(WD_CU_SUCCESS);
}

/* Takes it away at once: work that has not run and names it will not find it. */
wd_cu_result wd_standin_mem_free(wd_cu_address address)
{
    const wd_cu_result entered = wd_standin_enter(false);
    if (entered) return entered;
    const wd_cu_context context = wd_standin_current();
    range **at = place_of(&device_ranges, (void *)(uintptr_t)address, true);
    if (!context || !*at) return wd_standin_leave(WD_CU_INVALID_VALUE);
    wd_standin_finish_copies();
    wd_standin_reach(0);
    unmap(at);
    return wd_standin_leave(context->fault);
}

wd_cu_result wd_standin_mem_host_alloc(void **block, size_t bytes, unsigned flags)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    if (!bytes || flags & ~(unsigned)WD_CU_HOST_ALLOC_PORTABLE)
        return wd_standin_leave(WD_CU_INVALID_VALUE);
    s->counts.host_allocations++;
    *block = map(&host_ranges, bytes, -1)->start;
    return wd_standin_leave(WD_CU_SUCCESS);
}

static wd_cu_result drop_host(void *block, bool mapped)
{
    const wd_cu_result entered = wd_standin_enter(false);
    if (entered) return entered;
    range **at = place_of(&host_ranges, block, mapped);
    if (!*at) return wd_standin_leave(WD_CU_INVALID_VALUE);
    unmap(at);
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_mem_free_host(void *block)
{
    return drop_host(block, true);
}

wd_cu_result wd_standin_mem_host_register(void *block, size_t bytes, unsigned flags)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    if (!bytes || (uintptr_t)block % (uintptr_t)sysconf(_SC_PAGESIZE) ||
        flags & ~(unsigned)WD_CU_HOST_REGISTER_PORTABLE)
        return wd_standin_leave(WD_CU_INVALID_VALUE);
    for (const range *r = host_ranges; r; r = r->next)
        if ((char *)block < r->start + r->bytes && r->start < (char *)block + bytes)
            return wd_standin_leave(WD_CU_HOST_MEMORY_ALREADY_REGISTERED);
    range *r = calloc(1, sizeof *r);
    if (!r) abort();
    *r = (range){host_ranges, block, bytes, false, -1};
    host_ranges = r;
    s->counts.host_allocations++;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_mem_host_unregister(void *block)
{
    return drop_host(block, false);
}

static int free_list(range **list)
{
    int count = 0;
    for (; *list; count++) unmap(list);
    return count;
}

int wd_standin_free_pools(void)
{
    wd_standin_finish_copies();
    reached = 0;
    return free_list(&device_ranges) + free_list(&host_ranges);
}
