/* Every backward operation against differences of its forward operation, in plain C and fp32 (that
 * the faster kernels compute the same is tested elsewhere).
 *
 * With a fixed random w the loss is sum(w y). Its derivative along a random direction v of an
 * input x must be sum(v dx), where dx is the gradient for dy = w. The difference quotient is of
 * fourth order: with steps of 1/64 it is off by some 1e-6, and by the rounding of y, so 3e-4 is
 * ample.
 */
#include "kernels/kernels_check.h"

static const double gradient_tolerance = 3e-4;

enum { COUNT_MAX = 4096 };

/* A forward pass into y [count], of which the loss is taken. */
typedef struct forward {
    wd_op op;
    const void *args;
    float *y;
    const float *w;
    int64_t count;
} forward;

static wd_cpu_table table;

static double loss(const forward *f)
{
    double sum = 0;
    run_kernel(&table, f->op, f->args);
    for (int64_t i = 0; i < f->count; i++) sum += (double)f->w[i] * f->y[i];
    return sum;
}

static double moved_loss(const forward *f, float *x, const float *kept, const float *v,
                         int64_t count, double step)
{
    for (int64_t i = 0; i < count; i++) x[i] = (float)(kept[i] + step * v[i]);
    return loss(f);
}

/* Checks dx [count], the gradient by x, of f. */
static void check_gradient(const char *what, const forward *f, float *x, const float *dx,
                           int64_t count)
{
    float kept[COUNT_MAX], v[COUNT_MAX];
    double h = 1.0 / 64, expected = 0, norm = 0;
    assert_true(count <= COUNT_MAX);
    memcpy(kept, x, (size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        v[i] = normal_value((uint64_t)(i + 1) * 977);
        expected += (double)v[i] * dx[i];
        norm += (double)dx[i] * dx[i];
    }
    double near = moved_loss(f, x, kept, v, count, h) - moved_loss(f, x, kept, v, count, -h);
    double far = moved_loss(f, x, kept, v, count, 2 * h) - moved_loss(f, x, kept, v, count, -2 * h);
    double found = (8 * near - far) / (12 * h);
    memcpy(x, kept, (size_t)count * sizeof *x);
    if (fabs(found - expected) > gradient_tolerance * sqrt(norm))
        fail_msg("%s: the gradient says %.7g along v, differences say %.7g", what, expected, found);
}

/* Takes arrays from a world, so that they are freed together. */
static float *values(world *w, int64_t count)
{
    return make_array(w, WD_F32, count, ORDINARY);
}

static float *zeros(world *w, int64_t count)
{
    float *x = values(w, count);
    memset(x, 0, (size_t)count * sizeof *x);
    return x;
}

static void attention(void **state)
{
    (void)state;
    enum { B = 2, L = 5, S = 7, N = 2, K = 4, STRIDE = 11 };
    world arrays = {0};
    float *q = values(&arrays, B * L * STRIDE), *k = values(&arrays, B * S * STRIDE);
    float *v = values(&arrays, B * S * STRIDE), *d_o = zeros(&arrays, B * L * STRIDE);
    float *o = zeros(&arrays, B * L * STRIDE), *lse = zeros(&arrays, B * N * L);
    float *dq = zeros(&arrays, B * L * STRIDE), *dk = zeros(&arrays, B * S * STRIDE);
    float *dv = zeros(&arrays, B * S * STRIDE);
    for (int i = 0; i < B * L; i++)
        for (int j = 0; j < N * K; j++) d_o[i * STRIDE + j] = normal_value((uint64_t)(i * 50 + j));
    wd_attention_args forth = {.o = o,
                               .lse = lse,
                               .q = q,
                               .k = k,
                               .v = v,
                               .type = WD_F32,
                               .samples = B,
                               .kv_samples = B,
                               .heads = N,
                               .head_dim = K,
                               .q_tokens = L,
                               .kv_tokens = S,
                               .q_stride = STRIDE,
                               .kv_stride = STRIDE,
                               .o_stride = STRIDE,
                               .scale = 0.5f};
    forward f = {WD_OP_ATTENTION, &forth, o, d_o, B * L * STRIDE};
    loss(&f);
    wd_attention_backward_args back = {.dq = dq,
                                       .dk = dk,
                                       .dv = dv,
                                       .d_o = d_o,
                                       .q = q,
                                       .k = k,
                                       .v = v,
                                       .o = o,
                                       .lse = lse,
                                       .type = WD_F32,
                                       .samples = B,
                                       .heads = N,
                                       .head_dim = K,
                                       .q_tokens = L,
                                       .kv_tokens = S,
                                       .q_stride = STRIDE,
                                       .kv_stride = STRIDE,
                                       .o_stride = STRIDE,
                                       .scale = 0.5f};
    run_kernel(&table, WD_OP_ATTENTION_BACKWARD, &back);
    check_gradient("attention dq", &f, q, dq, B * L * STRIDE);
    check_gradient("attention dk", &f, k, dk, B * S * STRIDE);
    check_gradient("attention dv", &f, v, dv, B * S * STRIDE);
    free_world(&arrays);
}

/* Modulated (scale and shift per sample) or affine (one of each). dx and, where affine, dscale and
 * dshift are added to: they start from ones. */
static void layernorm_with(bool affine)
{
    enum { B = 3, L = 4, D = 24, R = B * L };
    world arrays = {0};
    int64_t vectors = affine ? D : B * D;
    float *x = values(&arrays, R * D), *dy = values(&arrays, R * D), *y = zeros(&arrays, R * D);
    float *scale = values(&arrays, vectors), *shift = values(&arrays, vectors);
    float *dx = zeros(&arrays, R * D), *dscale = zeros(&arrays, vectors);
    float *dshift = zeros(&arrays, vectors);
    for (int i = 0; i < R * D; i++) dx[i] = 1;
    for (int i = 0; i < vectors; i++) dscale[i] = dshift[i] = 1;
    wd_layernorm_args forth = {.y = y,
                               .x = x,
                               .scale = scale,
                               .shift = shift,
                               .type = WD_F32,
                               .rows = R,
                               .width = D,
                               .rows_per_sample = L,
                               .sample_stride = affine ? 0 : D,
                               .eps = 1e-3f,
                               .scale_one = affine ? 0 : 1};
    forward f = {WD_OP_LAYERNORM, &forth, y, dy, R * D};
    wd_layernorm_backward_args back = {.dx = dx,
                                       .dscale = dscale,
                                       .dshift = dshift,
                                       .dy = dy,
                                       .x = x,
                                       .scale = scale,
                                       .type = WD_F32,
                                       .rows = R,
                                       .width = D,
                                       .rows_per_sample = L,
                                       .sample_stride = affine ? 0 : D,
                                       .eps = 1e-3f,
                                       .scale_one = affine ? 0 : 1};
    run_kernel(&table, WD_OP_LAYERNORM_BACKWARD, &back);
    for (int i = 0; i < R * D; i++) dx[i] -= 1;
    for (int i = 0; affine && i < D; i++) dscale[i] -= 1, dshift[i] -= 1;
    check_gradient("layernorm dx", &f, x, dx, R * D);
    check_gradient("layernorm dscale", &f, scale, dscale, vectors);
    check_gradient("layernorm dshift", &f, shift, dshift, vectors);
    free_world(&arrays);
}

static void layernorm(void **state)
{
    (void)state;
    layernorm_with(false);
    layernorm_with(true);
}

static void rmsnorm_with(bool rope)
{
    enum { B = 2, L = 5, N = 3, K = 8, D = N * K, R = B * L };
    world arrays = {0};
    float *x = values(&arrays, R * D), *dy = values(&arrays, R * D), *y = zeros(&arrays, R * D);
    float *w = values(&arrays, D), *dx = zeros(&arrays, R * D), *dw = zeros(&arrays, D);
    float *c = values(&arrays, L * K / 2), *s = values(&arrays, L * K / 2);
    for (int i = 0; i < L * K / 2; i++) {
        c[i] = cosf(0.3f * (float)i);
        s[i] = sinf(0.3f * (float)i);
    }
    for (int i = 0; i < D; i++) dw[i] = 1;
    wd_rmsnorm_args forth = {.y = y,
                             .x = x,
                             .w = w,
                             .cos = rope ? c : NULL,
                             .sin = rope ? s : NULL,
                             .type = WD_F32,
                             .w_type = WD_F32,
                             .rows = R,
                             .width = D,
                             .head_dim = K,
                             .tokens = L,
                             .eps = 1e-3f};
    forward f = {WD_OP_RMSNORM, &forth, y, dy, R * D};
    wd_rmsnorm_backward_args back = {.dx = dx,
                                     .dw = dw,
                                     .dy = dy,
                                     .x = x,
                                     .w = w,
                                     .cos = rope ? c : NULL,
                                     .sin = rope ? s : NULL,
                                     .type = WD_F32,
                                     .w_type = WD_F32,
                                     .rows = R,
                                     .width = D,
                                     .head_dim = K,
                                     .tokens = L,
                                     .eps = 1e-3f};
    run_kernel(&table, WD_OP_RMSNORM_BACKWARD, &back);
    for (int i = 0; i < D; i++) dw[i] -= 1;
    check_gradient("rmsnorm dx", &f, x, dx, R * D);
    check_gradient("rmsnorm dw", &f, w, dw, D);
    free_world(&arrays);
}

static void rmsnorm(void **state)
{
    (void)state;
    rmsnorm_with(false);
    rmsnorm_with(true);
}

static void residual(void **state)
{
    (void)state;
    enum { B = 3, L = 6, D = 10, R = B * L };
    world arrays = {0};
    float *x = values(&arrays, R * D), *branch = values(&arrays, R * D);
    float *gate = values(&arrays, B * D), *dy = values(&arrays, R * D);
    float *y = zeros(&arrays, R * D), *dbranch = zeros(&arrays, R * D);
    float *dgate = values(&arrays, B * D);
    wd_residual_args forth = {.y = y,
                              .x = x,
                              .branch = branch,
                              .gate = gate,
                              .type = WD_F32,
                              .rows = R,
                              .width = D,
                              .rows_per_sample = L,
                              .sample_stride = D};
    forward f = {WD_OP_RESIDUAL, &forth, y, dy, R * D};
    wd_residual_backward_args back = {.dbranch = dbranch,
                                      .dgate = dgate,
                                      .dy = dy,
                                      .branch = branch,
                                      .gate = gate,
                                      .type = WD_F32,
                                      .rows = R,
                                      .width = D,
                                      .rows_per_sample = L,
                                      .sample_stride = D};
    run_kernel(&table, WD_OP_RESIDUAL_BACKWARD, &back);
    check_gradient("residual dbranch", &f, branch, dbranch, R * D);
    check_gradient("residual dgate", &f, gate, dgate, B * D);
    check_gradient("residual dx", &f, x, dy, R * D);
    free_world(&arrays);
}

static void activation(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static const wd_act acts[] = {WD_ACT_NONE, WD_ACT_GELU_TANH, WD_ACT_SILU};
    for (int i = 0; i < 3; i++) {
        world arrays = {0};
        float *x = values(&arrays, COUNT), *dy = values(&arrays, COUNT);
        float *y = zeros(&arrays, COUNT), *dx = zeros(&arrays, COUNT);
        for (int j = 0; j < COUNT; j++) x[j] *= 2;
        wd_activation_args forth = {.y = y, .x = x, .count = COUNT, .act = acts[i]};
        wd_activation_backward_args back = {
            .dx = dx, .dy = dy, .x = x, .count = COUNT, .act = acts[i]};
        run_kernel(&table, WD_OP_ACTIVATION_BACKWARD, &back);
        check_gradient("activation dx", &(forward){WD_OP_ACTIVATION, &forth, y, dy, COUNT}, x, dx,
                       COUNT);
        free_world(&arrays);
    }
}

/* The loss of training is factor sum(weight[b] loss[b]). */
static void mse(void **state)
{
    (void)state;
    enum { B = 3, D = 50 };
    world arrays = {0};
    float *y = values(&arrays, B * D), *target = values(&arrays, B * D);
    float *losses = zeros(&arrays, B), *dy = zeros(&arrays, B * D), *w = zeros(&arrays, B);
    float *weight = values(&arrays, B);
    for (int i = 0; i < B; i++) w[i] = 0.25f * weight[i];
    wd_mse_args args = {.loss = losses,
                        .dy = dy,
                        .y = y,
                        .target = target,
                        .weight = weight,
                        .type = WD_F32,
                        .samples = B,
                        .width = D,
                        .factor = 0.25f};
    run_kernel(&table, WD_OP_MSE, &args);
    args.dy = NULL;
    check_gradient("mse dy", &(forward){WD_OP_MSE, &args, losses, w, B}, y, dy, B * D);
    free_world(&arrays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention), cmocka_unit_test(layernorm),  cmocka_unit_test(rmsnorm),
        cmocka_unit_test(residual),  cmocka_unit_test(activation), cmocka_unit_test(mse),
    };
    wd__cpu_table_reference(&table);
    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
