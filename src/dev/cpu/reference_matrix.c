/* Matrix products, attention and convolution in plain C: see cpu/reference.h. A product is a loop
 * over its output; attention passes over its scores three times. */
#include <math.h>

#include "core/checked.h"
#include "dev/cpu/reference.h"

void wd_ref_matmul(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_matmul_args *a = args;
    for (int64_t i = 0; i < a->batch; i++)
        for (int64_t r = 0; r < a->m; r++)
            for (int64_t col = 0; col < a->n; col++) {
                double sum = a->bias ? wd__load(a->bias, a->bias_type, col) : 0;
                for (int64_t j = 0; j < a->k; j++) {
                    int64_t at_a = a->transpose_a ? j * a->lda + r : r * a->lda + j;
                    int64_t at_b = a->transpose_b ? col * a->ldb + j : j * a->ldb + col;
                    sum += (double)wd__load(a->a, a->a_type, i * a->stride_a + at_a) *
                           wd__load(a->b, a->b_type, i * a->stride_b + at_b);
                }
                int64_t at = i * a->stride_c + r * a->ldc + col;
                float value = wd_ref_act(a->act, (float)sum);
                if (a->beta != 0) value += a->beta * wd__load(a->c, a->c_type, at);
                wd__store(a->c, a->c_type, at, value);
            }
}

/* The logarithm of the number of keys that key s represents, which is added to its score. */
static double log_repeat(int64_t s, int64_t keys, int64_t last_key_repeat)
{
    return s + 1 == keys && last_key_repeat > 1 ? log((double)last_key_repeat) : 0;
}

/* Scores of one query with all keys: out[s] = scale q k[s] + bias[s] + mask[s] + the log of the
 * number of keys that key s represents; returns the log of the sum of their exponentials. */
static double scores(double *out, const wd_attention_args *a, int64_t b, int64_t n, int64_t l)
{
    int64_t kv = a->kv_samples == 1 ? 0 : b, at_q = (b * a->q_tokens + l) * a->q_stride;
    double most = -INFINITY, sum = 0;
    for (int64_t s = 0; s < a->kv_tokens; s++) {
        int64_t at_k = (kv * a->kv_tokens + s) * a->kv_stride;
        double dot = 0;
        for (int64_t i = n * a->head_dim; i < (n + 1) * a->head_dim; i++)
            dot += (double)wd__load(a->q, a->type, at_q + i) * wd__load(a->k, a->type, at_k + i);
        out[s] = a->scale * dot;
        if (a->bias) out[s] += a->bias[(n * a->q_tokens + l) * a->kv_tokens + s];
        if (a->mask) out[s] += a->mask[b * a->kv_tokens + s];
        out[s] += log_repeat(s, a->kv_tokens, a->last_key_repeat);
        most = fmax(most, out[s]);
    }
    for (int64_t s = 0; s < a->kv_tokens; s++) sum += exp(out[s] - most);
    return most + log(sum);
}

size_t wd_ref_attention_workspace(const void *args)
{
    return (size_t)((const wd_attention_args *)args)->kv_tokens * sizeof(double);
}

void wd_ref_attention(const void *args, wd_cpu_context *context)
{
    const wd_attention_args *a = args;
    double *p = context->workspace;
    for (int64_t b = 0; b < a->samples; b++)
        for (int64_t n = 0; n < a->heads; n++)
            for (int64_t l = 0; l < a->q_tokens; l++) {
                int64_t kv = a->kv_samples == 1 ? 0 : b;
                double lse = scores(p, a, b, n, l);
                if (a->lse) a->lse[(b * a->heads + n) * a->q_tokens + l] = (float)lse;
                for (int64_t s = 0; s < a->kv_tokens; s++) p[s] = exp(p[s] - lse);
                for (int64_t i = n * a->head_dim; i < (n + 1) * a->head_dim; i++) {
                    double sum = 0;
                    for (int64_t s = 0; s < a->kv_tokens; s++)
                        sum += p[s] *
                               wd__load(a->v, a->type, (kv * a->kv_tokens + s) * a->kv_stride + i);
                    wd__store(a->o, a->type, (b * a->q_tokens + l) * a->o_stride + i, (float)sum);
                }
            }
}

/* dk and dv of one head: [S, K] each. */
size_t wd_ref_attention_backward_workspace(const void *args)
{
    const wd_attention_backward_args *a = args;
    return (size_t)(2 * a->kv_tokens * a->head_dim) * sizeof(double);
}

/* Computes the part of one query: writes dq, adds to dk and dv [S, K].
 * p = exp(s - lse); dv += p do; dp = do v; ds = p (dp - do o) scale; dq = ds k; dk += ds q. */
