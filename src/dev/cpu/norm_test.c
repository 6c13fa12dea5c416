/* Kernels of norms and residuals against plain C: see kernels/kernels_check.h. */
#include "kernels/kernels_check.h"

/* Sums of up to some thousand products in fp32 lanes, against double: measured up to 6e-7. */
static const tolerance norm_tolerance = {3e-6, 1e-37};
/* Gradients take differences of such sums; dscale sums rows that have other scales. */
static const tolerance backward_tolerance = {1e-5, 1e-6};

typedef struct params {
    int64_t samples, rows_per_sample, width, head_dim;
    wd_dtype type, w_type;
    filling how;
    bool scale, shift, per_sample, in_place, rope, round_first, silu, strided;
} params;

static const int64_t widths[] = {1, 2, 7, 31, 32, 33, 160, 257, 1000, 1536, 8200};
enum { WIDTHS = sizeof widths / sizeof *widths };

/* Fewer rows where they are wide (the widest take the plain C version). */
static int64_t rows_for(int64_t width, int64_t rows)
{
    return width > 1000 ? 2 : rows;
}

static const wd_dtype types[] = {WD_F32, WD_BF16};

/* ---- LayerNorm ---- */

static void layernorm_part(world *w, void *out, const void *context, int64_t row)
{
    const params *p = context;
    int64_t rows = p->samples * p->rows_per_sample, n = rows * p->width;
    int64_t vectors = p->per_sample ? p->samples * (p->width + 3) : p->width;
    size_t size = wd_dtype_bytes(p->type);
    wd_layernorm_args *a = out;
    *a = (wd_layernorm_args){
        .y = out_array(w, p->type, n, p->width, ORDINARY),
        .x = make_array(w, p->type, n, p->how),
        .scale = p->scale ? make_array(w, WD_F32, vectors, ORDINARY) : NULL,
        .shift = p->shift ? make_array(w, WD_F32, vectors, ORDINARY) : NULL,
        .type = p->type,
        .rows = rows,
        .width = p->width,
        .rows_per_sample = p->rows_per_sample,
        .sample_stride = p->per_sample ? p->width + 3 : 0,
        .eps = 1e-6f,
        .scale_one = p->per_sample ? 1 : 0,
    };
    if (row < 0) return;
    int64_t at = row / p->rows_per_sample * a->sample_stride;
    a->y = (char *)a->y + (size_t)(row * p->width) * size;
    a->x = (const char *)a->x + (size_t)(row * p->width) * size;
    if (a->scale) a->scale += at;
    if (a->shift) a->shift += at;
    a->rows = 1;
}

static void make_layernorm(world *w, void *args, const void *context)
{
    layernorm_part(w, args, context, -1);
}

static void layernorm(void **state)
{
    (void)state;
    for (int i = 0; i < WIDTHS; i++)
        for (int variant = 0; variant < 20; variant++) {
            if (widths[i] == 2) continue; /* two nearly equal elements: all is rounding noise */
            params p = {.samples = 2,
                        .rows_per_sample = rows_for(widths[i], 19),
                        .width = widths[i],
                        .type = types[variant % 2],
                        .how = variant % 4 < 2 ? ORDINARY : NASTY,
                        .scale = variant / 4 > 0,
                        .shift = variant / 4 > 1,
                        .per_sample = variant / 4 > 2};
            if (variant / 4 == 4) p.scale = false;
            check_kernel(WD_OP_LAYERNORM, make_layernorm, &p, norm_tolerance);
            if (p.width < 300) check_parts(WD_OP_LAYERNORM, make_layernorm, layernorm_part, 38, &p);
        }
}

