/* Elementwise kernels, copies and conversions against plain C: see kernels/kernels_check.h. */
#include "kernels/kernels_check.h"

/* Operations whose every step is defined: the same bits as plain C. */
static const tolerance exact = {0, 0};
static const tolerance turn_tolerance = {0, EXECUTOR_TURN_ERROR};
/* exp(u) is off by |u| 6e-8 for the rounding of u; where exp(-u) overflows, sigmoid(u) is 0. */
static const tolerance act_tolerance = {1.2e-5, 1e-35};
/* Slopes cross zero, where s + x s' cancels. */
static const tolerance slope_tolerance = {1.2e-5, 1e-6};

/* Around the lengths at which chunks and threads begin. */
static const int64_t counts[] = {0, 1, 15, 33, 1023, 1024, 1025, 5000, 70001};
enum { COUNTS = sizeof counts / sizeof *counts };
static const wd_dtype types[] = {WD_F32, WD_BF16, WD_F16};

typedef struct params {
    int64_t samples, width, count;
    wd_dtype type, to_type;
    filling how;
    wd_act act;
    bool in_place, round_steps, second, broadcast;
    int terms;
} params;

static void make_activation(world *w, void *out, const void *context)
{
    const params *p = context;
    void *y = out_array(w, p->type, p->count, 1, p->how);
    const void *x = make_array(w, p->type, p->count, p->how);
    *(wd_activation_args *)out = (wd_activation_args){.y = y,
                                                      .x = p->in_place ? y : x,
                                                      .type = p->type,
                                                      .count = p->count,
                                                      .act = p->act,
                                                      .round_steps = p->round_steps};
}

static void activation(void **state)
{
    (void)state;
    static const wd_act acts[] = {WD_ACT_NONE, WD_ACT_GELU_TANH, WD_ACT_SILU};
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 24; variant++) {
            params p = {.count = counts[i],
                        .type = types[variant % 2],
                        .how = variant / 2 % 2 ? NASTY : ORDINARY,
                        .act = acts[variant / 4 % 3],
                        .in_place = variant / 12};
            check_kernel(WD_OP_ACTIVATION, make_activation, &p, act_tolerance);
        }
}

/* In bf16 all steps round, so the bits are those of plain C unless tanh falls on a rounding
 * boundary's other side: one step of 1 + tanh, which is large beside its value near -1. */
static void activation_in_rounded_steps(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        params p = {.count = 20000,
                    .type = types[variant % 2],
                    .how = variant / 2 ? NASTY : ORDINARY,
                    .act = WD_ACT_GELU_TANH,
                    .round_steps = true};
        check_kernel(WD_OP_ACTIVATION, make_activation, &p, (tolerance){1e-5, 3e-7});
    }
}

static void make_activation_backward(world *w, void *out, const void *context)
{
    const params *p = context;
    void *dx = out_array(w, p->type, p->count, 1, ORDINARY);
    const void *dy = make_array(w, p->type, p->count, ORDINARY);
    *(wd_activation_backward_args *)out =
        (wd_activation_backward_args){.dx = dx,
                                      .dy = p->in_place ? dx : dy,
                                      .x = make_array(w, p->type, p->count, p->how),
                                      .type = p->type,
                                      .count = p->count,
                                      .act = p->act};
}

static void activation_backward(void **state)
{
    (void)state;
    static const wd_act acts[] = {WD_ACT_NONE, WD_ACT_GELU_TANH, WD_ACT_SILU};
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 24; variant++) {
            params p = {.count = counts[i],
                        .type = types[variant % 2],
                        .how = variant / 2 % 2 ? NASTY : ORDINARY,
                        .act = acts[variant / 4 % 3],
                        .in_place = variant / 12};
            check_kernel(WD_OP_ACTIVATION_BACKWARD, make_activation_backward, &p, slope_tolerance);
        }
}

