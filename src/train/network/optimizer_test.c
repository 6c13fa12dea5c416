/* AdamW, AdEMAMix, clipping, EMA and learning rate against their definitions in double; the
 * readback ring. */
#include "train/network/optimizer.h"

#include "dev/ops.h"
#include "dev/moments.h"
#include "student_fixture.h"
#include "train/network/readback.h"

/* fp32 arithmetic on values near 1, ten steps. */
static const double tolerance = 2e-6;

typedef struct reference {
    double p, m, v, e, slow;
} reference;

/* One step of one parameter, as Loshchilov & Hutter write it; or as Pagliardini et al. do, where
 * the gradient agrees. */
static void step_reference(reference *r, double g, const wd_optimizer_options *o, double decay,
                           double lr, int64_t t, double progress)
{
    const wd_slow_moments by = wd__slow_moments_at(o, progress);
    r->m = o->beta1 * r->m + (1 - o->beta1) * g;
    r->v = o->beta2 * r->v + (1 - o->beta2) * g * g;
    double m = r->m / (1 - pow(o->beta1, (double)t)), v = r->v / (1 - pow(o->beta2, (double)t));
    double move = lr * m;
    if (o->alpha > 0) {
        r->slow = by.beta3 * r->slow + (1 - by.beta3) * g;
        move = lr * (m + by.alpha * r->slow);
        move = move * g > 0 ? 1.5 * move : 0;
    }
    r->p = r->p * (1 - lr * decay) - move / (sqrt(v) + o->eps);
    double ema = fmin(o->ema_decay, (1 + (double)t) / (10 + (double)t));
    r->e += (1 - ema) * (r->p - r->e);
}

static double decay_of(const wd_params *p, const wd_optimizer_options *o, int64_t line)
{
    const wd_tensor_spec *s = &p->table.spec[line];
    bool matrix = s->ndim >= 2 && !strstr(s->name, "scale_shift_table");
    return o->decay_scope == WD_DECAY_ALL || matrix ? o->decay : 0;
}

static void compare_steps(wd_dtype dtype, wd_decay_scope scope, double norm_max, double alpha)
{
    enum { STEPS = 10 };
    wd_err err;
    bench b = bench_on(wd_device_open_guard, 2);
    wd_dit_config config = small_config();
    wd_params p;
    wd_optimizer *adamw;
    wd_optimizer_options options = wd_optimizer_defaults();
    options.decay = 0.1;
    options.decay_scope = scope;
    options.grad_norm_max = norm_max;
    options.ema_decay = 0.5;
    options.alpha = alpha;
    options.beta3 = 0.99;
    const unsigned kinds = WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA;
    wd_test_ok(wd_params_open(&p, &config, dtype, alpha > 0 ? kinds | WD_PARAMS_WITH_SLOW : kinds,
                              b.device, &err),
               &err);
    wd_test_ok(wd_optimizer_open(&adamw, &options, &p, &err), &err);
    fill_buffer(&b, &p, WD_PARAMS_P, 1, 1, 0);
    wd_optimizer_start_ema(adamw, b.queue);
    reference *r;
    wd_test_ok(wd_alloc((void **)&r, (size_t)p.count, sizeof *r, "reference", &err), &err);
    float *start = read_buffer(&b, &p, WD_PARAMS_P);
    for (int64_t i = 0; i < p.count; i++) r[i] = (reference){.p = start[i], .e = start[i]};

    for (int t = 1; t <= STEPS; t++) {
        fill_buffer(&b, &p, WD_PARAMS_G, (uint64_t)(100 + t), 0.1f, 0);
        float *g = read_floats(&b, p.buffer[WD_PARAMS_G], p.count);
        double squares = 0;
        for (int64_t i = 0; i < p.count; i++) squares += (double)g[i] * g[i];
        double factor = norm_max > 0 ? fmin(1, norm_max / (sqrt(squares) + 1e-6)) : 1;
        for (int64_t line = 0; line < p.table.count; line++) {
            int64_t end = line + 1 < p.table.count ? p.offset[line + 1] : p.count;
            for (int64_t i = p.offset[line]; i < end; i++) {
                step_reference(&r[i], factor * g[i], &options, decay_of(&p, &options, line), 0.01,
                               t, 0.1 * t);
            }
        }
        wd_optimizer_step(adamw, 0.01, 0.1 * t, b.queue);
        float *norm = read_floats(&b, wd_optimizer_norm(adamw), 1);
        assert_true(fabs(*norm / sqrt(squares) - 1) < tolerance);
        wd_free(norm);
        wd_free(g);
    }
    float *got = read_buffer(&b, &p, WD_PARAMS_P);
    float *ema = read_floats(&b, p.buffer[WD_PARAMS_EMA], p.count);
    for (int64_t i = 0; i < p.count; i++) {
        if (fabs(got[i] - r[i].p) > tolerance || fabs(ema[i] - r[i].e) > tolerance) {
            fail_msg("element %lld is %.9g, EMA %.9g; expected %.9g, %.9g", (long long)i, got[i],
                     ema[i], r[i].p, r[i].e);
        }
    }
    if (dtype == WD_BF16) {
        uint16_t *copy = (uint16_t *)read_floats(&b, (float *)p.copy, p.count / 2);
        for (int64_t i = 0; i < p.count; i++) assert_int_equal(copy[i], wd_f32_to_bf16(got[i]));
        wd_free(copy);
    }
    wd_free(got);
    wd_free(ema);
    wd_free(start);
    wd_free(r);
    wd_optimizer_close(adamw);
    wd_params_close(&p);
    bench_close(&b);
}

