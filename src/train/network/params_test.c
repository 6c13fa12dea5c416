/* The layout of the flat buffers, the views into them, and what they cost. */
#include "failing.h"
#include "student_fixture.h"
#include "train/network/params.h"

static void test_layout(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_dit_config config = small_config();
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, WD_PARAMS_TRAINED, b.device, &err), &err);
    int64_t end = 0, weights = 0;
    for (int64_t line = 0; line < p.table.count; line++) {
        wd_tensor t = wd_params_tensor(&p, WD_PARAMS_P, line);
        assert_int_equal(p.offset[line] % WD_PARAMS_ALIGN, 0);
        assert_true(p.offset[line] >= end && p.offset[line] < end + WD_PARAMS_ALIGN);
        assert_ptr_equal(t.data, p.buffer[WD_PARAMS_P] + p.offset[line]);
        end = p.offset[line] + wd_tensor_count(&t);
        weights += wd_tensor_count(&t);
    }
    assert_int_equal(p.weights, weights);
    assert_true(p.count >= end && p.count < end + WD_PARAMS_ALIGN);
    assert_null(p.buffer[WD_PARAMS_EMA]);
    assert_null(p.copy);

    int64_t next = 0;
    for (int stage = 0; stage < wd_dit_stages(&config); stage++) {
        int64_t first, count;
        wd__params_stage_range(&first, &count, &p, stage);
        assert_int_equal(first, next);
        next = first + count;
    }
    assert_int_equal(next, p.count);
    wd_params_close(&p);
    bench_close(&b);
}

/* At Wan's own widths Q, K and V touch, so that one product serves them. */
static void test_fusable(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_device *dry;
    wd_test_ok(wd_device_open_dry(&dry, b.device, &err), &err);
    wd_dit_config config = small_config();
    config.heads = 12;
    config.head_dim = 128;
    wd_params p;
    wd_dit_stage w;
    wd_test_ok(wd_params_open(&p, &config, WD_BF16, 0, dry, &err), &err);
    wd__params_weights(&w, &p, 1);
    const char *q = w.t[WD_DIT_BLOCK_SELF_Q_W].data, *k = w.t[WD_DIT_BLOCK_SELF_K_W].data;
    const char *v = w.t[WD_DIT_BLOCK_SELF_V_W].data;
    assert_int_equal(k - q, 1536 * 1536 * 2);
    assert_int_equal(v - k, 1536 * 1536 * 2);
    q = w.t[WD_DIT_BLOCK_SELF_Q_B].data;
    k = w.t[WD_DIT_BLOCK_SELF_K_B].data;
    assert_int_equal(k - q, 1536 * 2);
    wd_params_close(&p);
    wd_device_close(dry);
    bench_close(&b);
}

static void test_views(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_guard, 1);
    wd_dit_config config = small_config();
    wd_params p;
    unsigned kinds = WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA;
    wd_test_ok(wd_params_open(&p, &config, WD_BF16, kinds, b.device, &err), &err);
    fill_buffer(&b, &p, WD_PARAMS_P, 1, 1, 0);
    fill_buffer(&b, &p, WD_PARAMS_EMA, 2, 1, 0);
    float *filled[] = {read_buffer(&b, &p, WD_PARAMS_P), read_buffer(&b, &p, WD_PARAMS_EMA)};
    wd_dit_stage w;
    for (int from_ema = 0; from_ema < 2; from_ema++) {
        wd_params_buffer buffer = from_ema ? WD_PARAMS_EMA : WD_PARAMS_P;
        wd_params_show(&p, buffer, b.queue);
        wd__params_weights(&w, &p, 1);
        const wd_tensor *island = &w.t[WD_DIT_BLOCK_TABLE], *q = &w.t[WD_DIT_BLOCK_SELF_Q_W];
        int64_t line = wd_dit_stage_first(&config, 1);
        assert_int_equal(island->dtype, WD_F32);
        float *shown = read_floats(&b, island->data, wd_tensor_count(island));
        assert_memory_equal(shown, filled[buffer == WD_PARAMS_EMA] + p.offset[line],
                            wd_tensor_bytes(island));
        assert_int_equal(q->dtype, WD_BF16);
        line += WD_DIT_BLOCK_SELF_Q_W;
        const float *master = filled[buffer == WD_PARAMS_EMA] + p.offset[line];
        uint16_t *copy = (uint16_t *)read_floats(&b, q->data, 24 * 24 / 2);
        for (int i = 0; i < 24 * 24; i++) assert_int_equal(copy[i], wd_f32_to_bf16(master[i]));
        wd_free(shown);
        wd_free(copy);
    }
    wd_params_show(&p, WD_PARAMS_P, b.queue);
    for (int i = 0; i < 2; i++) wd_free(filled[i]);
    wd__params_grads(&w, &p, 1);
    assert_int_equal(w.t[WD_DIT_BLOCK_SELF_Q_W].dtype, WD_F32);
    fill_buffer(&b, &p, WD_PARAMS_G, 3, 1, 0);
    wd_params_zero_grads(&p, b.queue);
    float *g = read_floats(&b, p.buffer[WD_PARAMS_G], p.count);
    for (int64_t i = 0; i < p.count; i++) assert_true(g[i] == 0);
    wd_free(g);
    wd_params_close(&p);
    wd_params_close(&p); /* a closed one is a zeroed one */
    bench_close(&b);
}

