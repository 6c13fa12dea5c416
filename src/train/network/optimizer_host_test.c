/* Steps in host memory give the bits of steps on the device, in every buffer and in the weights
 * that passes take. */
#include "train/network/optimizer_host.h"

#include "dev/moments.h"
#include "dev/ops.h"
#include "student_fixture.h"
#include "train/network/optimizer.h"

/* Fails where passes take other weights of `host` than of `device`. */
static void compare_weights(const bench *b, const wd_params *host, const wd_params *device)
{
    for (int64_t line = 0; line < device->table.count; line++) {
        const wd_tensor is = wd_params_weight(host, line), should = wd_params_weight(device, line);
        const size_t bytes = wd_tensor_bytes(&should);
        char *found, *expected;
        wd_err err;
        wd_test_ok(wd_alloc((void **)&found, 2, bytes, "weights", &err), &err);
        expected = found + bytes;
        wd_queue_copy_and_wait(b->queue, found, is.data, bytes);
        wd_queue_copy_and_wait(b->queue, expected, should.data, bytes);
        assert_int_equal(is.dtype, should.dtype);
        assert_memory_equal(found, expected, bytes);
        wd_free(found);
    }
}

static void compare_buffers(const bench *b, wd_params *host, wd_params *device)
{
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        const wd_params_buffer buffer = (wd_params_buffer)i;
        if (buffer == WD_PARAMS_G || !device->buffer[i]) continue;
        float *found = read_buffer(b, host, buffer), *expected = read_buffer(b, device, buffer);
        assert_memory_equal(found, expected, (size_t)device->count * sizeof *found);
        wd_free(found);
        wd_free(expected);
    }
}

/* A network and its optimizer. */
typedef struct trained {
    wd_params params;
    wd_optimizer *optimizer;
} trained;

static void open_trained(trained *t, const bench *b, const wd_dit_config *config, wd_dtype dtype,
                         unsigned kinds, const wd_optimizer_options *options)
{
    wd_err err;
    wd_test_ok(wd_params_open(&t->params, config, dtype, kinds, b->device, &err), &err);
    wd_test_ok(wd_optimizer_open(&t->optimizer, options, &t->params, &err), &err);
    fill_buffer(b, &t->params, WD_PARAMS_P, 1, 1, 0);
    wd_optimizer_start_ema(t->optimizer, b->queue);
    wd_params_show(&t->params, WD_PARAMS_P, b->queue);
}

static void close_trained(const bench *b, trained *t)
{
    wd_queue_wait(b->queue);
    wd_optimizer_close(t->optimizer);
    wd_params_close(&t->params);
}

/* Steps, of which the second is dropped. */
static void take_steps(const bench *b, trained *t, int steps)
{
    for (int i = 0; i < steps; i++) {
        wd_params_zero_grads(&t->params, b->queue);
        fill_buffer(b, &t->params, WD_PARAMS_G, (uint64_t)(100 + i), 0.1f, 0);
        if (i == 1)
            wd_queue_copy_and_wait(b->queue, t->params.buffer[WD_PARAMS_G] + 7, &(float){NAN},
                                   sizeof(float));
        wd_optimizer_step(t->optimizer, 0.01, 0.2 * i, b->queue);
    }
}

/* What was collected of moments in 8 bits is taken without loss. */
static void check_that_taking_changes_nothing(const bench *b, wd_params *params)
{
    for (int i = 0; i < 2; i++) {
        const wd_params_buffer buffer = i ? WD_PARAMS_V : WD_PARAMS_M;
        const size_t bytes = wd_params_buffer_bytes(params, buffer);
        void *before;
        wd_err err;
        wd_test_ok(wd_alloc(&before, bytes, 1, "moments", &err), &err);
        memcpy(before, params->buffer[buffer], bytes);
        wd_params_collect(params, buffer, b->queue);
        memset(params->buffer[buffer], 1, bytes);
        wd_params_take(params, buffer, b->queue);
        assert_memory_equal(params->buffer[buffer], before, bytes);
        wd_free(before);
    }
}

/* `place`: WD_PARAMS_STATE_ON_HOST or WD_PARAMS_EMA_ON_HOST; `more`: WD_PARAMS_MOMENTS_IN_8_BITS
 * and WD_PARAMS_GRADIENTS_IN_BF16, or 0. */
