/* Memory of a VAE pass: blocks within one range, first fit.
 *
 * Not a stack like core/arena.h, because in a chain of layers the input dies under its output. The
 * pass runs once without launching anything to find the peak; the same order of calls then gives
 * the same addresses, so the peak is exact. */
#ifndef WD_WAN_VAE_POOL_H
#define WD_WAN_VAE_POOL_H

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

/* Over `capacity` bytes at `base`; NULL: addresses are made up, and peak is what counts. */
void wd_vae_pool_over(wd_vae_pool *pool, void *base, size_t capacity);

/* `bytes` aligned to 64. The capacity was planned: running over it is a bug of ours. */
void *wd_vae_pool_take(wd_vae_pool *pool, size_t bytes);
void wd_vae_pool_give(wd_vae_pool *pool, const void *block);

#endif
