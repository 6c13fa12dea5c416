/* A stack of blocks within one range of memory. The arena does not own the memory, which may be of
 * the host or of a device, since the arena computes addresses and never dereferences them.
 *
 * A scope takes a mark, pushes, and resets to the mark. The high-water mark over a dry run, with
 * `base` NULL and `capacity` SIZE_MAX, is the size to reserve: the same code measures and runs. */
#ifndef WD_CORE_ARENA_H
#define WD_CORE_ARENA_H

#include <stddef.h>
#include <stdint.h>

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
