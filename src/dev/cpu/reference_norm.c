/* Norms and residuals, forward and backward, in plain C: see cpu/reference.h. */
#include <math.h>

#include "dev/cpu/reference.h"

/* Mean and 1 / standard deviation of row `r`. */
static void layernorm_stats(double *mean, double *rstd, const void *x, wd_dtype type, int64_t r,
                            int64_t width, float eps)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; i++) sum += wd__load(x, type, r * width + i);
    *mean = sum / (double)width;
    for (int64_t i = 0; i < width; i++) {
        double d = wd__load(x, type, r * width + i) - *mean;
        squares += d * d;
    }
    *rstd = 1 / sqrt(squares / (double)width + eps);
}

void wd_ref_layernorm(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_layernorm_args *a = args;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t at = r / a->rows_per_sample * a->sample_stride;
        double mean, rstd;
        layernorm_stats(&mean, &rstd, a->x, a->type, r, a->width, a->eps);
        for (int64_t i = 0; i < a->width; i++) {
            double y = (wd__load(a->x, a->type, r * a->width + i) - mean) * rstd;
            if (a->scale) y = y * (a->scale_one + a->scale[at + i]);
            if (a->shift) y = y + a->shift[at + i];
            wd__store(a->y, a->type, r * a->width + i, (float)y);
        }
    }
}

/* With n = (x - mean) rstd and g = dy (scale_one + scale):
 * dx += rstd (g - mean(g) - n mean(g n)); dscale gets dy n, dshift gets dy. */
void wd_ref_layernorm_backward(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_layernorm_backward_args *a = args;
    int64_t width = a->width;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t at = r / a->rows_per_sample * a->sample_stride;
        bool first = a->sample_stride > 0 && r % a->rows_per_sample == 0;
        double mean, rstd, sum_g = 0, sum_gn = 0;
        layernorm_stats(&mean, &rstd, a->x, a->type, r, width, a->eps);
        for (int64_t i = 0; i < width; i++) {
            double n = (wd__load(a->x, a->type, r * width + i) - mean) * rstd;
            double dy = wd__load(a->dy, a->type, r * width + i);
            double g = a->scale ? dy * (a->scale_one + a->scale[at + i]) : dy;
            sum_g += g;
            sum_gn += g * n;
            if (a->dscale) a->dscale[at + i] = (float)((first ? 0 : a->dscale[at + i]) + dy * n);
            if (a->dshift) a->dshift[at + i] = (float)((first ? 0 : a->dshift[at + i]) + dy);
        }
        for (int64_t i = 0; i < width; i++) {
            double n = (wd__load(a->x, a->type, r * width + i) - mean) * rstd;
            double dy = wd__load(a->dy, a->type, r * width + i);
            double g = a->scale ? dy * (a->scale_one + a->scale[at + i]) : dy;
            double dx = rstd * (g - sum_g / (double)width - n * sum_gn / (double)width);
            dx += wd__load(a->dx, a->type, r * width + i);
            wd__store(a->dx, a->type, r * width + i, (float)dx);
        }
    }
}

/* 1 / sqrt(mean(x^2) + eps) of the row that starts at element `at`. */
static double rms_factor(const void *x, wd_dtype type, int64_t at, int64_t width, float eps)
{
    double squares = 0;
    for (int64_t i = 0; i < width; i++) {
        double v = wd__load(x, type, at + i);
        squares += v * v;
    }
    return 1 / sqrt(squares / (double)width + eps);
}

void wd_ref_rmsnorm(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_rmsnorm_args *a = args;
    int64_t width = a->width, half = a->head_dim / 2;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t at_x = r * (a->x_stride ? a->x_stride : width);
        int64_t at_y = r * (a->y_stride ? a->y_stride : width);
        float factor = (float)rms_factor(a->x, a->type, at_x, width, a->eps);
        for (int64_t i = 0; i < width; i++) {
            float n = wd__load(a->x, a->type, at_x + i) * factor;
            if (a->round_first) n = wd__round_to(a->type, n);
            wd__store(a->y, a->type, at_y + i, n * wd__load(a->w, a->w_type, i));
        }
        if (!a->cos) continue;
        for (int64_t i = 0; i < width; i += 2) {
            int64_t at = at_y + i, turn = r % a->tokens * half + i % a->head_dim / 2;
            float even = wd__load(a->y, a->type, at), odd = wd__load(a->y, a->type, at + 1);
            float c = a->cos[turn], s = a->sin[turn];
            wd__store(a->y, a->type, at, even * c - odd * s);
            wd__store(a->y, a->type, at + 1, even * s + odd * c);
        }
    }
}

