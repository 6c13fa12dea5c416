/* Arenas: see core/arena.h. */
#include "core/arena.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/checked.h"

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
