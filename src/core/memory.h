/* Host memory, and arenas. Every allocation of the library goes through here, so that tests can
 * make the n-th one fail and count the ones of a steady-state step. */
#ifndef WD_CORE_MEMORY_H
#define WD_CORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Allocates `count * size` zeroed bytes, 64-byte aligned, and checks the product. Errors name
 * `what`. The caller frees *out with wd_free. */
wd_status wd_alloc(void **out, size_t count, size_t size, const char *what, wd_err *err);

/* Grows or shrinks *block (may be NULL) to `count * size` bytes; new bytes are not cleared. On
 * failure *block stays as it was. */
wd_status wd_resize(void **block, size_t count, size_t size, const char *what, wd_err *err);

/* Sets *out to a copy of `text`, which the caller frees with wd_free. */
wd_status wd_copy_text(char **out, const char *text, wd_err *err);

/* Frees a block of the functions above; NULL is allowed. */
void wd_free(void *block);

/* Calls of wd_alloc, wd_resize and wd_copy_text so far in this process. */
int64_t wd__alloc_count(void);

/* Bytes of all blocks that the calling thread has allocated and not freed, and their peak since
 * wd_memory_restart_peak. A block counts for the thread that allocates, resizes or frees it. The
 * peak of a dry run is the host memory that the real run will take. */
int64_t wd_memory_held(void);
int64_t wd_memory_peak(void);
void wd_memory_restart_peak(void);

/* Counts a block of `bytes` that the calling thread got from another allocator, such as pinned
 * memory of a driver, like a block of wd_alloc; `held` false: no longer counts it. */
void wd_memory_hold_elsewhere(size_t bytes, bool held);

/* While `on`, large blocks of the calling thread are allocated even if the machine has less memory.
 * Dry runs use this, since they write to few of the pages that they allocate. */
void wd_memory_plan_only(bool on);

/* For tests: call number `n` from now (1 = the next) fails with WD_OUT_OF_MEMORY, once; 0: none
 * does. */
void wd__alloc_fail_at(int64_t n);

/* For tests: call number `n` from now and every later one fail, until wd__alloc_fail_at is called.
 */
void wd__alloc_fail_from(int64_t n);

/* ---- arenas ----
 *
 * A stack of blocks within one range of memory. The arena does not own the memory, which may be of
 * the host or of a device, since the arena computes addresses and never dereferences them.
 *
 * A scope takes a mark, pushes, and resets to the mark. The high-water mark over a dry run, with
 * `base` NULL and `capacity` SIZE_MAX, is the size to reserve: the same code measures and runs. */

enum { WD_ARENA_ALIGN = 64 };

typedef struct wd_arena {
    char *base;
    size_t capacity, used, peak;
} wd_arena;

wd_arena wd_arena_over(void *base, size_t capacity);

/* Returns a block of `bytes`, aligned to WD_ARENA_ALIGN. The capacity was planned, so a push beyond
 * it is a bug in this library: it ends the process with the figures. */
void *wd_arena_push(wd_arena *arena, size_t bytes);

static inline size_t wd_arena_mark(const wd_arena *arena)
{
    return arena->used;
}
static inline void wd_arena_reset(wd_arena *arena, size_t mark)
{
    arena->used = mark;
}

/* Gives back `block` and all blocks that were pushed after it. */
static inline void wd_arena_pop(wd_arena *arena, const void *block)
{
    wd_arena_reset(arena, (uintptr_t)block - (uintptr_t)arena->base);
}

#endif