/* Affine (per_sample false) adds to dscale over all rows; modulation writes one per sample. */
static void layernorm_backward_part(world *w, void *out, const void *context, int64_t sample)
{
    const params *p = context;
    int64_t rows = p->samples * p->rows_per_sample, n = rows * p->width;
    int64_t vectors = p->per_sample ? p->samples * (p->width + 3) : p->width;
    int64_t vector_width = p->per_sample ? p->width + 3 : p->width;
    size_t skip = (size_t)(sample * p->rows_per_sample * p->width) * wd_dtype_bytes(p->type);
    wd_layernorm_backward_args *a = out;
    *a = (wd_layernorm_backward_args){
        .dx = out_array(w, p->type, n, p->width, ORDINARY),
        .dscale = p->shift ? out_array(w, WD_F32, vectors, vector_width, ORDINARY) : NULL,
        .dshift = p->shift ? out_array(w, WD_F32, vectors, vector_width, ORDINARY) : NULL,
        .dy = make_array(w, p->type, n, p->how),
        .x = make_array(w, p->type, n, ORDINARY),
        .scale = p->scale ? make_array(w, WD_F32, vectors, ORDINARY) : NULL,
        .type = p->type,
        .rows = rows,
        .width = p->width,
        .rows_per_sample = p->rows_per_sample,
        .sample_stride = p->per_sample ? p->width + 3 : 0,
        .eps = 1e-6f,
        .scale_one = p->per_sample ? 1 : 0,
    };
    if (sample < 0) return;
    a->dx = (char *)a->dx + skip;
    a->dy = (const char *)a->dy + skip;
    a->x = (const char *)a->x + skip;
    if (a->scale) a->scale += sample * a->sample_stride;
    if (a->dscale) a->dscale += sample * a->sample_stride;
    if (a->dshift) a->dshift += sample * a->sample_stride;
    a->rows = p->rows_per_sample;
}

static void make_layernorm_backward(world *w, void *args, const void *context)
{
    layernorm_backward_part(w, args, context, -1);
}

static void layernorm_backward(void **state)
{
    (void)state;
    for (int i = 2; i < WIDTHS; i++) /* below width 3 the gradient is rounding noise */
        for (int variant = 0; variant < 8; variant++) {
            params p = {.samples = 3,
                        .rows_per_sample = rows_for(widths[i], 41),
                        .width = widths[i],
                        .type = types[variant % 2],
                        .scale = variant / 2 > 0,
                        .shift = variant / 2 > 1,
                        .per_sample = variant / 2 > 2};
            check_kernel(WD_OP_LAYERNORM_BACKWARD, make_layernorm_backward, &p, backward_tolerance);
            if (p.per_sample)
                check_parts(WD_OP_LAYERNORM_BACKWARD, make_layernorm_backward,
                            layernorm_backward_part, 3, &p);
        }
}

/* ---- RMSNorm ---- */

static void rmsnorm_part(world *w, void *out, const void *context, int64_t row)
{
    const params *p = context;
    int64_t rows = p->samples * p->rows_per_sample;
    int64_t stride = p->strided ? 2 * p->width + 1 : p->width, n = rows * stride;
    int64_t turns = p->rows_per_sample * (p->head_dim / 2);
    size_t skip = (size_t)(row * stride) * wd_dtype_bytes(p->type);
    void *y = out_array(w, p->type, n, stride, p->how);
    const void *x = make_array(w, p->type, n, p->how);
    wd_rmsnorm_args *a = out;
    *a = (wd_rmsnorm_args){
        .y = y,
        .x = p->in_place ? y : x,
        .w = make_array(w, p->w_type, p->width, ORDINARY),
        .cos = p->rope ? make_array(w, WD_F32, turns, ORDINARY) : NULL,
        .sin = p->rope ? make_array(w, WD_F32, turns, ORDINARY) : NULL,
        .type = p->type,
        .w_type = p->w_type,
        .rows = rows,
        .width = p->width,
        .head_dim = p->head_dim,
        .tokens = p->rows_per_sample,
        .x_stride = p->strided ? stride : 0,
        .y_stride = p->strided ? stride : 0,
        .eps = 1e-6f,
        .round_first = p->round_first,
    };
    if (row < 0) return;
    a->y = (char *)a->y + skip;
    a->x = (const char *)a->x + skip;
    if (a->cos) a->cos += row % p->rows_per_sample * (p->head_dim / 2);
    if (a->sin) a->sin += row % p->rows_per_sample * (p->head_dim / 2);
    a->tokens = 1;
    a->rows = 1;
}

static void make_rmsnorm(world *w, void *args, const void *context)
{
    rmsnorm_part(w, args, context, -1);
}