static void make_multiply(world *w, void *out, const void *context)
{
    const params *p = context;
    void *y = out_array(w, p->type, p->count, 1, p->how);
    const void *a = make_array(w, p->type, p->count, p->how);
    const void *b = make_array(w, p->type, p->count, p->how);
    *(wd_multiply_args *)out = (wd_multiply_args){.y = y,
                                                  .a = p->in_place ? y : a,
                                                  .b = p->second ? y : b,
                                                  .type = p->type,
                                                  .count = p->count};
}

static void multiply(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 8; variant++) {
            params p = {.count = counts[i],
                        .type = types[variant % 2],
                        .how = NASTY,
                        .in_place = variant / 2 % 2,
                        .second = variant / 4};
            check_kernel(WD_OP_MULTIPLY, make_multiply, &p, exact);
        }
}

static void make_add_table(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t stride = p->broadcast ? 0 : p->width + 7;
    *(wd_add_table_args *)out =
        (wd_add_table_args){.y = out_array(w, WD_F32, p->samples * p->width, 1, ORDINARY),
                            .table = make_array(w, WD_F32, p->width, p->how),
                            .x = make_array(w, p->type, p->samples * (p->width + 7), p->how),
                            .type = p->type,
                            .rows = p->samples,
                            .width = p->width,
                            .x_stride = stride};
}

static void add_table(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 4; variant++) {
            params p = {.samples = 3,
                        .width = counts[i],
                        .type = types[variant % 2],
                        .how = NASTY,
                        .broadcast = variant / 2};
            check_kernel(WD_OP_ADD_TABLE, make_add_table, &p, exact);
        }
}

static void make_timestep_embed(world *w, void *out, const void *context)
{
    (void)context;
    float *y = out_array(w, WD_F32, 5 * 64, 1, ORDINARY);
    float *t = make_array(w, WD_F32, 5, POSITIVE);
    for (int i = 0; i < 5; i++) t[i] = (float)(i * 249);
    *(wd_timestep_embed_args *)out =
        (wd_timestep_embed_args){.y = y, .t = t, .samples = 5, .width = 64};
}

static void timestep_embed(void **state)
{
    (void)state;
    check_kernel(WD_OP_TIMESTEP_EMBED, make_timestep_embed, NULL, turn_tolerance);
}

static void make_cast(world *w, void *out, const void *context)
{
    const params *p = context;
    *(wd_cast_args *)out = (wd_cast_args){.to = out_array(w, p->to_type, p->count, 1, ORDINARY),
                                          .from = make_array(w, p->type, p->count, p->how),
                                          .to_type = p->to_type,
                                          .from_type = p->type,
                                          .count = p->count};
}

static void cast(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 9; variant++) {
            params p = {.count = counts[i],
                        .type = types[variant % 3],
                        .to_type = types[variant / 3],
                        .how = NASTY};
            check_kernel(WD_OP_CAST, make_cast, &p, exact);
        }
}

/* All 65536 values of a narrow type, and the fp32 values around every f16 value. */
static void make_cast_of_all(world *w, void *out, const void *context)
{
    const params *p = context;
    make_cast(w, out, context);
    for (int64_t i = 0; i < p->count; i++) {
        if (p->type == WD_F32) {
            float value = wd_f16_to_f32((uint16_t)(i >> 2));
            ((float *)w->array[1].data)[i] = value * (1 + (float)(i & 3) * 0x1p-12f);
        } else {
            ((uint16_t *)w->array[1].data)[i] = (uint16_t)i;
        }
    }
}

static void cast_of_all_values(void **state)
{
    (void)state;
    for (int variant = 0; variant < 9; variant++) {
        params p = {.type = types[variant % 3], .to_type = types[variant / 3]};
        p.count = p.type == WD_F32 ? 4 * 65536 : 65536;
        check_kernel(WD_OP_CAST, make_cast_of_all, &p, exact);
    }
}