static void test_steps(void **state)
{
    (void)state;
    compare_steps(WD_F32, WD_DECAY_ALL, 0, 0);
    compare_steps(WD_F32, WD_DECAY_MATRICES, 1, 0);
    compare_steps(WD_BF16, WD_DECAY_MATRICES, 0.5, 0);
    compare_steps(WD_F32, WD_DECAY_MATRICES, 1, 5);
    compare_steps(WD_BF16, WD_DECAY_ALL, 0, 5);
}

/* Three steps of a new student, with so many steps in between whose gradient is not finite; returns
 * P, M, V and EMA [4, *count]. */
static float *step_between_bad_ones(int64_t *count, int bad_steps)
{
    static const float bad[] = {NAN, INFINITY, 1e30f};
    static const wd_params_buffer all[] = {WD_PARAMS_P, WD_PARAMS_M, WD_PARAMS_V, WD_PARAMS_EMA};
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_dit_config config = small_config();
    wd_params p;
    wd_optimizer *adamw;
    wd_optimizer_options options = wd_optimizer_defaults();
    wd_test_ok(
        wd_params_open(&p, &config, WD_F32, WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA, b.device, &err),
        &err);
    wd_test_ok(wd_optimizer_open(&adamw, &options, &p, &err), &err);
    fill_buffer(&b, &p, WD_PARAMS_P, 1, 1, 0);
    wd_optimizer_start_ema(adamw, b.queue);
    for (uint64_t step = 0; step < 3; step++) {
        for (int i = 0; i < bad_steps; i++) {
            float *before = read_buffer(&b, &p, WD_PARAMS_P);
            fill_buffer(&b, &p, WD_PARAMS_G, 9, 1, 0);
            wd_queue_copy_and_wait(b.queue, p.buffer[WD_PARAMS_G] + 7, &bad[i % 3], sizeof bad[0]);
            wd_optimizer_step(adamw, 0.01, 0, b.queue);
            float *after = read_buffer(&b, &p, WD_PARAMS_P);
            float *factor = read_floats(&b, wd__optimizer_factor(adamw), 1);
            assert_memory_equal(before, after, (size_t)p.count * sizeof *before);
            assert_true(*factor == 0);
            assert_int_equal(wd_optimizer_steps(adamw, b.queue), step);
            wd_free(before);
            wd_free(after);
            wd_free(factor);
        }
        fill_buffer(&b, &p, WD_PARAMS_G, 2 + step, 1, 0);
        wd_optimizer_step(adamw, 0.01, 0, b.queue);
    }
    assert_int_equal(wd_optimizer_steps(adamw, b.queue), 3);
    float *out;
    const size_t bytes = (size_t)p.count * sizeof *out;
    wd_test_ok(wd_alloc((void **)&out, 4, bytes, "buffers", &err), &err);
    for (int i = 0; i < 4; i++)
        wd_queue_copy_and_wait(b.queue, out + i * p.count, p.buffer[all[i]], bytes);
    wd_queue_wait(b.queue);
    *count = 4 * p.count;
    wd_optimizer_close(adamw);
    wd_params_close(&p);
    bench_close(&b);
    return out;
}

/* A gradient that is not finite changes nothing, and says so: neither weights nor moments, nor how
 * the steps after it are corrected and averaged. */
static void test_not_finite(void **state)
{
    (void)state;
    int64_t count, other;
    float *alone = step_between_bad_ones(&count, 0), *between = step_between_bad_ones(&other, 3);
    assert_int_equal(count, other);
    assert_memory_equal(alone, between, (size_t)count * sizeof *alone);
    wd_free(alone);
    wd_free(between);
}

/* ---- moments in 8 bits ---- */

typedef struct in_8_bits {
    wd_params params;
    wd_optimizer *optimizer;
} in_8_bits;

