/* What the norms have in common, forward and backward. */
#ifndef WD_DEV_CUDA_KERNELS_NORM_CUH
#define WD_DEV_CUDA_KERNELS_NORM_CUH

#include "dev/cuda/kernels/rows.cuh"
#include "dev/math.h"

struct row_stats {
    float mean, rstd; /* 1 / standard deviation */
};

/* Both by the 32 threads of a warp, each of which gets the result; x(i): element i. */
template <class One> WD_DEVICE row_stats row_mean_and_rstd(One x, int width, float eps)
{
    float mean = sum_of(width, x) / (float)width;
    float squares = sum_of(width, [&](int i) {
        float d = x(i) - mean;
        return d * d;
    });
    return row_stats{mean, 1.0f / sqrtf(squares / (float)width + eps)};
}

template <class One> WD_DEVICE float row_squares(One x, int width)
{
    return sum_of(width, [&](int i) { return x(i) * x(i); });
}

/* 1 / root of the mean square. */
template <class One> WD_DEVICE float row_rms_factor(One x, int width, float eps)
{
    return 1.0f / sqrtf(row_squares(x, width) / (float)width + eps);
}

/* Cosine and sine of the angles of four pairs. */
struct turns {
    float cos[EIGHT / 2], sin[EIGHT / 2];
};

/* Of n elements from column `at` on (both even) for `token`; zeros beyond n. */
WD_DEVICE turns turns_of(const float *cos, const float *sin, int64_t token, int at, int n,
                         int head_dim)
{
    turns t = {{0}, {0}};
    const int half = head_dim / 2;
    int turn = at % head_dim / 2;
    cos += token * half;
    sin += token * half;
    if (n == EIGHT && turn + EIGHT / 2 <= half && is_aligned(cos + turn) &&
        is_aligned(sin + turn)) {
        const wd_sixteen c = *(const wd_sixteen *)(cos + turn);
        const wd_sixteen s = *(const wd_sixteen *)(sin + turn);
        t.cos[0] = float_of(c.x), t.cos[1] = float_of(c.y);
        t.cos[2] = float_of(c.z), t.cos[3] = float_of(c.w);
        t.sin[0] = float_of(s.x), t.sin[1] = float_of(s.y);
        t.sin[2] = float_of(s.z), t.sin[3] = float_of(s.w);
        return t;
    }
    WD_UNROLL for (int i = 0; i < EIGHT / 2; i++)
    {
        if (2 * i >= n) break;
        t.cos[i] = cos[turn];
        t.sin[i] = sin[turn];
        turn = turn + 1 == half ? 0 : turn + 1;
    }
    return t;
}

/* Turns the pairs by the angles; sign -1: by their negatives. */
WD_DEVICE void rotate_eight(float v[EIGHT], const turns &t, float sign)
{
    WD_UNROLL for (int i = 0; i < EIGHT / 2; i++)
    {
        float even = v[2 * i], odd = v[2 * i + 1], c = t.cos[i], s = sign * t.sin[i];
        v[2 * i] = even * c - odd * s;
        v[2 * i + 1] = even * s + odd * c;
    }
}

#endif
