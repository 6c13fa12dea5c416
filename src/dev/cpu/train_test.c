/* Sums, loss and optimiser against plain C: see kernels/kernels_check.h. */
#include "kernels/kernels_check.h"

#include "core/random.h"

/* Sums in fp32 lanes or chunks, against double. */
static const tolerance sum_tolerance = {1e-5, 1e-6};

static const int64_t counts[] = {1, 15, 33, 1023, 1025, 5000, 32768, 32769, 150001};
enum { COUNTS = sizeof counts / sizeof *counts };
static const wd_dtype types[] = {WD_F32, WD_BF16, WD_F16};

typedef struct params {
    int64_t samples, width, count, step;
    wd_dtype type;
    filling how;
    float beta, factor, decay, ema_decay, norm_max;
    bool copy, ema, slow, weighted;
} params;

static void make_sum_rows(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t stride = p->width + (p->samples == 33 ? 4 : 0);
    *(wd_sum_rows_args *)out =
        (wd_sum_rows_args){.y = out_array(w, WD_F32, p->width, p->width, ORDINARY),
                           .x = make_array(w, p->type, p->samples * stride, ORDINARY),
                           .type = p->type,
                           .rows = p->samples,
                           .width = p->width,
                           .x_stride = p->samples == 33 ? stride : 0,
                           .beta = p->beta};
}

static void sum_rows(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 1, 31, 32, 33, 600};
    static const int64_t widths[] = {1, 31, 160, 1025};
    for (int i = 0; i < 6; i++)
        for (int variant = 0; variant < 16; variant++) {
            params p = {.samples = rows[i],
                        .width = widths[variant / 4],
                        .type = types[variant % 2],
                        .beta = (float)(variant / 2 % 2)};
            check_kernel(WD_OP_SUM_ROWS, make_sum_rows, &p, sum_tolerance);
        }
}

static void mse_part(world *w, void *out, const void *context, int64_t sample)
{
    const params *p = context;
    int64_t n = p->samples * p->width;
    size_t size = wd_dtype_bytes(p->type);
    wd_mse_args *a = out;
    *a = (wd_mse_args){.loss = out_array(w, WD_F32, p->samples, 1, ORDINARY),
                       .dy = p->copy ? out_array(w, p->type, n, p->width, ORDINARY) : NULL,
                       .y = make_array(w, p->type, n, p->how),
                       .target = make_array(w, WD_F32, n, p->how),
                       .weight = p->weighted ? make_array(w, WD_F32, p->samples, ORDINARY) : NULL,
                       .type = p->type,
                       .samples = p->samples,
                       .width = p->width,
                       .factor = 0.125f};
    if (sample < 0) return;
    a->loss += sample;
    if (a->dy) a->dy = (char *)a->dy + (size_t)(sample * p->width) * size;
    a->y = (const char *)a->y + (size_t)(sample * p->width) * size;
    a->target += sample * p->width;
    if (a->weight) a->weight += sample;
    a->samples = 1;
}

static void make_mse(world *w, void *args, const void *context)
{
    mse_part(w, args, context, -1);
}

static void mse(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 16; variant++) {
            params p = {.samples = 3,
                        .width = counts[i],
                        .type = types[variant % 2],
                        .copy = variant / 2 % 2,
                        .weighted = variant / 4 % 2,
                        .how = variant / 8 ? NASTY : ORDINARY};
            check_kernel(WD_OP_MSE, make_mse, &p, sum_tolerance);
            check_parts(WD_OP_MSE, make_mse, mse_part, 3, &p);
        }
}

static void make_sum_squares(world *w, void *out, const void *context)
{
    const params *p = context;
    *(wd_sum_squares_args *)out =
        (wd_sum_squares_args){.sum = out_array(w, WD_F32, 1, 1, POSITIVE),
                              .x = make_array(w, WD_F32, p->count, p->how),
                              .count = p->count};
}