static void make_fill(world *w, void *out, const void *context)
{
    const params *p = context;
    *(wd_fill_args *)out = (wd_fill_args){.to = out_array(w, p->type, p->count, 1, ORDINARY),
                                          .type = p->type,
                                          .count = p->count,
                                          .value = 0.1f};
}

static void fill(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int type = 0; type < 3; type++) {
            params p = {.count = counts[i], .type = types[type]};
            check_kernel(WD_OP_FILL, make_fill, &p, exact);
        }
}

static void make_gather_rows(world *w, void *out, const void *context)
{
    const params *p = context;
    int32_t *index = make_array(w, WD_F32, p->samples, ORDINARY);
    for (int i = 0; i < p->samples; i++) index[i] = i * 5 % 7 - 1;
    *(wd_gather_rows_args *)out =
        (wd_gather_rows_args){.to = out_array(w, p->to_type, p->samples * p->width, 1, ORDINARY),
                              .from = make_array(w, p->type, 6 * p->width, NASTY),
                              .index = index,
                              .to_type = p->to_type,
                              .from_type = p->type,
                              .rows = p->samples,
                              .width = p->width,
                              .table_rows = 6};
}

static void gather_rows(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS - 1; i++)
        for (int variant = 0; variant < 9; variant++) {
            params p = {.samples = 9,
                        .width = counts[i],
                        .type = types[variant % 3],
                        .to_type = types[variant / 3]};
            check_kernel(WD_OP_GATHER_ROWS, make_gather_rows, &p, exact);
        }
}

static void make_combine(world *w, void *out, const void *context)
{
    const params *p = context;
    float *y = out_array(w, WD_F32, p->count, 1, p->how);
    wd_combine_args *a = out;
    *a = (wd_combine_args){.y = y,
                           .factor = {0.3f, -1.7f, 2.1f, 0.9f, -0.01f, 5},
                           .terms = p->terms,
                           .count = p->count,
                           .round_bf16 = p->second};
    for (int i = 0; i < p->terms; i++) a->x[i] = make_array(w, WD_F32, p->count, p->how);
    if (p->in_place) a->x[p->terms - 1] = y;
}

static void combine(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 24; variant++) {
            params p = {.count = counts[i],
                        .how = NASTY,
                        .terms = 1 + variant % 6,
                        .in_place = variant / 6 % 2,
                        .second = variant / 12};
            check_kernel(WD_OP_COMBINE, make_combine, &p, exact);
        }
}

static void make_guidance(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t n = p->samples * p->width;
    *(wd_guidance_args *)out =
        (wd_guidance_args){.v = out_array(w, WD_F32, n, 1, ORDINARY),
                           .c = make_array(w, p->type, n, p->how),
                           .u = p->second ? make_array(w, p->type, n, p->how) : NULL,
                           .scale = make_array(w, WD_F32, p->samples, ORDINARY),
                           .type = p->type,
                           .samples = p->samples,
                           .width = p->width};
}

static void guidance(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 4; variant++) {
            params p = {.samples = 5,
                        .width = counts[i],
                        .type = types[variant % 2],
                        .how = NASTY,
                        .second = variant / 2};
            check_kernel(WD_OP_GUIDANCE, make_guidance, &p, exact);
        }
}

static void make_step_samples(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t n = p->samples * p->width;
    *(wd_step_samples_args *)out =
        (wd_step_samples_args){.x = out_array(w, WD_F32, n, 1, p->how),
                               .v = make_array(w, WD_F32, n, p->how),
                               .dt = make_array(w, WD_F32, p->samples, ORDINARY),
                               .samples = p->samples,
                               .width = p->width};
}

static void step_samples(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        params p = {.samples = 5, .width = counts[i], .how = NASTY};
        check_kernel(WD_OP_STEP_SAMPLES, make_step_samples, &p, exact);
    }
}

/* ---- strided copies: the shapes of models, and unusual ones ---- */

typedef struct shape {
    const char *what;
    int ndim;
    int64_t dim[6], to[6], from[6];
} shape;

