/* A stack of blocks within one range of memory that somebody else owns (host or device: the arena
 * computes addresses and never dereferences them).
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

/* `bytes` aligned to WD_ARENA_ALIGN. The size was planned: running over it is a bug of ours, and
 * stops the program with the figures. */
void *wd_arena_push(wd_arena *arena, size_t bytes);

static inline size_t wd_arena_mark(const wd_arena *arena) { return arena->used; }
static inline void wd_arena_reset(wd_arena *arena, size_t mark) { arena->used = mark; }

/* Gives back `block` and all that was pushed behind it. */
static inline void wd_arena_pop(wd_arena *arena, const void *block)
{
    wd_arena_reset(arena, (uintptr_t)block - (uintptr_t)arena->base);
}

#endif