static void sum_squares(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int nasty = 0; nasty < 2; nasty++) {
            params p = {.count = counts[i], .how = nasty ? NASTY : ORDINARY};
            check_kernel(WD_OP_SUM_SQUARES, make_sum_squares, &p, (tolerance){1e-6, 0});
        }
}

/* Sums of chunks: the reference's, and in order they add up to the bits of sum_squares. */
static void chunks_add_up(void **state)
{
    (void)state;
    enum { CHUNKS_MAX = 5 };
    static float x[CHUNKS_MAX * WD_SUM_CHUNK];
    wd_cpu_table table, reference;
    wd__cpu_table_reference(&reference);
    wd_random_normal(x, CHUNKS_MAX * WD_SUM_CHUNK, (wd_random){.stream = WD_RANDOM_TEST}, 0);
    for (int executor = 0; executor < executors(); executor++)
        for (int i = 0; i < COUNTS; i++) {
            double sums[CHUNKS_MAX], wanted[CHUNKS_MAX], total = 0;
            char name[64];
            float whole;
            executor_use(&table, name, executor, 0);
            run_kernel(&table, WD_OP_SUM_SQUARES_CHUNKS,
                       &(wd_sum_squares_chunks_args){sums, x, counts[i]});
            run_kernel(&reference, WD_OP_SUM_SQUARES_CHUNKS,
                       &(wd_sum_squares_chunks_args){wanted, x, counts[i]});
            run_kernel(&table, WD_OP_SUM_SQUARES, &(wd_sum_squares_args){&whole, x, counts[i]});
            for (int64_t c = 0; c * WD_SUM_CHUNK < counts[i]; c++) {
                total += sums[c];
                assert_true(fabs(sums[c] - wanted[c]) <= 1e-6 * wanted[c]);
            }
            assert_true((float)total == whole);
        }
}

static void clip_factor_by_hand(void **state)
{
    (void)state;
    static const struct {
        float sum, norm_max, norm, factor;
    } cases[] = {
        {25, 1, 5, 1 / (5 + 1e-6f)}, {25, 0, 5, 1},    {0.25f, 1, 0.5f, 1}, {0, 1, 0, 1},
        {INFINITY, 1, INFINITY, 0},  {NAN, 0, NAN, 0},
    };
    wd_cpu_table table;
    use_last(&table);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float norm = -1, factor = -1;
        int64_t steps = 7;
        run_kernel(
            &table, WD_OP_CLIP_FACTOR,
            &(wd_clip_factor_args){&norm, &factor, &steps, &cases[i].sum, cases[i].norm_max});
        assert_int_equal(steps, cases[i].factor > 0 ? 8 : 7);
        assert_true(norm == cases[i].norm || (isnan(norm) && isnan(cases[i].norm)));
        assert_true(factor == cases[i].factor);
    }
}

static void make_adamw(world *w, void *out, const void *context)
{
    const params *p = context;
    float *factor = make_array(w, WD_F32, 1, ORDINARY);
    static const float lr = 1e-2f, alpha = 3, beta3 = 0.95f;
    *factor = p->factor;
    *(wd_adamw_args *)out =
        (wd_adamw_args){.p = out_array(w, WD_F32, p->count, 1, ORDINARY),
                        .m = out_array(w, WD_F32, p->count, 1, ORDINARY),
                        .v = out_array(w, WD_F32, p->count, 1, POSITIVE),
                        .slow = p->slow ? out_array(w, WD_F32, p->count, 1, ORDINARY) : NULL,
                        .copy = p->copy ? out_array(w, p->type, p->count, 1, ORDINARY) : NULL,
                        .ema = p->ema ? out_array(w, WD_F32, p->count, 1, ORDINARY) : NULL,
                        .grad = make_array(w, WD_F32, p->count, ORDINARY),
                        .factor = factor,
                        .copy_type = p->type,
                        .count = p->count,
                        .lr = &lr,
                        .alpha = &alpha,
                        .beta3 = &beta3,
                        .beta1 = 0.9f,
                        .beta2 = 0.999f,
                        .eps = 1e-8f,
                        .decay = p->decay,
                        .ema_decay = p->ema_decay,
                        .step = &p->step};
}