/* The weights as passes take them, by themselves: those that the network would show. In BF16 they
 * take 2 bytes each, and their islands 4. */
static void test_copies_what_is_computed_with(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_guard, 1);
    wd_dit_config config = small_config();
    for (int dtype = 0; dtype < 2; dtype++) {
        wd_params p, q;
        const wd_dtype type = dtype ? WD_BF16 : WD_F32;
        wd_test_ok(wd_params_open(&p, &config, type, WD_PARAMS_WITH_EMA, b.device, &err), &err);
        wd_test_ok(wd_params_open(&q, &config, type, WD_PARAMS_AS_COMPUTED, b.device, &err), &err);
        const size_t bf16 = (size_t)(2 * q.count + 4 * q.islands_count);
        assert_true(q.islands_count < q.count / 2);
        assert_int_equal(wd_params_bytes(&q), dtype ? bf16 : 4 * (size_t)q.count);
        fill_buffer(&b, &p, WD_PARAMS_P, 1, 1, 0);
        fill_buffer(&b, &p, WD_PARAMS_EMA, 2, 1, 0);
        wd_params_show(&p, WD_PARAMS_P, b.queue);
        wd_params_copy_computed(&q, &p, WD_PARAMS_EMA, b.queue);
        wd_params_show(&p, WD_PARAMS_EMA, b.queue);
        for (int64_t line = 0; line < p.table.count; line++) {
            const wd_tensor x = wd_params_weight(&p, line), y = wd_params_weight(&q, line);
            const size_t bytes = wd_tensor_bytes(&x);
            char *from = malloc(bytes), *to = malloc(bytes);
            assert_int_equal(x.dtype, y.dtype);
            wd_queue_copy_and_wait(b.queue, from, x.data, bytes);
            wd_queue_copy_and_wait(b.queue, to, y.data, bytes);
            assert_memory_equal(from, to, bytes);
            free(from);
            free(to);
        }
        wd_params_close(&q);
        wd_params_close(&p);
    }
    bench_close(&b);
}

static void test_bytes(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_device *dry;
    wd_dit_config config = small_config();
    wd_test_ok(wd_device_open_dry(&dry, b.device, &err), &err);
    unsigned all = WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA;
    unsigned kinds[] = {0, WD_PARAMS_TRAINED, WD_PARAMS_WITH_EMA, all};
    int floats[] = {1, 4, 2, 5};
    int in_bf16[] = {6, 16, 10, 20}; /* weights that are trained take 4 bytes, else 6 */
    for (int i = 0; i < 8; i++) {
        wd_params p, planned;
        wd_dtype dtype = i < 4 ? WD_F32 : WD_BF16;
        size_t before = wd_device_bytes(b.device), dry_before = wd_device_bytes(dry);
        wd_test_ok(wd_params_open(&p, &config, dtype, kinds[i % 4], b.device, &err), &err);
        wd_test_ok(wd_params_open(&planned, &config, dtype, kinds[i % 4], dry, &err), &err);
        size_t bytes = (size_t)p.count * (size_t)(i < 4 ? 4 * floats[i % 4] : in_bf16[i % 4]);
        assert_int_equal(p.islands_count > 0, in_bf16[i % 4] >= 16 && i >= 4);
        bytes += (size_t)p.islands_count * sizeof(float);
        assert_int_equal(wd_params_bytes(&p), bytes);
        assert_int_equal(wd_device_bytes(b.device) - before, bytes);
        assert_int_equal(wd_device_bytes(dry) - dry_before, bytes);
        wd_params_close(&p);
        wd_params_close(&planned);
        assert_int_equal(wd_device_bytes(b.device), before);
    }
    wd_device_close(dry);
    bench_close(&b);
}

/* Copy and gradients are beside one another: 2 bytes less a weight, and those of a stage in F32. */
static void test_bytes_of_bf16_gradients(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    const wd_dit_config config = small_config();
    const unsigned kinds = WD_PARAMS_TRAINED | WD_PARAMS_GRADIENTS_IN_BF16;
    int64_t most = 0;
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_BF16, kinds, b.device, &err), &err);
    for (int stage = 0; stage < wd_dit_stages(&config); stage++) {
        int64_t first, count;
        wd__params_stage_range(&first, &count, &p, stage);
        most = count > most ? count : most;
    }
    assert_int_equal(wd_params_bytes(&p), 14 * p.count + 4 * most + 4 * p.islands_count);
    assert_int_equal(wd_device_bytes(b.device), wd_params_bytes(&p));
    wd_params_close(&p);
    assert_int_equal(wd_device_bytes(b.device), 0);
    bench_close(&b);
}

