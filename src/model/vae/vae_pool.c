/* Blocks of a VAE pass: see model/vae/vae_pool.h. */
#include "model/vae/vae_pool.h"

#include <stdint.h>
#include <string.h>

#include "core/checked.h"
#include "core/require.h"

enum { ALIGN = 64 };

void wd_vae_pool_over(wd_vae_pool *pool, void *base, size_t capacity)
{
    *pool = (wd_vae_pool){.base = base, .capacity = capacity};
    if (!base) *pool = (wd_vae_pool){.base = (char *)ALIGN, .capacity = SIZE_MAX};
}

void *wd_vae_pool_take(wd_vae_pool *pool, size_t bytes)
{
    size_t start = 0, rounded = wd_round_up(bytes ? bytes : 1, ALIGN);
    int at = 0;
    WD_REQUIRE(pool->count < WD_VAE_POOL_BLOCKS, "the VAE needs more than %d blocks",
               WD_VAE_POOL_BLOCKS);
    while (at < pool->count && pool->used[at].offset - start < rounded) {
        start = pool->used[at].offset + pool->used[at].bytes;
        at++;
    }
    memmove(&pool->used[at + 1], &pool->used[at], (size_t)(pool->count - at) * sizeof *pool->used);
    pool->used[at].offset = start;
    pool->used[at].bytes = rounded;
    pool->count++;
    if (start + rounded > pool->peak) pool->peak = start + rounded;
    WD_REQUIRE(pool->peak <= pool->capacity, "the VAE needs %zu bytes, planned were %zu",
               pool->peak, pool->capacity);
    return pool->base + start;
}

void wd_vae_pool_give(wd_vae_pool *pool, const void *block)
{
    int at = 0;
    while (at < pool->count && pool->base + pool->used[at].offset != block) at++;
    WD_REQUIRE(at < pool->count, "a block of the VAE is given back twice");
    pool->count--;
    memmove(&pool->used[at], &pool->used[at + 1], (size_t)(pool->count - at) * sizeof *pool->used);
}
