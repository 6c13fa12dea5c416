/* Host memory: see core/memory.h. */
#include "core/memory.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/checked.h"

static _Atomic int64_t calls; /* so far */

/* The first and the last value of `calls` whose call fails; first 0: none does. */
static _Atomic int64_t fail_first, fail_last;

static _Thread_local int64_t held, held_peak; /* bytes */

static _Thread_local bool only_planned;

enum { PLANNED_BYTES_MIN = 1 << 20 }; /* of a block that is only planned */

/* The header before each block records its size. (malloc_usable_size depends on what was freed
 * before, and two runs of the same code must count the same.) It is as long as the alignment. */
typedef union header {
    struct {
        int64_t bytes; /* with the header */
        void *start;   /* the system's allocation, which is aligned to less */
        size_t mapped; /* bytes mapped for a plan; 0: allocated by calloc or realloc */
    };
    char room[64];
} header;

enum { SLACK = sizeof(header) - _Alignof(max_align_t) };

static header *header_of(void *block)
{
    return (header *)block - 1;
}

/* The first aligned address for a header in an allocation of the system. */
static header *header_in(void *start)
{
    const uintptr_t past = (uintptr_t)start % sizeof(header);
    return (header *)((char *)start + (past ? sizeof(header) - past : 0));
}

/* Allocates zeroed bytes with a header. While only planning, pages are mapped so that the system
 * does not check whether it has as much memory. */
static header *take(size_t bytes)
{
    const size_t mapped = only_planned && bytes >= PLANNED_BYTES_MIN ? bytes + SLACK : 0;
    void *start = mapped ? mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                         : calloc(1, bytes + SLACK);
    if (!start || start == MAP_FAILED) return NULL;
    header *h = header_in(start);
    h->start = start;
    h->mapped = mapped;
    return h;
}

static void give_back(header *h)
{
    if (h->mapped)
        munmap(h->start, h->mapped);
    else
        free(h->start);
}

static void hold(int64_t bytes)
{
    held += bytes;
    if (held > held_peak) held_peak = held;
}

/* The bytes of a header and a block of count * size; false: overflow. */
static bool add_header(size_t *out, size_t count, size_t size)
{
    size_t bytes;
    return wd_mul_size(&bytes, count, size) && wd_add_size(out, bytes, sizeof(header)) &&
           *out <= SIZE_MAX / 2;
}

static bool must_fail(void)
{
    const int64_t call = atomic_fetch_add(&calls, 1) + 1, first = atomic_load(&fail_first);
    return first && call >= first && call <= atomic_load(&fail_last);
}

static wd_status refuse(size_t count, size_t size, const char *what, wd_err *err)
{
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for %s: %zu times %zu bytes", what, count,
                   size);
}

/* The system gives large blocks as pages of zeros, so a plan for a large machine touches no pages
 * that only the real run would fill. */
wd_status wd_alloc(void **out, size_t count, size_t size, const char *what, wd_err *err)
{
    size_t bytes;
    if (must_fail() || !add_header(&bytes, count, size)) return refuse(count, size, what, err);
    header *h = take(bytes);
    if (!h) return refuse(count, size, what, err);
    h->bytes = (int64_t)bytes;
    hold(h->bytes);
    *out = h + 1;
    return WD_OK;
}

/* Resizes the block of `old` to `bytes`; NULL: no memory, and `old` is unchanged. */
static header *grow(header *old, size_t bytes)
{
    const size_t before = (size_t)old->bytes;
    const ptrdiff_t at = (const char *)old - (const char *)old->start;
    char *start = realloc(old->start, bytes + SLACK);
    if (!start) return NULL;
    header *h = header_in(start);
    memmove(h, start + at, before < bytes ? before : bytes);
    h->start = start;
    h->mapped = 0;
    return h;
}

wd_status wd_resize(void **block, size_t count, size_t size, const char *what, wd_err *err)
{
    size_t bytes;
    if (must_fail() || !add_header(&bytes, count, size)) return refuse(count, size, what, err);
    header *old = *block ? header_of(*block) : NULL;
    const size_t before = old ? (size_t)old->bytes : 0;
    const bool moves = old && old->mapped;
    header *h = old && !moves ? grow(old, bytes) : take(bytes);
    if (!h) return refuse(count, size, what, err);
    if (moves) {
        memcpy(h + 1, old + 1, (before < bytes ? before : bytes) - sizeof *h);
        give_back(old);
    }
    h->bytes = (int64_t)bytes;
    hold((int64_t)bytes - (int64_t)before);
    *block = h + 1;
    return WD_OK;
}

wd_status wd_copy_text(char **out, const char *text, wd_err *err)
{
    size_t bytes = strlen(text) + 1;
    void *copy = NULL;
    WD_TRY(wd_alloc(&copy, bytes, 1, "a text", err));
    memcpy(copy, text, bytes);
    *out = copy;
    return WD_OK;
}

void wd_free(void *block)
{
    if (!block) return;
    header *h = header_of(block);
    hold(-h->bytes);
    give_back(h);
}

void wd_memory_hold_elsewhere(size_t bytes, bool held_now)
{
    const int64_t counted = (int64_t)(bytes + sizeof(header));
    hold(held_now ? counted : -counted);
}

void wd_memory_plan_only(bool on)
{
    only_planned = on;
}

int64_t wd_memory_held(void)
{
    return held;
}
int64_t wd_memory_peak(void)
{
    return held_peak;
}
void wd_memory_restart_peak(void)
{
    held_peak = held;
}

int64_t wd__alloc_count(void)
{
    return atomic_load(&calls);
}

static void fail_calls(int64_t first, int64_t last)
{
    atomic_store(&fail_first, 0); /* no mixture of the old range and the new one */
    atomic_store(&fail_last, last);
    atomic_store(&fail_first, first);
}

void wd__alloc_fail_at(int64_t n)
{
    const int64_t call = n ? atomic_load(&calls) + n : 0;
    fail_calls(call, call);
}

void wd__alloc_fail_from(int64_t n)
{
    fail_calls(atomic_load(&calls) + n, INT64_MAX);
}

/* ---- arenas ---- */

wd_arena wd_arena_over(void *base, size_t capacity)
{
    return (wd_arena){.base = base, .capacity = capacity};
}

void *wd_arena_push(wd_arena *arena, size_t bytes)
{
    size_t size = wd_round_up(bytes, WD_ARENA_ALIGN);
    if (size > arena->capacity - arena->used) {
        fprintf(stderr,
                "wandistiller: bug: arena of %zu bytes has %zu in use and is asked for %zu\n",
                arena->capacity, arena->used, size);
        abort();
    }
    void *block = (void *)((uintptr_t)arena->base + arena->used);
    arena->used += size;
    if (arena->used > arena->peak) arena->peak = arena->used;
    return block;
}