/* What passes take, as a new host array: the copy, then the islands. */
static char *read_shown(const bench *b, const wd_params *p, size_t *bytes)
{
    const size_t copy = (size_t)p->count * sizeof(uint16_t);
    const size_t islands = (size_t)p->islands_count * sizeof(float);
    char *out = malloc(copy + islands);
    wd_queue_copy_and_wait(b->queue, out, p->copy, copy);
    wd_queue_copy_and_wait(b->queue, out + copy, p->islands, islands);
    *bytes = copy + islands;
    return out;
}

/* Fails unless passes take `expected` (`same`), or anything else. */
static void check_shown(const bench *b, const wd_params *p, const char *expected, bool same)
{
    size_t bytes;
    char *shown = read_shown(b, p, &bytes);
    assert_int_equal(!memcmp(shown, expected, bytes), same);
    free(shown);
}

/* The copy is half of the weights: it and they are as they were after other buffers are brought
 * together, and after the EMA is shown, twice. */
static void test_weights_are_kept(void **state)
{
    (void)state;
    static const unsigned more[] = {0,
                                    WD_PARAMS_GRADIENTS_IN_BF16,
                                    WD_PARAMS_MOMENTS_IN_8_BITS,
                                    WD_PARAMS_GRADIENTS_IN_BF16 | WD_PARAMS_MOMENTS_IN_8_BITS,
                                    WD_PARAMS_EMA_ON_HOST,
                                    WD_PARAMS_EMA_ON_HOST | WD_PARAMS_GRADIENTS_IN_BF16};
    wd_err err;
    const wd_dit_config config = small_config();
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const bool on_host = more[i] & WD_PARAMS_EMA_ON_HOST; /* which a processor does not tell */
        bench b = bench_on(on_host ? open_sim : wd_device_open_guard, 1);
        const unsigned kinds = WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA | more[i];
        wd_params p;
        size_t bytes;
        wd_test_ok(wd_params_open(&p, &config, WD_BF16, kinds, b.device, &err), &err);
        fill_buffer(&b, &p, WD_PARAMS_EMA, 2, 1, 0);
        fill_buffer(&b, &p, WD_PARAMS_P, 1, 1, 0);
        wd_params_show(&p, WD_PARAMS_P, b.queue);
        char *shown = read_shown(&b, &p, &bytes);
        float *before = read_buffer(&b, &p, WD_PARAMS_P);
        check_shown(&b, &p, shown, true);
        wd_params_collect(&p, WD_PARAMS_M, b.queue);
        wd_params_collect(&p, WD_PARAMS_P, b.queue);
        wd_params_collect(&p, WD_PARAMS_V, b.queue);
        check_shown(&b, &p, shown, !(more[i] & WD_PARAMS_GRADIENTS_IN_BF16));
        wd_params_release(&p, b.queue);
        check_shown(&b, &p, shown, true);
        for (int twice = 0; twice < 2; twice++) {
            wd_params_show(&p, WD_PARAMS_EMA, b.queue);
            check_shown(&b, &p, shown, false);
        }
        wd_params_show(&p, WD_PARAMS_P, b.queue);
        check_shown(&b, &p, shown, true);
        float *after = read_buffer(&b, &p, WD_PARAMS_P);
        assert_memory_equal(before, after, (size_t)p.count * sizeof *after);
        free(shown);
        wd_free(before);
        wd_free(after);
        wd_queue_wait(b.queue); /* the copy may still be on its way back */
        wd_params_close(&p);
        bench_close(&b);
    }
}

static wd_status open_and_close(void *context, wd_err *err)
{
    const unsigned *kinds = context;
    const wd_dit_config config = small_config();
    wd_device *device;
    wd_params p;
    WD_TRY(wd_device_open_cpu(&device, 1, err));
    const wd_status status = wd_params_open(&p, &config, WD_BF16, *kinds, device, err);
    if (status == WD_OK) wd_params_close(&p);
    assert_int_equal(wd_device_bytes(device), 0);
    wd_device_close(device);
    return status;
}

static void test_allocation_fails(void **state)
{
    (void)state;
    unsigned kinds = WD_PARAMS_TRAINED;
    wd_test_failing_allocations(open_and_close, NULL, &kinds, 4);
    kinds |= WD_PARAMS_GRADIENTS_IN_BF16;
    wd_test_failing_allocations(open_and_close, NULL, &kinds, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_fusable),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_copies_what_is_computed_with),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bytes_of_bf16_gradients),
        cmocka_unit_test(test_weights_are_kept),
        cmocka_unit_test(test_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