static void compare_at(const wd_dit_config *config, wd_dtype dtype, double decay, double alpha,
                       unsigned place, unsigned more)
{
    enum { STEPS = 5 };
    bench b = bench_on(open_sim, 1);
    trained host, device;
    wd_optimizer_options options = wd_optimizer_defaults();
    options.decay = decay;
    options.alpha = alpha;
    options.beta3 = 0.99;
    const bool in_8_bits = options.moments_in_8_bits = more & WD_PARAMS_MOMENTS_IN_8_BITS;
    const unsigned kinds =
        WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA | (alpha > 0 ? WD_PARAMS_WITH_SLOW : 0u) | more;
    open_trained(&host, &b, config, dtype, kinds | place, &options);
    open_trained(&device, &b, config, dtype, kinds, &options);
    compare_weights(&b, &host.params, &device.params);
    take_steps(&b, &host, STEPS);
    take_steps(&b, &device, STEPS);
    assert_int_equal(wd_optimizer_steps(host.optimizer, b.queue), STEPS - 1);
    static const wd_params_buffer shown[] = {WD_PARAMS_EMA, WD_PARAMS_P};
    for (int i = 0; i < 2; i++) {
        wd_params_show(&host.params, shown[i], b.queue);
        wd_params_show(&device.params, shown[i], b.queue);
        compare_weights(&b, &host.params, &device.params);
    }
    compare_buffers(&b, &host.params, &device.params);
    if (in_8_bits && place == WD_PARAMS_STATE_ON_HOST)
        check_that_taking_changes_nothing(&b, &host.params);
    wd_params_release(&host.params, b.queue);
    wd_params_release(&device.params, b.queue);
    compare_weights(&b, &host.params, &device.params);
    take_steps(&b, &host, 1);
    take_steps(&b, &device, 1);
    wd_params_show(&host.params, WD_PARAMS_P, b.queue);
    compare_weights(&b, &host.params, &device.params);
    compare_buffers(&b, &host.params, &device.params);
    close_trained(&b, &host);
    close_trained(&b, &device);
    bench_close(&b);
}

static void compare(const wd_dit_config *config, wd_dtype dtype, double decay, double alpha,
                    unsigned more)
{
    compare_at(config, dtype, decay, alpha, WD_PARAMS_STATE_ON_HOST, more);
    compare_at(config, dtype, decay, alpha, WD_PARAMS_EMA_ON_HOST, more);
}

/* Runs of the same decay are chunks of their own: there are many more than staging places. */
static void test_bits(void **state)
{
    (void)state;
    const wd_dit_config config = small_config();
    compare(&config, WD_F32, 0, 0, 0);
    compare(&config, WD_F32, 0.1, 5, 0);
    compare(&config, WD_BF16, 0.1, 0, 0);
    compare(&config, WD_BF16, 0.1, 5, 0);
    compare(&config, WD_F32, 0.1, 0, WD_PARAMS_MOMENTS_IN_8_BITS);
    compare(&config, WD_BF16, 0.1, 0, WD_PARAMS_MOMENTS_IN_8_BITS);
    compare(&config, WD_BF16, 0.1, 5, WD_PARAMS_GRADIENTS_IN_BF16);
    compare(&config, WD_BF16, 0, 0, WD_PARAMS_MOMENTS_IN_8_BITS | WD_PARAMS_GRADIENTS_IN_BF16);
}

/* A run of the same decay that is cut into chunks. */
static void test_long_runs(void **state)
{
    (void)state;
    wd_dit_config config = small_config();
    config.ffn_dim = (9 << 19) / 4 / (config.heads * config.head_dim);
    compare(&config, WD_BF16, 0, 0, 0);
    compare(&config, WD_BF16, 0, 0, WD_PARAMS_MOMENTS_IN_8_BITS);
}

/* The device has gradients and what passes take, the host the rest. */
static void test_memory(void **state)
{
    (void)state;
    bench b = bench_on(open_sim, 1);
    const wd_dit_config config = small_config();
    const wd_optimizer_options options = wd_optimizer_defaults();
    const unsigned kinds = WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA | WD_PARAMS_STATE_ON_HOST;
    trained t;
    open_trained(&t, &b, &config, WD_BF16, kinds, &options); /* the device keeps names of blocks */
    close_trained(&b, &t);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const int64_t before = wd_memory_held();
        open_trained(&t, &b, &config, bf16 ? WD_BF16 : WD_F32, kinds, &options);
        const size_t n = (size_t)t.params.count, islands = (size_t)t.params.islands_count;
        assert_int_equal(wd_params_bytes(&t.params), bf16 ? 6 * n + 4 * islands : 8 * n);
        assert_true((size_t)(wd_memory_held() - before) >= (bf16 ? 16 : 12) * n);
        close_trained(&b, &t);
        assert_int_equal(wd_memory_held(), before);
    }
    bench_close(&b);
}