static void rmsnorm(void **state)
{
    (void)state;
    static const int64_t heads[][2] = {{2, 2}, {6, 6}, {160, 32}, {96, 12}, {256, 128}, {8320, 64}};
    for (int i = 0; i < 6; i++)
        for (int variant = 0; variant < 48; variant++) {
            params p = {.samples = 2,
                        .rows_per_sample = rows_for(heads[i][0], 13),
                        .width = heads[i][0],
                        .head_dim = heads[i][1],
                        .type = types[variant % 2],
                        .w_type = types[variant / 2 % 2],
                        .in_place = variant / 4 % 2,
                        .rope = variant / 8 % 3 == 1,
                        .round_first = variant / 8 % 3 == 2,
                        .strided = i % 2,
                        .how = variant / 24 ? NASTY : ORDINARY};
            check_kernel(WD_OP_RMSNORM, make_rmsnorm, &p, norm_tolerance);
            if (p.width < 300) check_parts(WD_OP_RMSNORM, make_rmsnorm, rmsnorm_part, 26, &p);
        }
}

static void make_rmsnorm_backward(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t rows = p->samples * p->rows_per_sample;
    int64_t stride = p->strided ? 2 * p->width + 1 : p->width, n = rows * stride;
    int64_t turns = p->rows_per_sample * (p->head_dim / 2);
    void *dx = out_array(w, p->type, n, stride, ORDINARY);
    const void *dy = make_array(w, p->type, n, ORDINARY);
    *(wd_rmsnorm_backward_args *)out = (wd_rmsnorm_backward_args){
        .dx = dx,
        .dw = out_array(w, WD_F32, p->width, p->width, ORDINARY),
        .dy = p->in_place ? dx : dy,
        .x = make_array(w, p->type, n, ORDINARY),
        .w = make_array(w, p->w_type, p->width, ORDINARY),
        .cos = p->rope ? make_array(w, WD_F32, turns, ORDINARY) : NULL,
        .sin = p->rope ? make_array(w, WD_F32, turns, ORDINARY) : NULL,
        .type = p->type,
        .w_type = p->w_type,
        .rows = rows,
        .width = p->width,
        .head_dim = p->head_dim,
        .tokens = p->rows_per_sample,
        .x_stride = p->strided ? stride : 0,
        .dy_stride = p->strided ? stride : 0,
        .eps = 1e-6f,
    };
}

static void rmsnorm_backward(void **state)
{
    (void)state;
    static const int64_t heads[][2] = {{2, 2}, {6, 6}, {160, 32}, {96, 12}, {256, 128}, {8320, 64}};
    for (int i = 0; i < 6; i++)
        for (int variant = 0; variant < 16; variant++) {
            params p = {.samples = 3,
                        .rows_per_sample = rows_for(heads[i][0], 37),
                        .width = heads[i][0],
                        .head_dim = heads[i][1],
                        .type = types[variant % 2],
                        .w_type = types[variant / 2 % 2],
                        .in_place = variant / 4 % 2,
                        .rope = variant / 8,
                        .strided = i % 2};
            check_kernel(WD_OP_RMSNORM_BACKWARD, make_rmsnorm_backward, &p, backward_tolerance);
        }
}

/* ---- channel norm ---- */

static void channelnorm_part(world *w, void *out, const void *context, int64_t row)
{
    const params *p = context;
    int64_t rows = p->samples * p->rows_per_sample, n = rows * p->width;
    size_t skip = (size_t)(row * p->width) * wd_dtype_bytes(p->type);
    void *y = out_array(w, p->type, n, p->width, p->how);
    const void *x = make_array(w, p->type, n, p->how);
    wd_channelnorm_args *a = out;
    *a = (wd_channelnorm_args){
        .y = y,
        .x = p->in_place ? y : x,
        .gamma = make_array(w, p->w_type, p->width, ORDINARY),
        .type = p->type,
        .w_type = p->w_type,
        .rows = rows,
        .width = p->width,
        .act = p->silu ? WD_ACT_SILU : WD_ACT_NONE,
    };
    if (row < 0) return;
    a->y = (char *)a->y + skip;
    a->x = (const char *)a->x + skip;
    a->rows = 1;
}

static void make_channelnorm(world *w, void *args, const void *context)
{
    channelnorm_part(w, args, context, -1);
}