static void query_backward(double *dk, double *dv, const wd_attention_backward_args *a, int64_t b,
                           int64_t n, int64_t l)
{
    int64_t width = a->head_dim, at_q = (b * a->q_tokens + l) * a->q_stride + n * width;
    int64_t at_o = (b * a->q_tokens + l) * a->o_stride + n * width;
    double lse = a->lse[(b * a->heads + n) * a->q_tokens + l], dot_o = 0;
    double dq[1024] = {0};
    for (int64_t i = 0; i < width; i++)
        dot_o += (double)wd__load(a->d_o, a->type, at_o + i) * wd__load(a->o, a->type, at_o + i);
    for (int64_t s = 0; s < a->kv_tokens; s++) {
        int64_t at_k = (b * a->kv_tokens + s) * a->kv_stride + n * width;
        double score = 0, dp = 0;
        for (int64_t i = 0; i < width; i++) {
            score += (double)wd__load(a->q, a->type, at_q + i) * wd__load(a->k, a->type, at_k + i);
            dp += (double)wd__load(a->d_o, a->type, at_o + i) * wd__load(a->v, a->type, at_k + i);
        }
        double more = log_repeat(s, a->kv_tokens, a->last_key_repeat);
        double p = exp(a->scale * score + more - lse), ds = p * (dp - dot_o) * a->scale;
        for (int64_t i = 0; i < width; i++) {
            dv[s * width + i] += p * wd__load(a->d_o, a->type, at_o + i);
            dk[s * width + i] += ds * wd__load(a->q, a->type, at_q + i);
            dq[i] += ds * wd__load(a->k, a->type, at_k + i);
        }
    }
    for (int64_t i = 0; i < width; i++) wd__store(a->dq, a->type, at_q + i, (float)dq[i]);
}

void wd_ref_attention_backward(const void *args, wd_cpu_context *context)
{
    const wd_attention_backward_args *a = args;
    int64_t width = a->head_dim;
    double *dk = context->workspace, *dv = dk + a->kv_tokens * width;
    for (int64_t b = 0; b < a->samples; b++)
        for (int64_t n = 0; n < a->heads; n++) {
            for (int64_t i = 0; i < a->kv_tokens * width; i++) dk[i] = dv[i] = 0;
            for (int64_t l = 0; l < a->q_tokens; l++) query_backward(dk, dv, a, b, n, l);
            for (int64_t s = 0; s < a->kv_tokens; s++)
                for (int64_t i = 0; i < width; i++) {
                    int64_t at = (b * a->kv_tokens + s) * a->kv_stride + n * width + i;
                    wd__store(a->dk, a->type, at, (float)dk[s * width + i]);
                    wd__store(a->dv, a->type, at, (float)dv[s * width + i]);
                }
        }
}

/* The output at one position (frame, row, column) of one sample, channel `co`. */
static double conv_at(const wd_conv_args *a, int64_t b, const int64_t at[3], int64_t co)
{
    double sum = a->bias ? wd__load(a->bias, a->w_type, co) : 0;
    for (int64_t t = a->tap0; t < a->tap1; t++)
        for (int64_t i = 0; i < a->kernel[1]; i++)
            for (int64_t j = 0; j < a->kernel[2]; j++) {
                int64_t f = at[0] * a->stride[0] - a->pad_before[0] + t - a->tap0;
                int64_t h = at[1] * a->stride[1] - a->pad_before[1] + i;
                int64_t w = at[2] * a->stride[2] - a->pad_before[2] + j;
                if (f < 0 || f >= a->in[0] || h < 0 || h >= a->in[1] || w < 0 || w >= a->in[2])
                    continue; /* padding */
                int64_t at_x = (((b * a->in[0] + f) * a->in[1] + h) * a->in[2] + w) * a->ci;
                for (int64_t c = 0; c < a->ci; c++) {
                    int64_t at_w = co * a->ci + c;
                    for (int d = 0; d < 3; d++)
                        at_w = at_w * a->kernel[d] + (d == 0 ? t : d == 1 ? i : j);
                    sum +=
                        (double)wd__load(a->x, a->type, at_x + c) * wd__load(a->w, a->w_type, at_w);
                }
            }
    return sum;
}

void wd_ref_conv(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_conv_args *a = args;
    int64_t at[3], written = 0;
    for (int64_t b = 0; b < a->samples; b++)
        for (at[0] = 0; at[0] < a->out[0]; at[0]++)
            for (at[1] = 0; at[1] < a->out[1]; at[1]++)
                for (at[2] = 0; at[2] < a->out[2]; at[2]++)
                    for (int64_t co = 0; co < a->co; co++)
                        wd__store(a->y, a->type, written++, (float)conv_at(a, b, at, co));
}
