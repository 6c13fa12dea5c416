/* Copies that change layout or dtype: casts, strided copies, gathered rows, constants. */
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/flat.cuh"
#include "dev/cuda/kernels/rows.cuh"

WD_KERNEL(cast, wd_cast_args)
{
    flat f = flat_of(a.count, a.from_type == WD_F32 ? WD_F32 : a.to_type);
    if (flat_is_empty(f)) return;
    float v[EIGHT];
    flat_load(v, a.from, a.from_type, f);
    flat_store(a.to, a.to_type, f, v);
}

WD_KERNEL(fill, wd_fill_args)
{
    flat f = flat_of(a.count, a.type);
    if (flat_is_empty(f)) return;
    float v[EIGHT];
    EACH_OF_EIGHT (i) v[i] = a.value;
    flat_store(a.to, a.type, f, v);
}

/* An index out of range, a mistake of the caller, gives a row of NaN. */
WD_KERNEL(gather_rows, wd_gather_rows_args)
{
    int64_t r = row_index();
    int width = (int)a.width;
    if (r >= a.rows) return;
    int64_t from = a.index[r];
    for (int at = row_first(); at < width; at += row_step()) {
        int n = eight_below(at, width);
        float v[EIGHT];
        if (from >= 0 && from < a.table_rows) {
            load_eight(v, a.from, a.from_type, from * width + at, n);
        } else {
            float value = from == -1 ? 0 : float_of(0x7fc00000u);
            EACH_OF_EIGHT (i) v[i] = value;
        }
        store_eight(a.to, a.to_type, r * width + at, v, n);
    }
}

/* ---- strided copy: a thread has eight elements of a run along the walk's inner dimension ---- */

/* Adds the offsets of index vector number `n` of `count` dimensions. */
WD_DEVICE void add_offsets(int64_t *to, int64_t *from, const wd_stride *d, int count, uint32_t n)
{
    for (int i = count - 1; i >= 0; i--) {
        uint32_t size = (uint32_t)d[i].count, at = n % size;
        n /= size;
        *to += at * d[i].to;
        *from += at * d[i].from;
    }
}

WD_DEVICE void load_strided(float v[EIGHT], const void *data, wd_dtype type, int64_t at,
                            int64_t stride, int n)
{
    if (stride == 1)
        load_eight(v, data, type, at, n);
    else
        EACH_OF_EIGHT (i) v[i] = i < n ? load_one(data, type, at + i * stride) : 0;
}

WD_KERNEL(strided_copy, wd_cuda_strided_copy)
{
    uint32_t number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= a.threads) return;
    const wd_stride inner = a.walk.inner;
    int64_t first = (int64_t)(number % a.eights) * EIGHT;
    int64_t to = first * inner.to, from = first * inner.from;
    int n = eight_below(first, inner.count);
    add_offsets(&to, &from, a.walk.outer, a.walk.outers, number / a.eights);
    float y[EIGHT], x[EIGHT];
    if (a.beta != 0) load_strided(y, a.to, a.to_type, to, inner.to, n);
    for (uint32_t repeat = 0; repeat < (uint32_t)a.walk.repeat_count; repeat++) {
        int64_t nowhere = 0, at = from;
        add_offsets(&nowhere, &at, a.walk.repeat, a.walk.repeats, repeat);
        load_strided(x, a.from, a.from_type, at, inner.from, n);
        EACH_OF_EIGHT (i) {
            x[i] = a.alpha * x[i];
            y[i] = a.beta != 0 ? x[i] + a.beta * y[i] : x[i];
            if (a.to_type != WD_F32) y[i] = widened(narrowed(y[i], a.to_type), a.to_type);
        }
    }
    if (inner.to == 1) {
        store_eight(a.to, a.to_type, to, y, n);
    } else {
        EACH_OF_EIGHT (i)
            if (i < n) store_one(a.to, a.to_type, to + i * inner.to, y[i]);
    }
}