/* Where row `r` of dy and dx starts. */
static int64_t at_dy(const wd_rmsnorm_backward_args *a, int64_t r)
{
    return r * (a->dy_stride ? a->dy_stride : a->width);
}

/* The gradient before the rotation (which is orthogonal: turn back) of element `i` in row `r`. */
static double unrotated(const wd_rmsnorm_backward_args *a, int64_t r, int64_t i)
{
    int64_t at = at_dy(a, r) + i, pair = at_dy(a, r) + i / 2 * 2;
    if (!a->cos) return wd__load(a->dy, a->type, at);
    int64_t turn = r % a->tokens * (a->head_dim / 2) + i % a->head_dim / 2;
    double even = wd__load(a->dy, a->type, pair), odd = wd__load(a->dy, a->type, pair + 1);
    double c = a->cos[turn], s = a->sin[turn];
    return i % 2 ? odd * c - even * s : even * c + odd * s;
}

/* With n = x factor and g = dy w: dx = factor (g - n mean(g n)), dw += dy n. */
void wd_ref_rmsnorm_backward(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_rmsnorm_backward_args *a = args;
    int64_t width = a->width;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t at_x = r * (a->x_stride ? a->x_stride : width);
        double factor = rms_factor(a->x, a->type, at_x, width, a->eps), sum = 0;
        for (int64_t i = 0; i < width; i++) {
            double n = wd__load(a->x, a->type, at_x + i) * factor, dy = unrotated(a, r, i);
            sum += dy * wd__load(a->w, a->w_type, i) * n;
            a->dw[i] = (float)(a->dw[i] + dy * n);
        }
        for (int64_t i = 0; i < width; i += 2) { /* in pairs: dx may be dy */
            int64_t pair = i + 1 < width ? 2 : 1;
            double dy[2] = {unrotated(a, r, i), pair == 2 ? unrotated(a, r, i + 1) : 0};
            for (int64_t j = 0; j < pair; j++) {
                double n = wd__load(a->x, a->type, at_x + i + j) * factor;
                double g = dy[j] * wd__load(a->w, a->w_type, i + j);
                wd__store(a->dx, a->type, at_dy(a, r) + i + j,
                          (float)(factor * (g - n * sum / (double)width)));
            }
        }
    }
}

/* PyTorch's order of roundings in bf16: the norm, the quotient, times sqrt(D), times gamma, act. */
void wd_ref_channelnorm(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_channelnorm_args *a = args;
    for (int64_t r = 0; r < a->rows; r++) {
        double squares = 0;
        for (int64_t i = 0; i < a->width; i++) {
            double v = wd__load(a->x, a->type, r * a->width + i);
            squares += v * v;
        }
        float norm = fmaxf(wd__round_to(a->type, (float)sqrt(squares)), 1e-12f);
        float root = (float)sqrt((double)a->width);
        for (int64_t i = 0; i < a->width; i++) {
            float y = wd__round_to(a->type, wd__load(a->x, a->type, r * a->width + i) / norm);
            y = wd__round_to(a->type, y * root);
            y = wd__round_to(a->type, y * wd__load(a->gamma, a->w_type, i));
            wd__store(a->y, a->type, r * a->width + i, wd_ref_act(a->act, y));
        }
    }
}

void wd_ref_residual(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_residual_args *a = args;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            int64_t at = r * a->width + i;
            float branch = wd__load(a->branch, a->type, at);
            if (a->gate) branch *= a->gate[r / a->rows_per_sample * a->sample_stride + i];
            wd__store(a->y, a->type, at, wd__load(a->x, a->type, at) + branch);
        }
}

void wd_ref_residual_backward(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_residual_backward_args *a = args;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            int64_t at = r * a->width + i;
            int64_t at_gate = r / a->rows_per_sample * a->sample_stride + i;
            double dy = wd__load(a->dy, a->type, at);
            double before = r % a->rows_per_sample ? a->dgate[at_gate] : 0;
            a->dgate[at_gate] = (float)(before + dy * wd__load(a->branch, a->type, at));
            wd__store(a->dbranch, a->type, at, (float)(dy * a->gate[at_gate]));
        }
}
