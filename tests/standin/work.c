/* What the stand-in driver puts on streams: copies, fills, kernels, and functions of libraries'
 * stand-ins. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/impl.h"

static wd_standin_state *const s = &wd_the_standin;

typedef struct transfer {
    void *to;
    const void *from; /* NULL: `value` is written */
    size_t bytes;
    unsigned char value;
} transfer;

/* Whole pages of zeros are given back to the system, which gives zeroed ones when they are next
 * touched: pages of a large workspace that nobody uses are not there to be protected again and
 * again. */
static void fill(const transfer *t)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = (uintptr_t)t->to, end = start + t->bytes;
    const uintptr_t first = (start + page - 1) / page * page, last = end / page * page;
    if (t->value || first >= last) {
        memset(t->to, t->value, t->bytes);
        return;
    }
    memset(t->to, 0, first - start);
    if (madvise((void *)first, last - first, MADV_DONTNEED)) abort();
    memset((void *)last, 0, end - last);
}

static void run_transfer(const void *argument, uint64_t seed)
{
    const transfer *t = argument;
    (void)seed;
    if (t->from)
        memmove(t->to, t->from, t->bytes);
    else
        fill(t);
}

/* The devices that a stream's device reaches by itself: its own, and peers. */
static unsigned reach_of(int device)
{
    unsigned mask = 1u << device;
    for (int i = 0; i < WD_STANDIN_DEVICES_MAX; i++) mask |= (unsigned)s->peer[device][i] << i;
    return mask;
}

/* One end of a copy: adds the device whose memory it is to *mask; false: it is neither memory of a
 * device nor pinned. */
static bool is_known(unsigned *mask, wd_cu_address address, size_t bytes)
{
    const int owner = wd_standin_owner(address, bytes);
    if (owner >= 0) *mask |= 1u << owner;
    return owner >= 0 || wd_standin_is_pinned(address, bytes);
}

static wd_cu_result submit_copy(wd_cu_address to, wd_cu_address from, size_t bytes,
                                wd_cu_stream stream, bool between_peers)
{
    unsigned mask = 0;
    const transfer t = {(void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, 0};
    const int device = wd_standin_stream_device(stream);
    if (device < 0) return WD_CU_INVALID_HANDLE;
    if (!bytes || !is_known(&mask, to, bytes) || !is_known(&mask, from, bytes))
        return WD_CU_INVALID_VALUE;
    if (!between_peers && mask & ~reach_of(device)) return WD_CU_INVALID_VALUE;
    s->counts.copies++;
    const wd_standin_work w = {.run = run_transfer, .reach = mask};
    return wd_standin_submit(stream, &w, &t, sizeof t);
}

wd_cu_result wd_standin_memcpy_async(wd_cu_address to, wd_cu_address from, size_t bytes,
                                     wd_cu_stream stream)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    return wd_standin_leave(submit_copy(to, from, bytes, stream, false));
}

wd_cu_result wd_standin_memcpy_peer_async(wd_cu_address to, wd_cu_context to_context,
                                          wd_cu_address from, wd_cu_context from_context,
                                          size_t bytes, wd_cu_stream stream)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    const bool fine = to_context && from_context &&
                      wd_standin_owner(to, bytes) == to_context->device &&
                      wd_standin_owner(from, bytes) == from_context->device;
    return wd_standin_leave(fine ? submit_copy(to, from, bytes, stream, true)
                                 : WD_CU_INVALID_VALUE);
}

/* ---- synchronous copies ---- */

/* A copy from host memory that is not pinned, which the driver has read and the device has not. */
typedef struct staged {
    struct staged *next;
    int device;
    void *to;
    size_t bytes;
    unsigned char image[];
} staged;

static staged *first_staged, **last_staged = &first_staged;

static void stage(int device, void *to, const void *from, size_t bytes)
{
    staged *copy = malloc(sizeof *copy + bytes);
    if (!copy) abort();
    *copy = (staged){.device = device, .to = to, .bytes = bytes};
    memcpy(copy->image, from, bytes);
    *last_staged = copy;
    last_staged = &copy->next;
}

void wd_standin_finish_copies(void)
{
    while (first_staged) {
        staged *copy = first_staged;
        first_staged = copy->next;
        wd_standin_reach(1u << copy->device);
        memcpy(copy->to, copy->image, copy->bytes);
        free(copy);
    }
    last_staged = &first_staged;
}

/* Any host memory; does not wait for streams that do not wait for the default one. Of host memory
 * that is not pinned the device has the copy only after the next one, or when somebody waits for
 * the context. */
wd_cu_result wd_standin_mem_copy(wd_cu_address to, wd_cu_address from, size_t bytes)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    const int target = wd_standin_owner(to, bytes), source = wd_standin_owner(from, bytes);
    s->counts.synchronous_copies++;
    wd_standin_finish_copies();
    if (target >= 0 && source < 0 && !wd_standin_is_pinned(from, bytes)) {
        stage(target, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    } else {
        wd_standin_reach((target < 0 ? 0 : 1u << target) | (source < 0 ? 0 : 1u << source));
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    }
    wd_standin_reach(0);
    return wd_standin_leave(WD_CU_SUCCESS);
}

/* ---- fills ---- */