static void channelnorm(void **state)
{
    (void)state;
    /* In bf16 three roundings may each fall on the other side, before act. */
    const tolerance t[] = {norm_tolerance, {0x1p-7, 1e-37}};
    for (int i = 0; i < WIDTHS; i++)
        for (int variant = 0; variant < 32; variant++) {
            params p = {.samples = 1,
                        .rows_per_sample = rows_for(widths[i], 23),
                        .width = widths[i],
                        .type = types[variant % 2],
                        .w_type = types[variant / 2 % 2],
                        .in_place = variant / 4 % 2,
                        .silu = variant / 8 % 2,
                        .how = variant / 16 ? NASTY : ORDINARY};
            check_kernel(WD_OP_CHANNELNORM, make_channelnorm, &p, t[variant % 2]);
            if (p.width < 300)
                check_parts(WD_OP_CHANNELNORM, make_channelnorm, channelnorm_part, 23, &p);
        }
}

/* ---- residual ---- */

static void make_residual(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t rows = p->samples * p->rows_per_sample, n = rows * p->width;
    void *y = out_array(w, p->type, n, 1, p->how);
    const void *x = make_array(w, p->type, n, p->how);
    *(wd_residual_args *)out = (wd_residual_args){
        .y = y,
        .x = p->in_place ? y : x,
        .branch = make_array(w, p->type, n, p->how),
        .gate = p->scale ? make_array(w, WD_F32, p->samples * (p->width + 5), ORDINARY) : NULL,
        .type = p->type,
        .rows = rows,
        .width = p->width,
        .rows_per_sample = p->rows_per_sample,
        .sample_stride = p->width + 5,
    };
}

static void residual(void **state)
{
    (void)state;
    for (int i = 0; i < WIDTHS; i++)
        for (int variant = 0; variant < 16; variant++) {
            params p = {.samples = 3,
                        .rows_per_sample = rows_for(widths[i], 17),
                        .width = widths[i],
                        .type = types[variant % 2],
                        .in_place = variant / 2 % 2,
                        .scale = variant / 4 % 2,
                        .how = variant / 8 ? NASTY : ORDINARY};
            check_kernel(WD_OP_RESIDUAL, make_residual, &p, (tolerance){0, 0});
        }
}

static void residual_backward_part(world *w, void *out, const void *context, int64_t sample)
{
    const params *p = context;
    int64_t rows = p->samples * p->rows_per_sample, n = rows * p->width, stride = p->width + 5;
    size_t skip = (size_t)(sample * p->rows_per_sample * p->width) * wd_dtype_bytes(p->type);
    void *dbranch = out_array(w, p->type, n, p->width, ORDINARY);
    wd_residual_backward_args *a = out;
    *a = (wd_residual_backward_args){
        .dbranch = dbranch,
        .dgate = out_array(w, WD_F32, p->samples * stride, stride, ORDINARY),
        .dy = make_array(w, p->type, n, ORDINARY),
        .branch = p->in_place ? dbranch : make_array(w, p->type, n, ORDINARY),
        .gate = make_array(w, WD_F32, p->samples * stride, ORDINARY),
        .type = p->type,
        .rows = rows,
        .width = p->width,
        .rows_per_sample = p->rows_per_sample,
        .sample_stride = stride,
    };
    if (sample < 0) return;
    a->dbranch = (char *)a->dbranch + skip;
    a->dy = (const char *)a->dy + skip;
    a->branch = (const char *)a->branch + skip;
    a->dgate += sample * stride;
    a->gate += sample * stride;
    a->rows = p->rows_per_sample;
}

static void make_residual_backward(world *w, void *args, const void *context)
{
    residual_backward_part(w, args, context, -1);
}

static void residual_backward(void **state)
{
    (void)state;
    for (int i = 0; i < WIDTHS; i++)
        for (int variant = 0; variant < 4; variant++) {
            params p = {.samples = 3,
                        .rows_per_sample = rows_for(widths[i], 67),
                        .width = widths[i],
                        .type = types[variant % 2],
                        .in_place = variant / 2};
            check_kernel(WD_OP_RESIDUAL_BACKWARD, make_residual_backward, &p, backward_tolerance);
            check_parts(WD_OP_RESIDUAL_BACKWARD, make_residual_backward, residual_backward_part, 3,
                        &p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(layernorm),         kernel_test(layernorm_backward), kernel_test(rmsnorm),
        kernel_test(rmsnorm_backward),  kernel_test(channelnorm),        kernel_test(residual),
        kernel_test(residual_backward),
    };
    return cmocka_run_group_tests_name("norm kernels", tests, NULL, NULL);
}
