/* What the norms have in common, forward and backward. */
#ifndef WD_DEV_CUDA_KERNELS_NORM_CUH
#define WD_DEV_CUDA_KERNELS_NORM_CUH

#include "dev/cuda/kernels/rows.cuh"
#include "dev/math.h"

struct row_stats {
    float mean, rstd; /* 1 / standard deviation */
};

/* Both by the 32 threads of a warp, each of which gets the result. */
WD_DEVICE row_stats row_mean_and_rstd(const row &x, int width, float eps)
{
    float mean = sum_of(width, [&](int i) { return row_one(x, i); }) / (float)width;
    float squares = sum_of(width, [&](int i) {
        float d = row_one(x, i) - mean;
        return d * d;
    });
    return row_stats{mean, 1.0f / sqrtf(squares / (float)width + eps)};
}

/* 1 / root of the mean square. */
WD_DEVICE float row_rms_factor(const row &x, int width, float eps)
{
    float squares = sum_of(width, [&](int i) { return row_one(x, i) * row_one(x, i); });
    return 1.0f / sqrtf(squares / (float)width + eps);
}

/* Turns the pairs of n elements from column `at` on (both even) by the angles of `token`; sign -1:
 * by their negatives. */
WD_DEVICE void rotate_eight(float v[EIGHT], const float *cos, const float *sin, int64_t token,
                            int at, int n, int head_dim, float sign)
{
    int half = head_dim / 2, turn = at % head_dim / 2;
    cos += token * half;
    sin += token * half;
    WD_UNROLL for (int i = 0; i < EIGHT; i += 2)
    {
        if (i >= n) break;
        float even = v[i], odd = v[i + 1], c = cos[turn], s = sign * sin[turn];
        v[i] = even * c - odd * s;
        v[i + 1] = even * s + odd * c;
        turn = turn + 1 == half ? 0 : turn + 1;
    }
}

#endif