wd_cu_result wd_standin_memset_d8_async(wd_cu_address to, unsigned char value, size_t bytes,
                                        wd_cu_stream stream)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    const int device = wd_standin_stream_device(stream), owner = wd_standin_owner(to, bytes);
    if (device < 0) return wd_standin_leave(WD_CU_INVALID_HANDLE);
    if (owner < 0 || !((reach_of(device) >> owner) & 1))
        return wd_standin_leave(WD_CU_INVALID_VALUE);
    const transfer t = {(void *)(uintptr_t)to, NULL, bytes, value};
    const wd_standin_work w = {.run = run_transfer, .reach = 1u << owner};
    return wd_standin_leave(wd_standin_submit(stream, &w, &t, sizeof t));
}

/* ---- kernels: the launch, followed by the argument ---- */

enum { ARGUMENT_MAX = 4096 }; /* as much as a GPU takes */

typedef struct launch {
    const wd_standin_function *kernel;
    wd_standin_launch shape;
    _Alignas(16) unsigned char argument[ARGUMENT_MAX];
} launch;

static void run_kernel(const void *argument, uint64_t seed)
{
    const launch *l = argument;
    wd_standin_launch shape = l->shape;
    shape.seed = seed;
    l->kernel->run(l->argument, &shape);
}

/* Reads the argument's place and size from `extra`; false: that is not what it holds. */
static bool read_extra(const void **argument, size_t *bytes, void **extra)
{
    if (!extra || (uintptr_t)extra[0] != WD_CU_LAUNCH_BUFFER_POINTER ||
        (uintptr_t)extra[2] != WD_CU_LAUNCH_BUFFER_SIZE || extra[4])
        return false;
    *argument = extra[1];
    *bytes = *(const size_t *)extra[3];
    return *argument && *bytes && *bytes <= ARGUMENT_MAX;
}

static bool is_allowed(const wd_standin_launch *l)
{
    const uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    return threads > 0 && threads <= 1024 && l->grid[0] && l->grid[1] && l->grid[2] &&
           l->grid[0] <= INT32_MAX && l->grid[1] <= 65535 && l->grid[2] <= 65535;
}

wd_cu_result wd_standin_launch_kernel(wd_cu_function function, unsigned grid_x, unsigned grid_y,
                                      unsigned grid_z, unsigned block_x, unsigned block_y,
                                      unsigned block_z, unsigned shared_bytes, wd_cu_stream stream,
                                      void **parameters, void **extra)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    const int device = wd_standin_stream_device(stream);
    const void *argument;
    size_t bytes;
    launch l = {.kernel = (const wd_standin_function *)(uintptr_t)function,
                .shape = {.grid = {grid_x, grid_y, grid_z},
                          .block = {block_x, block_y, block_z},
                          .shared_bytes = shared_bytes}};
    if (device < 0 || device != wd_standin_current()->device)
        return wd_standin_leave(WD_CU_INVALID_HANDLE);
    if (!l.kernel || parameters || !read_extra(&argument, &bytes, extra) || !is_allowed(&l.shape) ||
        shared_bytes > WD_STANDIN_SHARED_MAX)
        return wd_standin_leave(WD_CU_INVALID_VALUE);
    memcpy(l.argument, argument, bytes);
    l.shape.argument_bytes = bytes;
    s->counts.launches++;
    const wd_standin_work w = {.run = run_kernel, .reach = reach_of(device)};
    return wd_standin_leave(wd_standin_submit(stream, &w, &l, offsetof(launch, argument) + bytes));
}

/* ---- functions of libraries: the function, followed by its argument ---- */

typedef struct call {
    void (*run)(const void *argument);
    _Alignas(16) unsigned char argument[4096];
} call;

static void run_call(const void *argument, uint64_t seed)
{
    const call *c = argument;
    (void)seed;
    c->run(c->argument);
}

/* The device has the function from now on; false: it has no memory for it. */
static bool load(void (*run)(const void *argument), int device)
{
    wd_standin_loaded *f = s->loaded;
    const size_t bytes = s->options.bytes_of_function;
    while (f->run && f->run != run) f++;
    if (f == s->loaded + WD_STANDIN_FUNCTIONS_MAX) abort();
    f->run = run;
    if (!bytes || f->devices >> device & 1) return true;
    if (bytes > wd_standin_free_bytes(device)) return false;
    wd_standin_use_memory(device, (int64_t)bytes);
    f->devices |= 1u << device;
    return true;
}

void wd_standin_unload(int device)
{
    for (wd_standin_loaded *f = s->loaded; f->run; f++) {
        if (!(f->devices >> device & 1)) continue;
        wd_standin_use_memory(device, -(int64_t)s->options.bytes_of_function);
        f->devices &= ~(1u << device);
    }
}

wd_cu_result wd_standin_enqueue(wd_cu_stream stream, void (*run)(const void *argument),
                                const void *argument, size_t bytes)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    call c = {.run = run};
    const int device = wd_standin_stream_device(stream);
    if (device < 0) return wd_standin_leave(WD_CU_INVALID_HANDLE);
    if (bytes > sizeof c.argument) return wd_standin_leave(WD_CU_INVALID_VALUE);
    memcpy(c.argument, argument, bytes);
    if (!load(run, device)) return wd_standin_leave(WD_CU_OUT_OF_MEMORY);
    s->counts.launches++;
    const wd_standin_work w = {.run = run_call, .reach = reach_of(device)};
    return wd_standin_leave(wd_standin_submit(stream, &w, &c, offsetof(call, argument) + bytes));
}
