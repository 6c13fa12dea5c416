/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", 2011). A value is a pure function of (seed, stream, index, position). There is no
 * generator state, so a result does not depend on ranks, windows or the order of calls. */
#ifndef WD_CORE_RANDOM_H
#define WD_CORE_RANDOM_H

#include <stdint.h>

/* The purposes of random numbers. Each has a stream of its own, so that two purposes never share a
 * number. */
typedef enum wd_random_stream {
    WD_RANDOM_SAMPLE_NOISE = 1, /* initial latents of `sample` and `eval`; index = picture */
    WD_RANDOM_TRAJECTORY,       /* initial latents of a trajectory; index = its pair's number */
    WD_RANDOM_PROMPT,           /* the order of prompts; index = epoch */
    WD_RANDOM_SIGMA,            /* jitter of the sigma grids; index = trajectory serial number */
    WD_RANDOM_REPLAY,           /* which target a batch slot replays; index = sample number */
    WD_RANDOM_WEIGHT,           /* initial weights where no teacher gives one, and of tools */
    WD_RANDOM_ON_POLICY,        /* which trajectories are on-policy; index = their pair's number */
    WD_RANDOM_CHORD_POINT,      /* where on its chord a sample lies; index = sample number */
    WD_RANDOM_TEST,
    WD_RANDOM_STORED,       /* the order of stored targets, once all were drawn; index = epoch */
    WD_RANDOM_BLOCK_CHOICE, /* states by which blocks are chosen; index = state */
    WD_RANDOM_VALIDATION    /* which prompts are held out for validation; index 0 */
} wd_random_stream;

typedef struct wd_random {
    uint64_t seed;
    wd_random_stream stream;
    uint64_t index;
} wd_random;

/* The four words at `position` of the sequence. */
void wd_random_bits(uint32_t out[4], wd_random key, uint64_t position);

/* Uniform in [0, 1), 24 bits. */
float wd_random_uniform(wd_random key, uint64_t position);

/* Uniform in [0, bound), bound > 0; unbiased to 2^-32. */
uint64_t wd_random_below(wd_random key, uint64_t position, uint64_t bound);

/* out[i] = standard normal number first + i of the sequence (Box-Muller), i < count. */
void wd_random_normal(float *out, int64_t count, wd_random key, uint64_t first);

#endif
