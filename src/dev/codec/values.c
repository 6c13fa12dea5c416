/* Weights as floats: see dev/codec/values.h. */
#include "dev/codec/values.h"

#include "core/error.h"
#include "dev/codec/codec.h"
#include "dev/ops.h"

static float scale_of(const wd_tensor *t, int64_t at)
{
    const wd_scales *s = &t->scales;
    const int64_t width = wd_tensor_count(t) / t->dim[0], row = s->rows > 1 ? at / width : 0;
    const int64_t column = at % width / (width / s->columns);
    return wd_float_at(s->data, s->dtype, row * s->columns + column);
}

void wd_tensor_values(float *out, const wd_tensor *t, int64_t at, int64_t count)
{
    const bool quantised = wd_dtype_is_quantised(t->dtype);
    for (int64_t i = 0; i < count; i++) {
        if (!quantised) {
            out[i] = wd_float_at(t->data, t->dtype, at + i);
            continue;
        }
        out[i] = codec_value(t->data, t->dtype, at + i);
        if (t->scales.data) out[i] *= scale_of(t, at + i);
    }
}

void wd_tensor_dequantise(wd_queue *queue, void *to, wd_dtype dtype, wd_dtype rounded,
                          const wd_tensor *t)
{
    const int64_t count = wd_tensor_count(t), block = wd_dtype_block(t->dtype);
    int64_t rows = t->ndim && t->dim[0] ? t->dim[0] : 1;
    WD_REQUIRE(!t->scales.data || block == 1, "weights in blocks have scales");
    /* the file's rows differ from this shape's, and a block may lie in two of these */
    if (count / rows % block) rows = count / block;
    wd_op_dequantise(queue, &(wd_dequantise_args){.to = to,
                                                  .from = t->data,
                                                  .scale = t->scales.data,
                                                  .to_type = dtype,
                                                  .from_type = t->dtype,
                                                  .scale_type = t->scales.dtype,
                                                  .rounded = rounded,
                                                  .rows = rows,
                                                  .width = count / rows,
                                                  .scale_rows = t->scales.rows,
                                                  .scale_columns = t->scales.columns});
}