static const shape shapes[] = {
    {"scalar", 0, {0}, {0}, {0}},
    {"nothing", 2, {0, 5}, {5, 1}, {5, 1}},
    {"contiguous", 3, {3, 5, 700}, {3500, 700, 1}, {3500, 700, 1}},
    {"channels last", 3, {2, 48, 301}, {14448, 1, 48}, {14448, 301, 1}},
    {"channels first", 3, {2, 48, 301}, {14448, 301, 1}, {14448, 1, 48}},
    {"transposed", 2, {70, 131}, {131, 1}, {1, 70}},
    {"transposed and summed", 3, {40, 3, 33}, {33, 0, 1}, {1, 40, 120}},
    {"patches", 5, {2, 16, 8, 6, 4}, {3072, 4, 384, 64, 1}, {3072, 192, 24, 4, 1}},
    {"rows of a wider array", 2, {70, 96}, {96, 1}, {288, 1}},
    {"repeated", 3, {40, 2, 33}, {66, 33, 1}, {33, 0, 1}},
    {"repeated twice inside", 4, {30, 2, 17, 2}, {68, 34, 2, 1}, {17, 0, 1, 0}},
    {"averaged", 3, {40, 3, 33}, {33, 0, 1}, {99, 33, 1}},
    {"summed to one", 2, {5, 7}, {0, 0}, {7, 1}},
    {"summed inside", 2, {50, 9}, {1, 0}, {9, 1}},
    {"backwards", 2, {20, 1500}, {1500, 1}, {1500, 1}},
    {"every third", 1, {3000}, {3}, {2}},
};

typedef struct copy_params {
    const shape *shape;
    wd_dtype to_type, from_type;
    float alpha, beta;
} copy_params;

static void make_strided_copy(world *w, void *out, const void *context)
{
    const copy_params *p = context;
    int64_t to = 1, from = 1;
    for (int i = 0; i < p->shape->ndim; i++) {
        to += p->shape->to[i] * (p->shape->dim[i] - 1);
        from += p->shape->from[i] * (p->shape->dim[i] - 1);
    }
    wd_strided_copy_args *a = out;
    *a = (wd_strided_copy_args){.to = out_array(w, p->to_type, to > 0 ? to : 0, 1, ORDINARY),
                                .from = make_array(w, p->from_type, from > 0 ? from : 0, ORDINARY),
                                .to_type = p->to_type,
                                .from_type = p->from_type,
                                .ndim = p->shape->ndim,
                                .alpha = p->alpha,
                                .beta = p->beta};
    memcpy(a->dim, p->shape->dim, sizeof a->dim);
    memcpy(a->to_stride, p->shape->to, sizeof a->dim);
    memcpy(a->from_stride, p->shape->from, sizeof a->dim);
    if (strcmp(p->shape->what, "backwards")) return;
    a->from = (const char *)a->from + (size_t)(from - 1) * wd_dtype_bytes(p->from_type);
    for (int i = 0; i < 2; i++) a->from_stride[i] = -a->from_stride[i];
}

static void strided_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 36; variant++) {
            copy_params p = {&shapes[i], types[variant % 3], types[variant / 3 % 3],
                             variant / 9 % 2 ? 0.25f : 1, (float)(variant / 18)};
            check_kernel(WD_OP_STRIDED_COPY, make_strided_copy, &p, exact);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(activation),
        kernel_test(activation_in_rounded_steps),
        kernel_test(activation_backward),
        kernel_test(multiply),
        kernel_test(add_table),
        kernel_test(timestep_embed),
        kernel_test(cast),
        kernel_test(cast_of_all_values),
        kernel_test(fill),
        kernel_test(gather_rows),
        kernel_test(combine),
        kernel_test(guidance),
        kernel_test(step_samples),
        kernel_test(strided_copy),
    };
    return cmocka_run_group_tests_name("pointwise kernels", tests, NULL, NULL);
}
