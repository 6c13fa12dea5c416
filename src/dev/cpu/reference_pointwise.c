/* Elementwise operations, copies and conversions in plain C: see cpu/reference.h. */
#include <assert.h>
#include <math.h>

#include "dev/codec/codec.h"
#include "dev/cpu/reference.h"

/* gelu(x) = x / 2 (1 + tanh(u)) = x sigmoid(2 u), u = c (x + k x^3), c = sqrt(2 / pi). The second
 * form does not cancel where x is negative. */
static const double gelu_c = 0.7978845608028654, gelu_k = 0.044715;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

float wd_ref_act(wd_act act, float x)
{
    double v = x;
    switch (act) {
    case WD_ACT_GELU_TANH:
        return (float)(v * sigmoid(2 * gelu_c * (v + gelu_k * v * v * v)));
    case WD_ACT_SILU:
        return (float)(v * sigmoid(v));
    case WD_ACT_NONE:
        break;
    }
    return x;
}

/* act'(x): d/dx x sigmoid(f(x)) = s + x s (1 - s) f'(x); the second term vanishes where s is 0
 * or 1. */
static float act_derivative(wd_act act, float x)
{
    double v = x, s = 1, slope = 0;
    switch (act) {
    case WD_ACT_GELU_TANH:
        s = sigmoid(2 * gelu_c * (v + gelu_k * v * v * v));
        slope = 2 * gelu_c * (1 + 3 * gelu_k * v * v);
        break;
    case WD_ACT_SILU:
        s = sigmoid(v);
        slope = 1;
        break;
    case WD_ACT_NONE:
        break;
    }
    return (float)(s > 0 && s < 1 ? s + v * s * (1 - s) * slope : s);
}

/* transformers' NewGELUActivation on tensors of `type`, one tensor operation after the other. */
static float gelu_new(wd_dtype type, float x)
{
    float cube = wd__round_to(type, wd__round_to(type, x * x) * x);
    float inner = wd__round_to(type, x + wd__round_to(type, (float)gelu_k * cube));
    float t = wd__round_to(type, tanhf(wd__round_to(type, (float)gelu_c * inner)));
    return wd__round_to(type, 0.5f * x) * wd__round_to(type, 1 + t);
}

void wd_ref_activation(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_activation_args *a = args;
    assert(!a->round_steps || a->act == WD_ACT_GELU_TANH);
    for (int64_t i = 0; i < a->count; i++) {
        float x = wd__load(a->x, a->type, i);
        wd__store(a->y, a->type, i, a->round_steps ? gelu_new(a->type, x) : wd_ref_act(a->act, x));
    }
}

void wd_ref_activation_backward(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_activation_backward_args *a = args;
    for (int64_t i = 0; i < a->count; i++)
        wd__store(a->dx, a->type, i,
                  wd__load(a->dy, a->type, i) * act_derivative(a->act, wd__load(a->x, a->type, i)));
}

void wd_ref_multiply(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_multiply_args *a = args;
    for (int64_t i = 0; i < a->count; i++)
        wd__store(a->y, a->type, i, wd__load(a->a, a->type, i) * wd__load(a->b, a->type, i));
}

void wd_ref_add_table(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_add_table_args *a = args;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->width + i] = a->table[i] + wd__load(a->x, a->type, r * a->x_stride + i);
}

void wd_ref_timestep_embed(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_timestep_embed_args *a = args;
    int64_t half = a->width / 2;
    assert(a->width == 2 * half);
    for (int64_t b = 0; b < a->samples; b++)
        for (int64_t i = 0; i < half; i++) {
            float angle = a->t[b] * expf(-9.210340371976184f * (float)i / (float)half);
            a->y[b * a->width + i] = cosf(angle);
            a->y[b * a->width + half + i] = sinf(angle);
        }
}

void wd_ref_strided_copy(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_strided_copy_args *a = args;
    int64_t index[6] = {0}, count = 1;
    for (int d = 0; d < a->ndim; d++) count *= a->dim[d];
    for (int64_t done = 0; done < count; done++) {
        int64_t at_to = 0, at_from = 0;
        for (int d = 0; d < a->ndim; d++) {
            at_to += index[d] * a->to_stride[d];
            at_from += index[d] * a->from_stride[d];
        }
        float value = a->alpha * wd__load(a->from, a->from_type, at_from);
        if (a->beta != 0) value += a->beta * wd__load(a->to, a->to_type, at_to);
        wd__store(a->to, a->to_type, at_to, value);
        for (int d = a->ndim - 1; d >= 0 && ++index[d] == a->dim[d]; d--) index[d] = 0;
    }
}

void wd_ref_gather_rows(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_gather_rows_args *a = args;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t from = a->index[r];
        assert(from >= -1 && from < a->table_rows);
        for (int64_t i = 0; i < a->width; i++)
            wd__store(a->to, a->to_type, r * a->width + i,
                      from < 0 ? 0 : wd__load(a->from, a->from_type, from * a->width + i));
    }
}

void wd_ref_cast(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_cast_args *a = args;
    for (int64_t i = 0; i < a->count; i++)
        wd__store(a->to, a->to_type, i, wd__load(a->from, a->from_type, i));
}

void wd_ref_dequantise(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_dequantise_args *a = args;
    for (int64_t i = 0; i < a->rows * a->width; i++) {
        float value = codec_value(a->from, a->from_type, i);
        if (a->scale) {
            const int64_t row = a->scale_rows > 1 ? i / a->width : 0;
            const int64_t column = i % a->width / (a->width / a->scale_columns);
            value *= wd__load(a->scale, a->scale_type, row * a->scale_columns + column);
        }
        uint32_t rounded;
        wd__store(&rounded, a->rounded, 0, value);
        wd__store(a->to, a->to_type, i, wd__load(&rounded, a->rounded, 0));
    }
}

void wd_ref_fill(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_fill_args *a = args;
    for (int64_t i = 0; i < a->count; i++) wd__store(a->to, a->type, i, a->value);
}

void wd_ref_combine(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_combine_args *a = args;
    for (int64_t i = 0; i < a->count; i++) {
        float sum = a->factor[0] * a->x[0][i];
        for (int term = 1; term < a->terms; term++) sum += a->factor[term] * a->x[term][i];
        a->y[i] = a->round_bf16 ? wd__round_to(WD_BF16, sum) : sum;
    }
}

void wd_ref_guidance(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_guidance_args *a = args;
    for (int64_t b = 0; b < a->samples; b++)
        for (int64_t i = b * a->width; i < (b + 1) * a->width; i++) {
            float c = wd__load(a->c, a->type, i);
            if (!a->u) {
                a->v[i] = c;
                continue;
            }
            float u = wd__load(a->u, a->type, i), d = wd__round_to(a->type, c - u);
            a->v[i] = wd__round_to(a->type, u + wd__round_to(a->type, a->scale[b] * d));
        }
}

void wd_ref_step_samples(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_step_samples_args *a = args;
    for (int64_t b = 0; b < a->samples; b++)
        for (int64_t i = b * a->width; i < (b + 1) * a->width; i++) a->x[i] += a->dt[b] * a->v[i];
}