static void open_in_8_bits(in_8_bits *out, const bench *b, unsigned more)
{
    wd_err err;
    const wd_dit_config config = small_config();
    wd_optimizer_options options = wd_optimizer_defaults();
    options.decay = 0.1;
    options.moments_in_8_bits = more;
    wd_test_ok(
        wd_params_open(&out->params, &config, WD_F32, WD_PARAMS_TRAINED | more, b->device, &err),
        &err);
    wd_test_ok(wd_optimizer_open(&out->optimizer, &options, &out->params, &err), &err);
    fill_buffer(b, &out->params, WD_PARAMS_P, 1, 1, 0);
}

/* The same gradients with fp32 moments: weights differ by little of what they moved. Memory is what
 * params.h says, a dropped step changes nothing, padding stays zero. */
static void test_moments_in_8_bits(void **state)
{
    (void)state;
    enum { STEPS = 30 };
    bench b = bench_on(wd_device_open_cpu, 2);
    in_8_bits packed, usual;
    open_in_8_bits(&packed, &b, WD_PARAMS_MOMENTS_IN_8_BITS);
    open_in_8_bits(&usual, &b, 0);
    wd_params *p = &packed.params;
    const size_t count = (size_t)p->count, bytes = wd_params_buffer_bytes(p, WD_PARAMS_M);
    assert_int_equal(bytes, count + count / 32 * 2);
    assert_int_equal(wd_params_bytes(p), 8 * count + 2 * bytes);
    float *start = read_floats(&b, p->buffer[WD_PARAMS_P], p->count);
    for (uint64_t t = 0; t < STEPS; t++) {
        fill_buffer(&b, p, WD_PARAMS_G, 100 + t, 0.1f, 0.05f);
        fill_buffer(&b, &usual.params, WD_PARAMS_G, 100 + t, 0.1f, 0.05f);
        wd_optimizer_step(packed.optimizer, 0.01, 0, b.queue);
        wd_optimizer_step(usual.optimizer, 0.01, 0, b.queue);
    }
    const float *ours = p->buffer[WD_PARAMS_P], *exact = usual.params.buffer[WD_PARAMS_P];
    double moved = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        moved += pow(exact[i] - start[i], 2);
        off += pow(ours[i] - exact[i], 2);
    }
    assert_true(sqrt(off) < 0.05 * sqrt(moved));
    void *before;
    wd_err err;
    wd_test_ok(wd_alloc(&before, bytes, 1, "moments", &err), &err);
    memcpy(before, p->buffer[WD_PARAMS_M], bytes);
    p->buffer[WD_PARAMS_G][3] = NAN;
    wd_optimizer_step(packed.optimizer, 0.01, 0, b.queue);
    assert_memory_equal(p->buffer[WD_PARAMS_M], before, bytes);
    for (int i = 0; i < 2; i++) {
        const wd_params_buffer buffer = i ? WD_PARAMS_V : WD_PARAMS_M;
        memcpy(before, p->buffer[buffer], bytes);
        assert_true(wd_optimizer_buffer_is_finite(packed.optimizer, buffer, b.queue));
        wd_params_collect(p, buffer, b.queue);
        memset(p->buffer[buffer], 1, bytes);
        wd_params_take(p, buffer, b.queue);
        assert_memory_equal(p->buffer[buffer], before, bytes);
        wd__params_moments(p, buffer, p->count - 32).scales[0] = WD_MOMENT_NOT_FINITE;
        assert_false(wd_optimizer_buffer_is_finite(packed.optimizer, buffer, b.queue));
    }
    wd_free(before);
    wd_free(start);
    wd_optimizer_close(packed.optimizer);
    wd_optimizer_close(usual.optimizer);
    wd_params_close(&packed.params);
    wd_params_close(&usual.params);
    bench_close(&b);
}

/* A run that is resumed counts on from where it was. */
static void test_steps_are_set(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_guard, 1);
    wd_dit_config config = small_config();
    wd_params p;
    wd_optimizer *adamw;
    wd_optimizer_options options = wd_optimizer_defaults();
    wd_test_ok(wd_params_open(&p, &config, WD_F32, WD_PARAMS_TRAINED, b.device, &err), &err);
    wd_test_ok(wd_optimizer_open(&adamw, &options, &p, &err), &err);
    assert_int_equal(wd_optimizer_steps(adamw, b.queue), 0);
    wd_optimizer_set_steps(adamw, (int64_t)1 << 40, b.queue);
    wd_optimizer_step(adamw, 0.01, 0, b.queue);
    assert_int_equal(wd_optimizer_steps(adamw, b.queue), ((int64_t)1 << 40) + 1);
    wd_optimizer_close(adamw);
    wd_params_close(&p);
    bench_close(&b);
}