/* Only the EMA is on the host. */
static void test_memory_of_ema(void **state)
{
    (void)state;
    bench b = bench_on(open_sim, 1);
    const wd_dit_config config = small_config();
    const wd_optimizer_options options = wd_optimizer_defaults();
    const unsigned kinds = WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA | WD_PARAMS_EMA_ON_HOST;
    trained t;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        open_trained(&t, &b, &config, bf16 ? WD_BF16 : WD_F32, kinds, &options);
        const size_t n = (size_t)t.params.count, islands = (size_t)t.params.islands_count;
        assert_int_equal(wd_params_bytes(&t.params), 16 * n + 4 * islands);
        for (int i = 0; i < WD_PARAMS_BUFFERS; i++)
            assert_int_equal(wd_params_is_on_host(&t.params, (wd_params_buffer)i),
                             i == WD_PARAMS_EMA);
        close_trained(&b, &t);
    }
    bench_close(&b);
}

static void test_finite(void **state)
{
    (void)state;
    bench b = bench_on(open_sim, 1);
    const wd_dit_config config = small_config();
    const wd_optimizer_options options = wd_optimizer_defaults();
    trained t;
    open_trained(&t, &b, &config, WD_BF16, WD_PARAMS_TRAINED | WD_PARAMS_STATE_ON_HOST, &options);
    take_steps(&b, &t, 1);
    assert_true(wd_optimizer_buffer_is_finite(t.optimizer, WD_PARAMS_V, b.queue));
    t.params.buffer[WD_PARAMS_V][t.params.count - 1] = INFINITY;
    assert_false(wd_optimizer_buffer_is_finite(t.optimizer, WD_PARAMS_V, b.queue));
    assert_true(wd_optimizer_buffer_is_finite(t.optimizer, WD_PARAMS_M, b.queue));
    close_trained(&b, &t);
    bench_close(&b);
}

static void test_moments_in_8_bits(void **state)
{
    (void)state;
    bench b = bench_on(open_sim, 1);
    const wd_dit_config config = small_config();
    wd_optimizer_options options = wd_optimizer_defaults();
    options.moments_in_8_bits = true;
    trained t;
    open_trained(&t, &b, &config, WD_BF16,
                 WD_PARAMS_TRAINED | WD_PARAMS_STATE_ON_HOST | WD_PARAMS_MOMENTS_IN_8_BITS,
                 &options);
    const int64_t count = t.params.count;
    const size_t bytes = (size_t)(count + count / 32 * 2);
    assert_int_equal(wd_params_buffer_bytes(&t.params, WD_PARAMS_M), bytes);
    take_steps(&b, &t, 1);
    wd__params_await(&t.params, b.queue);
    assert_true(wd_optimizer_buffer_is_finite(t.optimizer, WD_PARAMS_V, b.queue));
    wd__params_moments(&t.params, WD_PARAMS_V, count - 32).scales[0] = WD_MOMENT_NOT_FINITE;
    assert_false(wd_optimizer_buffer_is_finite(t.optimizer, WD_PARAMS_V, b.queue));
    assert_true(wd_optimizer_buffer_is_finite(t.optimizer, WD_PARAMS_M, b.queue));
    close_trained(&b, &t);
    bench_close(&b);
}

/* Whatever allocation fails, nothing is left behind. */
static void test_open_without_memory(void **state)
{
    (void)state;
    bench b = bench_on(open_sim, 1);
    const wd_dit_config config = small_config();
    const wd_optimizer_options options = wd_optimizer_defaults();
    wd_params params;
    wd_err err;
    wd_optimizer *optimizer;
    wd_status status = WD_OUT_OF_MEMORY;
    wd_test_ok(wd_params_open(&params, &config, WD_BF16,
                              WD_PARAMS_TRAINED | WD_PARAMS_STATE_ON_HOST, b.device, &err),
               &err);
    const int64_t before = wd_memory_held();
    for (int64_t n = 1; status == WD_OUT_OF_MEMORY; n++) {
        wd__alloc_fail_at(n);
        status = wd_optimizer_open(&optimizer, &options, &params, &err);
        wd__alloc_fail_at(0);
        if (status == WD_OUT_OF_MEMORY) assert_int_equal(wd_memory_held(), before);
    }
    wd_test_ok(status, &err);
    wd_optimizer_close(optimizer);
    assert_int_equal(wd_memory_held(), before);
    wd_params_close(&params);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_of_ema),
        cmocka_unit_test(test_finite),
        cmocka_unit_test(test_moments_in_8_bits),
        cmocka_unit_test(test_open_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