static void adamw(void **state)
{
    (void)state;
    static const float ema_decays[] = {0, 0, 0.5f, 0.9995f};
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 48; variant++) {
            params p = {.count = counts[i],
                        .type = types[variant % 3],
                        .copy = variant / 3 % 2,
                        .decay = variant / 6 % 2 ? 0.1f : 0,
                        .factor = variant / 12 % 2 ? 0.3f : 0,
                        .slow = variant / 24,
                        .ema = variant % 4 > 0,
                        .ema_decay = ema_decays[variant % 4],
                        .step = 1 + variant * 100};
            /* p and m may nearly cancel: steps are of the size of lr m / sqrt(v) */
            check_kernel(WD_OP_ADAMW, make_adamw, &p, (tolerance){1e-6, 1e-6});
        }
}

/* Steps on one weight, by the formula in doubles; `alpha` of 0 is AdamW. Returns how many moved. */
static int steps_by_hand(const float *grads, int64_t steps, float alpha, double most)
{
    wd_cpu_table table;
    use_last(&table);
    float p = 0.5f, m = 0, v = 0, slow = 0, ema = 0.25f, factor = 0.5f, lr = 0.1f, beta3 = 0.95f;
    double p2 = p, m2 = 0, v2 = 0, slow2 = 0, ema2 = ema;
    int moved = 0;
    for (int64_t t = 1; t <= steps; t++) {
        run_kernel(&table, WD_OP_ADAMW,
                   &(wd_adamw_args){.p = &p,
                                    .m = &m,
                                    .v = &v,
                                    .slow = alpha > 0 ? &slow : NULL,
                                    .ema = &ema,
                                    .grad = &grads[t - 1],
                                    .factor = &factor,
                                    .count = 1,
                                    .lr = &lr,
                                    .alpha = &alpha,
                                    .beta3 = &beta3,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.99f,
                                    .eps = 1e-8f,
                                    .decay = 0.01f,
                                    .ema_decay = 0.2f,
                                    .step = &t});
        const double g = 0.5 * grads[t - 1];
        m2 = 0.9 * m2 + 0.1 * g;
        v2 = 0.99 * v2 + 0.01 * g * g;
        double move = 0.1 * (m2 / (1 - pow(0.9, t)));
        if (alpha > 0) {
            slow2 = 0.95 * slow2 + 0.05 * g;
            move += 0.1 * alpha * slow2;
            move = move * g > 0 ? 1.5 * move : 0;
        }
        moved += move != 0;
        p2 *= 1 - 0.1 * 0.01;
        p2 -= move / (sqrt(v2 / (1 - pow(0.99, t))) + 1e-8);
        ema2 += (1 - fmin(0.2, (1 + (double)t) / (10 + (double)t))) * (p2 - ema2);
        assert_true(fabs(p - p2) < most && fabs(ema - ema2) < most && fabs(slow - slow2) < 1e-6);
    }
    return moved;
}

static void adamw_by_hand(void **state)
{
    (void)state;
    const float grads[] = {1.0f, -0.4f, 3.0f};
    assert_int_equal(steps_by_hand(grads, 3, 0, 1e-6), 3);
}

/* Some steps move the weight, and some do not. */
static void ademamix_by_hand(void **state)
{
    (void)state;
    const float grads[] = {1.0f, -0.4f, 3.0f, -2.0f, 0, -9.0f};
    assert_int_equal(steps_by_hand(grads, 6, 4, 2e-6), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(sum_rows),
        kernel_test(mse),
        kernel_test(chunks_add_up),
        kernel_test(sum_squares),
        kernel_test(clip_factor_by_hand),
        kernel_test(adamw),
        kernel_test(adamw_by_hand),
        kernel_test(ademamix_by_hand),
    };
    return cmocka_run_group_tests_name("training kernels", tests, NULL, NULL);
}
