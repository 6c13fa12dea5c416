/* Sums, loss and optimiser, with sums in the order of dev/sum_order.h: a warp sums a run, a block
 * the runs of a chunk, one thread the chunks. The bits are those of dev/cpu/isa/train.c. */
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/columns.cuh"
#include "dev/cuda/kernels/flat.cuh"
#include "dev/cuda/kernels/rows.cuh"
#include "dev/math.h"

/* ---- a bias' gradient ---- */

WD_COLUMNS_KERNEL(sum_rows_columns, wd_cuda_sum_rows)
{
    const wd_sum_rows_args &op = a.op;
    int64_t stride = op.x_stride ? op.x_stride : op.width;
    columns c = columns_of(op.rows, op.width);
    if (c.n <= 0) return;
    float sums[EIGHT] = {0};
    const column_of arrays[] = {{op.x, op.type, stride}};
    each_row(c, arrays, nothing_of_row, [&](int64_t, float x[1][EIGHT], nothing) {
        EACH_OF_EIGHT (i) sums[i] += x[0][i];
    });
    columns_store(a.sums, c, 1, 0, op.width, sums);
}

/* ---- chunks ---- */

enum { RUNS = WD_SUM_CHUNK / SUM_RUN };

/* By a block: sum = the sum over i in [first, last), at most WD_SUM_CHUNK elements, of term(i). */
template <class Term> WD_DEVICE void sum_chunk(double *sum, int64_t first, int64_t last, Term term)
{
    float *runs = (float *)wd_shared(); /* [RUNS] */
    int warps = (int)blockDim.x / WD_WARP;
    for (int run = (int)threadIdx.x / WD_WARP; run < RUNS; run += warps) {
        int64_t begin = first + run * SUM_RUN;
        if (begin >= last) break;
        int n = last - begin < SUM_RUN ? (int)(last - begin) : SUM_RUN;
        float squares = sum_of(n, [&](int i) { return term(begin + i); });
        if (threadIdx.x % WD_WARP == 0) runs[run] = squares;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    double total = 0;
    for (int64_t begin = first; begin < last; begin += SUM_RUN)
        total += runs[(begin - first) / SUM_RUN];
    *sum = total;
}

WD_DEVICE int64_t chunk_end(int64_t first, int64_t count)
{
    return count - first < WD_SUM_CHUNK ? count : first + WD_SUM_CHUNK;
}

WD_KERNEL(squares_chunks, wd_cuda_squares)
{
    int64_t first = (int64_t)blockIdx.x * WD_SUM_CHUNK;
    sum_chunk(a.sums + blockIdx.x, first, chunk_end(first, a.count), [&](int64_t i) {
        const float x = load_one(a.x, a.type, i);
        return x * x;
    });
}

/* One block: all threads bring sums into shared memory, and one adds them, for their order is
 * fixed. Zeros behind the last of them change nothing. */
WD_KERNEL(squares_finish, wd_cuda_squares_finish)
{
    double *sums = (double *)wd_shared(), mine[SUMS_OF_THREAD], total = 0;
    const int threads = (int)blockDim.x, thread = (int)threadIdx.x;
    for (int64_t first = 0; first < a.chunks; first += threads * SUMS_OF_THREAD) {
        WD_UNROLL for (int i = 0; i < SUMS_OF_THREAD; i++)
        {
            const int64_t at = first + i * threads + thread;
            mine[i] = at < a.chunks ? a.sums[at] : 0;
        }
        WD_UNROLL for (int i = 0; i < SUMS_OF_THREAD; i++) sums[i * threads + thread] = mine[i];
        __syncthreads();
        const int64_t left = a.chunks - first;
        for (int i = 0; thread == 0 && i < threads && i * SUMS_OF_THREAD < left; i++)
            WD_UNROLL for (int k = 0; k < SUMS_OF_THREAD; k++) total +=
                sums[i * SUMS_OF_THREAD + k];
        __syncthreads();
    }
    if (thread == 0) *a.sum = (float)total;
}

/* ---- loss: the grid's second dimension is the sample ---- */

WD_KERNEL(mse_chunks, wd_cuda_mse)
{
    const wd_mse_args &op = a.op;
    int64_t sample = blockIdx.y, first = (int64_t)blockIdx.x * WD_SUM_CHUNK;
    int64_t at = sample * op.width;
    float slope = 2.0f * op.factor / (float)op.width;
    if (op.weight) slope *= op.weight[sample];
    sum_chunk(a.sums + sample * sum_chunks(op.width) + blockIdx.x, first,
              chunk_end(first, op.width), [&](int64_t i) {
                  float off = load_one(op.y, op.type, at + i) - op.target[at + i];
                  if (op.dy) store_one(op.dy, op.type, at + i, slope * off);
                  return off * off;
              });
}

WD_KERNEL(mse_finish, wd_cuda_mse)
{
    int64_t sample = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (sample >= a.op.samples) return;
    int64_t chunks = sum_chunks(a.op.width);
    double total = 0;
    for (int64_t i = 0; i < chunks; i++) total += a.sums[sample * chunks + i];
    a.op.loss[sample] = (float)(total / (double)a.op.width);
}

/* ---- optimiser ---- */

WD_KERNEL(clip_factor, wd_clip_factor_args)
{
    if (threadIdx.x > 0) return;
    float norm = sqrtf(a.sum[0]), factor = 1;
    bool finite = (bits_of(norm) & 0x7fffffffu) < 0x7f800000u;
    if (a.norm_max > 0) factor = fminf(1, a.norm_max / (norm + 1e-6f));
    *a.norm = norm;
    *a.factor = finite ? factor : 0;
    *a.steps += finite;
}

/* Master weights (dev/convert.h) of a thread, which are merged from a copy and remainders. */
WD_DEVICE void flat_load_masters(float v[EIGHT], const void *copy, const uint16_t *remainder,
                                 const flat &f)
{
    const eight upper = flat_fetch(copy, WD_BF16, f), lower = flat_fetch(remainder, WD_BF16, f);
    EACH_OF_EIGHT (i) {
        const int shift = i % 2 * 16;
        v[i] = master_of((uint16_t)(upper.word[i / 2] >> shift),
                         (uint16_t)(lower.word[i / 2] >> shift));
    }
}

/* Of settled ones. */
WD_DEVICE void flat_store_remainders(uint16_t *remainder, const flat &f, const float v[EIGHT])
{
    eight e = {{0}};
    EACH_OF_EIGHT (i) e.word[i / 2] |= (uint32_t)master_remainder(v[i]) << i % 2 * 16;
    flat_put(remainder, WD_BF16, f, e);
}

/* The grid's second dimension is the row. */
WD_KERNEL(masters, wd_masters_args)
{
    const flat f = flat_of(a.count, WD_F32);
    if (flat_is_empty(f)) return;
    const int64_t row = blockIdx.y, at = row * a.stride;
    float *values = a.values + row * a.values_stride;
    float v[EIGHT];
    if (a.split) {
        flat_load(v, values, WD_F32, f);
        EACH_OF_EIGHT (i) v[i] = master_settled(v[i]);
    } else {
        flat_load_masters(v, a.copy + at, a.remainder + at, f);
    }
    flat_store(values, WD_F32, f, v);
    if (!a.split || !a.copy) return;
    flat_store(a.copy + at, WD_BF16, f, v);
    flat_store_remainders(a.remainder + at, f, v);
}

/* One thread finds what all elements have in common. */
WD_KERNEL(adamw_scalars, wd_cuda_adamw)
{
    if (threadIdx.x == 0) *a.scalars = adamw_scalars_of(&a.op);
}

WD_KERNEL(adamw, wd_cuda_adamw)
{
    const wd_adamw_args &op = a.op;
    flat f = flat_of(op.count, WD_F32);
    if (flat_is_empty(f) || op.factor[0] == 0) return;
    const adamw_scalars by = *a.scalars;
    float p[EIGHT], m[EIGHT], v[EIGHT], g[EIGHT], move[EIGHT];
    if (op.p)
        flat_load(p, op.p, WD_F32, f);
    else
        flat_load_masters(p, op.copy, op.remainder, f);
    flat_load(m, op.m, WD_F32, f);
    flat_load(v, op.v, WD_F32, f);
    flat_load(g, op.grad, op.grad_type, f);
    EACH_OF_EIGHT (i) {
        g[i] = by.grad_factor * g[i];
        m[i] = op.beta1 * m[i] + by.m_new * g[i];
        v[i] = op.beta2 * v[i] + by.v_new * (g[i] * g[i]);
        move[i] = by.rate * m[i];
    }
    if (op.slow) {
        float slow[EIGHT];
        flat_load(slow, op.slow, WD_F32, f);
        EACH_OF_EIGHT (i) {
            slow[i] = by.slow_keep * slow[i] + by.slow_new * g[i];
            move[i] = cautious(move[i] + by.slow_rate * slow[i], g[i]);
        }
        flat_store(op.slow, WD_F32, f, slow);
    }
    EACH_OF_EIGHT (i) p[i] = p[i] * by.keep - move[i] / (sqrtf(v[i]) * by.correction + op.eps);
    if (op.copy && op.copy_type == WD_BF16)
        EACH_OF_EIGHT (i) p[i] = master_settled(p[i]);
    flat_store(op.m, WD_F32, f, m);
    flat_store(op.v, WD_F32, f, v);
    if (op.p)
        flat_store(op.p, WD_F32, f, p);
    else
        flat_store_remainders(op.remainder, f, p);
    if (op.copy) flat_store(op.copy, op.copy_type, f, p);
    if (!op.ema) return;
    flat_load(v, op.ema, WD_F32, f);
    EACH_OF_EIGHT (i) v[i] += by.ema_new * (p[i] - v[i]);
    flat_store(op.ema, WD_F32, f, v);
}

WD_KERNEL(ema, wd_ema_args)
{
    flat f = flat_of(a.count, WD_F32);
    if (flat_is_empty(f) || a.factor[0] == 0) return;
    const float share = ema_share(a.ema_decay, a.step[0]);
    float p[EIGHT], ema[EIGHT];
    if (a.p)
        flat_load(p, a.p, WD_F32, f);
    else
        flat_load_masters(p, a.copy, a.remainder, f);
    flat_load(ema, a.ema, WD_F32, f);
    EACH_OF_EIGHT (i) ema[i] += share * (p[i] - ema[i]);
    flat_store(a.ema, WD_F32, f, ema);
}

/* ---- moments in 8 bits: a warp has a group, a thread one of its elements ---- */

static_assert((int)WD_MOMENT_GROUP == (int)WD_WARP, "a warp has a group");

/* The largest of the bits that a warp's threads have. */
WD_DEVICE uint32_t most_bits(uint32_t bits)
{
    WD_UNROLL for (int lane_distance = WD_WARP / 2; lane_distance > 0; lane_distance /= 2)
    {
        const uint32_t other = bits_of(__shfl_xor_sync(WD_WARP_ALL, float_of(bits), lane_distance));
        bits = other > bits ? other : bits;
    }
    return bits;
}

WD_DEVICE float unpacked(const wd_moments8 &from, wd_moment moment, int64_t at)
{
    const float scale = moment_scale_value(from.scales[at / WD_MOMENT_GROUP]);
    return moment == WD_MOMENT_FIRST ? first_moment(((const int8_t *)from.codes)[at], scale)
                                     : second_moment(((const uint8_t *)from.codes)[at], scale);
}

/* Packs the warp's values x, 0 where `at` is beyond the array. Reached by all threads. */
WD_DEVICE void pack(const wd_moments8 &to, wd_moment moment, int64_t at, int64_t count, float x,
                    uint32_t dither, uint32_t scale_dither)
{
    const bool first = moment == WD_MOMENT_FIRST;
    const float value = first ? x : sqrtf(x);
    const uint32_t bits = most_bits(moment_bits(value));
    const float most = moment_most(bits);
    if (at >= count) return;
    const int32_t code = !(most > 0) ? 0
                         : first     ? first_moment_code(value, most, moment_share_first(dither))
                                     : second_moment_code(value, most, moment_share_second(dither));
    ((uint8_t *)to.codes)[at] = (uint8_t)code;
    if (at % WD_MOMENT_GROUP == 0)
        to.scales[at / WD_MOMENT_GROUP] =
            moment_scale(bits, first ? scale_dither >> 16 : scale_dither & 0xffffu);
}

WD_DEVICE int64_t element_of_thread(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

WD_KERNEL(moments, wd_moments_args)
{
    const int64_t at = element_of_thread();
    const bool inside = at < a.count;
    if (a.pack)
        pack(a.codes, a.moment, at, a.count, inside ? a.values[at] : 0, WD_MOMENT_NEAREST,
             WD_MOMENT_NEAREST);
    else if (inside)
        a.values[at] = unpacked(a.codes, a.moment, at);
}

WD_KERNEL(adamw_packed, wd_cuda_adamw)
{
    const wd_adamw_args &op = a.op;
    const int64_t at = element_of_thread();
    if (op.factor[0] == 0) return;
    const adamw_scalars by = *a.scalars;
    float m = 0, v = 0;
    uint32_t dither = 0;
    if (at < op.count) {
        const float grad = load_one(op.grad, op.grad_type, at), g = by.grad_factor * grad;
        dither = moment_dither(by.seed, grad);
        m = op.beta1 * unpacked(op.m8, WD_MOMENT_FIRST, at) + by.m_new * g;
        v = op.beta2 * unpacked(op.v8, WD_MOMENT_SECOND, at) + by.v_new * (g * g);
        uint16_t *copy = (uint16_t *)op.copy;
        float p = op.p ? op.p[at] : master_of(copy[at], op.remainder[at]);
        p = p * by.keep - by.rate * m / (sqrtf(v) * by.correction + op.eps);
        if (copy && op.copy_type == WD_BF16) p = master_settled(p);
        if (op.p)
            op.p[at] = p;
        else
            op.remainder[at] = master_remainder(p);
        if (op.copy) store_one(op.copy, op.copy_type, at, p);
        if (op.ema) op.ema[at] += by.ema_new * (p - op.ema[at]);
    }
    const uint32_t first = bits_of(__shfl_sync(WD_WARP_ALL, float_of(dither), 0));
    pack(op.m8, WD_MOMENT_FIRST, at, op.count, m, dither, moment_scale_dither(first));
    pack(op.v8, WD_MOMENT_SECOND, at, op.count, v, dither, moment_scale_dither(first));
}
