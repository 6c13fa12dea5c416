/* Blocks of threads on the host: see standin/blocks.h. */
#include "standin/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "standin/fiber.h"
#include "standin/inside.h"

enum { WARP = 32, THREADS_MAX = 1024, POISON = 0xff };

WD_STANDIN_LOCAL wd_standin_index wd_standin_thread_index, wd_standin_block_index,
    wd_standin_block_size;

typedef enum state { RUNS, AT_BARRIER, AT_SHUFFLE, DONE } state;

typedef struct thread {
    state state;
    uint32_t value; /* what it gave to a shuffle, then what it gets */
    unsigned source;
} thread;

struct wd_standin {
    wd_standin_order order;
    uint64_t random;
    wd_fiber *fibers;
    int opened; /* fibers */
    wd_standin_kernel *kernel;
    const void *args;
    void *shared;
    int threads, current;
    thread thread[THREADS_MAX];
    int turn[THREADS_MAX]; /* the order of the threads in this round */
};

static WD_STANDIN_LOCAL wd_standin *running;

/* ---- the threads' side ---- */

static void stop(state why)
{
    wd_standin *s = running;
    s->thread[s->current].state = why;
    wd_fiber_leave(s->fibers, s->current);
}

/* A fiber runs one thread of one block after the other. */
static void live(void *argument)
{
    (void)argument;
    for (;;) {
        running->kernel(running->args);
        stop(DONE);
    }
}

void *wd_standin_shared(void)
{
    return running->shared;
}
void wd_standin_barrier(void)
{
    stop(AT_BARRIER);
}

uint32_t wd_standin_shuffle(uint32_t mask, uint32_t value, unsigned source_lane)
{
    thread *t = &running->thread[running->current];
    WD_REQUIRE(mask == UINT32_MAX, "a shuffle of some of the threads of a warp: 0x%x", mask);
    WD_REQUIRE(source_lane < WARP, "a shuffle from lane %u", source_lane);
    t->value = value;
    t->source = source_lane;
    stop(AT_SHUFFLE);
    return t->value;
}

/* ---- the scheduler ---- */

