/* A first-fit allocator for the memory of a VAE pass, within one range.
 *
 * It is no stack like core/arena.h, because in a chain of layers the input is freed while the later
 * output stays. The pass first runs once without launches to find the peak; the same order of calls
 * then gives the same addresses, so the peak is exact. */
#ifndef WD_MODEL_VAE_VAE_POOL_H
#define WD_MODEL_VAE_VAE_POOL_H

#include <stddef.h>

enum { WD_VAE_POOL_BLOCKS = 320 };

typedef struct wd_vae_pool {
    char *base;
    size_t capacity, peak;
    struct {
        size_t offset, bytes;
    } used[WD_VAE_POOL_BLOCKS]; /* by offset */
    int count;
} wd_vae_pool;

/* Starts a pool over `capacity` bytes at `base`; NULL: addresses are not real, and only the peak is
 * used. */
void wd_vae_pool_over(wd_vae_pool *pool, void *base, size_t capacity);

/* Takes `bytes`, aligned to 64. The capacity was planned, so exceeding it is a bug in this library.
 */
void *wd_vae_pool_take(wd_vae_pool *pool, size_t bytes);
void wd_vae_pool_give(wd_vae_pool *pool, const void *block);

#endif