static void test_lr(void **state)
{
    (void)state;
    wd_lr_schedule s = {WD_LR_COSINE, 0.8, 0.1, 4};
    assert_float_equal(wd_lr_at(&s, 0, 0), 0.2, 1e-12);
    assert_float_equal(wd_lr_at(&s, 3, 0), 0.8, 1e-12);
    assert_float_equal(wd_lr_at(&s, 4, 0.5), 0.8 * 0.55, 1e-12);
    assert_float_equal(wd_lr_at(&s, 100, 1), 0.08, 1e-12);
    assert_float_equal(wd_lr_at(&s, 100, 7), 0.08, 1e-12);
    s = (wd_lr_schedule){.shape = WD_LR_CONSTANT, .lr = 0.3};
    assert_float_equal(wd_lr_at(&s, 0, 0), 0.3, 1e-12);
    assert_float_equal(wd_lr_at(&s, 9, 1), 0.3, 1e-12);
}

/* The slow moments average over 10 steps at the start, with a beta1 of exp(-1/10), over 1,000 at
 * the end, and over the mean of both in the middle. */
static void test_slow_moments(void **state)
{
    (void)state;
    wd_optimizer_options o = {.beta1 = exp(-0.1), .alpha = 5, .beta3 = exp(-0.001)};
    const double progress[] = {-1, 0, 0.5, 1, 7}, alpha[] = {0, 0, 2.5, 5, 5};
    const double steps[] = {10, 10, 505, 1000, 1000};
    for (int i = 0; i < 5; i++) {
        const wd_slow_moments s = wd__slow_moments_at(&o, progress[i]);
        assert_float_equal(s.alpha, alpha[i], 1e-12);
        assert_float_equal(s.beta3, exp(-1 / steps[i]), 1e-12);
    }
    o.beta1 = o.beta3 = 0; /* no average at all */
    assert_true(wd__slow_moments_at(&o, 0.5).beta3 == 0);
    o.alpha = 0; /* AdamW */
    assert_true(wd__slow_moments_at(&o, 0.5).alpha == 0);
}

/* ---- readback ---- */

static void test_readback(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_guard, 1);
    wd_readback *ring;
    float *device, host[3];
    wd_test_ok(wd_device_alloc((void **)&device, b.device, sizeof host, "values", &err), &err);
    wd_test_ok(wd_readback_open(&ring, b.device, 3, 3, &err), &err);
    int64_t allocations = wd__alloc_count();
    int taken = 0;
    for (int step = 0; step < 10; step++) {
        for (int i = 0; i < 3; i++) host[i] = (float)(10 * step + i);
        wd_queue_copy_and_wait(b.queue, device, host, sizeof host);
        wd_readback_gather(ring, device, 1, b.queue);
        wd_readback_gather(ring, device + 1, 2, b.queue);
        wd_readback_commit(ring, step, b.queue);
        while (wd_readback_pending(ring) > 1) {
            wd_readback_values v = wd_readback_take(ring);
            assert_int_equal(v.tag, taken);
            assert_int_equal(v.count, 3);
            for (int i = 0; i < 3; i++) assert_true(v.value[i] == (float)(10 * taken + i));
            taken++;
        }
    }
    assert_int_equal(taken, 9);
    assert_int_equal(wd__alloc_count(), allocations);
    wd_readback_close(ring); /* one still pending */
    wd_device_free(b.device, device);
    bench_close(&b);
}

/* A buffer is looked at in pieces of 64 chunks: the first, the last and those between them. */
static void test_all_of_a_long_buffer_is_looked_at(void **state)
{
    (void)state;
    enum { PIECE = 64 * WD_SUM_CHUNK, COUNT = 2 * PIECE + 5 };
    static const int64_t places[] = {0, PIECE - 1, PIECE, 2 * PIECE - 1, 2 * PIECE, COUNT - 1};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    const wd_dit_config config = small_config();
    const wd_optimizer_options options = wd_optimizer_defaults();
    wd_params p;
    wd_optimizer *adamw;
    void *block;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, WD_PARAMS_TRAINED, b.device, &err), &err);
    wd_test_ok(wd_optimizer_open(&adamw, &options, &p, &err), &err);
    wd_test_ok(wd_device_alloc(&block, b.device, COUNT * sizeof(float), "values", &err), &err);
    float *x = block; /* of the processor's device: host memory */
    memset(x, 0, COUNT * sizeof *x);
    assert_true(wd_optimizer_finds_finite(adamw, x, COUNT, b.queue));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        x[places[i]] = bad[i % 3];
        assert_false(wd_optimizer_finds_finite(adamw, x, COUNT, b.queue));
        x[places[i]] = 1;
    }
    assert_true(wd_optimizer_finds_finite(adamw, x, COUNT, b.queue));
    wd_device_free(b.device, block);
    wd_optimizer_close(adamw);
    wd_params_close(&p);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_moments_in_8_bits),
        cmocka_unit_test(test_all_of_a_long_buffer_is_looked_at),
        cmocka_unit_test(test_steps_are_set),
        cmocka_unit_test(test_lr),
        cmocka_unit_test(test_slow_moments),
        cmocka_unit_test(test_readback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