static uint64_t next_random(wd_standin *s)
{
    uint64_t x = s->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void shuffle_turns(wd_standin *s)
{
    for (int i = s->threads - 1; i > 0; i--) {
        int j = (int)(next_random(s) % (uint64_t)(i + 1)), turn = s->turn[i];
        s->turn[i] = s->turn[j];
        s->turn[j] = turn;
    }
}

static void enter(wd_standin *s, int number)
{
    unsigned n = (unsigned)number;
    wd_standin_index size = wd_standin_block_size;
    wd_standin_thread_index =
        (wd_standin_index){n % size.x, n / size.x % size.y, n / size.x / size.y};
    s->current = number;
    wd_fiber_enter(s->fibers, number);
}

/* Threads that were let go run until they stop again. */
static void run_round(wd_standin *s)
{
    if (s->order == WD_STANDIN_SHUFFLED) shuffle_turns(s);
    for (int i = 0; i < s->threads; i++)
        if (s->thread[s->turn[i]].state == RUNS) enter(s, s->turn[i]);
}

static int count(const wd_standin *s, int first, int number, state what)
{
    int found = 0;
    for (int i = first; i < first + number; i++) found += s->thread[i].state == what;
    return found;
}

/* Exchanges the values of warps that are at a shuffle; false if there is none. */
static bool shuffle_warps(wd_standin *s)
{
    bool any = false;
    for (int warp = 0; warp < s->threads; warp += WARP) {
        uint32_t value[WARP];
        int there = count(s, warp, WARP, AT_SHUFFLE);
        if (there == 0) continue;
        WD_REQUIRE(there == WARP, "%d of the 32 threads of a warp reach a shuffle", there);
        for (int i = 0; i < WARP; i++) value[i] = s->thread[warp + i].value;
        for (int i = 0; i < WARP; i++) {
            s->thread[warp + i].value = value[s->thread[warp + i].source];
            s->thread[warp + i].state = RUNS;
        }
        any = true;
    }
    return any;
}

/* Lets go threads that wait for one another; false if all are done. */
static bool go_on(wd_standin *s)
{
    if (shuffle_warps(s)) return true;
    int done = count(s, 0, s->threads, DONE);
    if (done == s->threads) return false;
    WD_REQUIRE(done == 0, "%d of %d threads of a block end without a barrier of the others", done,
               s->threads);
    for (int i = 0; i < s->threads; i++) s->thread[i].state = RUNS;
    return true;
}

static void run_block(wd_standin *s, size_t shared_bytes)
{
    if (shared_bytes) memset(s->shared, POISON, shared_bytes);
    for (int i = 0; i < s->threads; i++) {
        s->thread[i].state = RUNS;
        s->turn[i] = s->order == WD_STANDIN_DESCENDING ? s->threads - 1 - i : i;
    }
    do run_round(s);
    while (go_on(s));
}

/* The number of the block that comes `n`-th of `blocks`. */
static uint64_t block_at(const wd_standin *s, uint64_t n, uint64_t blocks, uint64_t start)
{
    if (s->order == WD_STANDIN_ASCENDING) return n;
    if (s->order == WD_STANDIN_DESCENDING) return blocks - 1 - n;
    return (start + n) % blocks;
}

void wd_standin_run_function(wd_standin *s, wd_standin_kernel *kernel, const unsigned grid[3],
                             const unsigned block[3], size_t shared_bytes, const void *args)
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    WD_REQUIRE(threads > 0 && threads <= THREADS_MAX && threads % WARP == 0 && blocks > 0,
               "%u x %u x %u blocks of %u x %u x %u threads", grid[0], grid[1], grid[2], block[0],
               block[1], block[2]);
    if (s->opened < (int)threads) {
        if (s->fibers) wd_fibers_close(s->fibers, s->opened);
        s->opened = (int)threads;
        s->fibers = wd_fibers_open(s->opened, live, NULL);
    }
    wd_standin *before = running;
    running = s;
    s->kernel = kernel;
    s->args = args;
    s->threads = (int)threads;
    s->shared = malloc(shared_bytes ? shared_bytes : 1);
    WD_REQUIRE(s->shared, "no memory for %zu bytes of shared memory", shared_bytes);
    wd_standin_block_size = (wd_standin_index){block[0], block[1], block[2]};
    uint64_t start = s->order == WD_STANDIN_SHUFFLED ? next_random(s) % blocks : 0;
    for (uint64_t n = 0; n < blocks; n++) {
        uint64_t at = block_at(s, n, blocks, start);
        wd_standin_block_index =
            (wd_standin_index){(unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]),
                               (unsigned)(at / grid[0] / grid[1])};
        run_block(s, shared_bytes);
    }
    free(s->shared);
    running = before;
}

/* ---- kernels by name ---- */

#define X(name) void wd_kernel_##name(const void *args);
WD_CUDA_KERNEL_MAP(X)
#undef X

static wd_standin_kernel *const kernels[WD_CUDA_KERNEL_COUNT] = {
#define X(name) wd_kernel_##name,
    WD_CUDA_KERNEL_MAP(X)
#undef X
};

void wd_standin_run(void *context, wd_cuda_kernel kernel, const unsigned grid[3],
                    const unsigned block[3], size_t shared_bytes, const void *args, size_t bytes)
{
    void *copy = malloc(bytes); /* of exactly this size, for the address sanitizer to guard */
    WD_REQUIRE(copy, "no memory for %zu bytes of arguments", bytes);
    memcpy(copy, args, bytes);
    wd_standin_run_function(context, kernels[kernel], grid, block, shared_bytes, copy);
    free(copy);
}

wd_standin *wd_standin_open(wd_standin_order order, uint64_t seed)
{
    wd_standin *s = calloc(1, sizeof *s);
    WD_REQUIRE(s, "no memory for the stand-in of a GPU");
    s->order = order;
    s->random = seed;
    return s;
}

void wd_standin_close(wd_standin *s)
{
    if (!s) return;
    if (s->fibers) wd_fibers_close(s->fibers, s->opened);
    free(s);
}
