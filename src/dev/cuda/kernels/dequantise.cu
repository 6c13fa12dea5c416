/* Quantised weights as floats: a thread has eight values that follow one another. */
#include "dev/codec/codec.h"
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/flat.cuh"

/* The scale of the value in that row and column. */
WD_DEVICE float scale_at(const wd_dequantise_args &a, int64_t row, int64_t column)
{
    const int64_t first = a.scale_rows > 1 ? row * a.scale_columns : 0;
    if (a.scale_columns == 1) return load_one(a.scale, a.scale_type, first);
    return load_one(a.scale, a.scale_type, first + column / (a.width / a.scale_columns));
}

WD_KERNEL(dequantise, wd_dequantise_args)
{
    const int64_t at = flat_first(), count = a.rows * a.width;
    if (at >= count) return;
    const int n = eight_below(at, count);
    int64_t row = at / a.width, column = at % a.width;
    float v[EIGHT];
    EACH_OF_EIGHT (i) {
        v[i] = 0;
        if (i < n) {
            v[i] = codec_value(a.from, a.from_type, at + i);
            if (a.scale) v[i] *= scale_at(a, row, column);
            if (a.rounded != WD_F32) v[i] = widened(narrowed(v[i], a.rounded), a.rounded);
        }
        if (++column == a.width) column = 0, row++;
    }
    store_eight(a.to, a.to_type, at, v, n);
}
