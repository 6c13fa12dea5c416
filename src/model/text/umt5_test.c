/* The UMT5 encoder against transformers' own outputs (tests/fixtures/umt5): fp32 and bf16, padded
 * and ragged, weights in place and converted, on the guarded device. The table names exactly the
 * tensors of real checkpoints. */
#include "failing.h"
#include "model/text/umt5_impl.h"
#include "test_preset.h"

/* Relative L2 errors that the project promises. bf16 is compared with a bf16 reference whose own
 * distance from fp32 is 8e-3 here. */
static const double tolerance_f32 = 2e-5, tolerance_bf16 = 1.5e-2;

static const char folder[] = "tests/fixtures/umt5";
static const wd_umt5_config config = {.vocab_size = 300,
                                      .d_model = 64,
                                      .d_kv = 16,
                                      .d_ff = 96,
                                      .heads = 4,
                                      .layers = 2,
                                      .buckets = 32,
                                      .max_distance = 128,
                                      .eps = 1e-6};

typedef struct fixture {
    int64_t samples, tokens;
    int32_t *ids, *mask;
    float *reference, *reference_bf16;
} fixture;

static int32_t *load_ids(const char *file, const char *name, int64_t dim[2])
{
    wd_tensor t = wd_test_load(file, name);
    int64_t count = wd_tensor_count(&t);
    int32_t *out = t.data; /* narrowed in place */
    assert_int_equal(t.dtype, WD_I64);
    for (int64_t i = 0; i < count; i++) {
        int64_t v;
        memcpy(&v, (char *)t.data + 8 * i, 8);
        out[i] = (int32_t)v;
    }
    dim[0] = t.dim[0];
    dim[1] = t.dim[1];
    return out;
}

static int load(void **state)
{
    static fixture f;
    char file[256];
    int64_t dim[2];
    snprintf(file, sizeof file, "%s/in.safetensors", folder);
    f.ids = load_ids(file, "input_ids", dim);
    f.mask = load_ids(file, "attention_mask", dim);
    f.samples = dim[0];
    f.tokens = dim[1];
    snprintf(file, sizeof file, "%s/out.safetensors", folder);
    f.reference = wd_test_load(file, "last_hidden_state").data;
    snprintf(file, sizeof file, "%s/out_bf16.safetensors", folder);
    f.reference_bf16 = wd_test_load(file, "last_hidden_state").data;
    *state = &f;
    return 0;
}

static int unload(void **state)
{
    fixture *f = *state;
    wd_free(f->ids);
    wd_free(f->mask);
    wd_free(f->reference);
    wd_free(f->reference_bf16);
    return 0;
}

/* The fixture's weights again, in another dtype: path of the new file. */
static const char *weights_in(wd_dtype dtype)
{
    static char path[WD_PATH_MAX];
    wd_safetensors *set;
    wd_safetensors_writer *writer;
    wd_safetensors_item item[64] = {0};
    wd_err err;
    const char *original = WD_SOURCE_DIR "/tests/fixtures/umt5/text_encoder/model.safetensors";
    snprintf(path, sizeof path, "%s/%s.safetensors", wd_test_folder(), wd_dtype_file_name(dtype));
    wd_test_ok(wd_safetensors_open(&set, original, &err), &err);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        item[i] = (wd_safetensors_item){.name = e->name, .dtype = dtype, .ndim = e->tensor.ndim};
        memcpy(item[i].dim, e->tensor.dim, sizeof item[i].dim);
    }
    wd_test_ok(wd_safetensors_create(&writer, path, item, wd_safetensors_count(set), NULL, &err),
               &err);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_tensor *t = &wd_safetensors_at(set, i)->tensor;
        for (int64_t j = 0; j < wd_tensor_count(t); j++) {
            float v = ((const float *)t->data)[j];
            uint16_t half = dtype == WD_BF16 ? wd_f32_to_bf16(v) : wd_f32_to_f16(v);
            wd_test_ok(wd_safetensors_put(writer, &half, 2, &err), &err);
        }
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    wd_safetensors_close(set);
    return path;
}

/* An encoder with what it borrows. */
typedef struct session {
    wd_device *device;
    wd_queue *queue;
    wd_safetensors *weights;
    wd_umt5 *encoder;
} session;

/* On a device that the session owns. */
static session open_session_on(wd_device *device, wd_dtype file_dtype, wd_dtype dtype)
{
    session s = {.device = device};
    wd_err err;
    const char *path = file_dtype == WD_F32 ? WD_SOURCE_DIR
                           "/tests/fixtures/umt5/text_encoder/model.safetensors"
                                            : weights_in(file_dtype);
    wd_test_ok(wd_queue_open(&s.queue, s.device, &err), &err);
    wd_test_ok(wd_safetensors_open(&s.weights, path, &err), &err);
    wd_test_ok(wd_umt5_open(&s.encoder, &config, s.weights, dtype, s.queue, &err), &err);
    return s;
}

static session open_session(wd_dtype file_dtype, wd_dtype dtype, bool guard)
{
    wd_device *device;
    wd_err err;
    wd_test_ok((guard ? wd_device_open_guard : wd_device_open_cpu)(&device, 0, &err), &err);
    return open_session_on(device, file_dtype, dtype);
}

static void close_session(session *s)
{
    wd_umt5_close(s->encoder);
    wd_safetensors_close(s->weights);
    wd_queue_close(s->queue);
    assert_int_equal(wd_device_bytes(s->device), 0);
    wd_device_close(s->device);
}

/* last_hidden_state with the rows past each length zeroed, as the fixture has it. */
static float *encode(const fixture *f, wd_dtype file_dtype, wd_dtype dtype, bool guard)
{
    wd_err err;
    int64_t width = config.d_model;
    float *out = calloc((size_t)(f->samples * f->tokens * width), sizeof *out);
    session s = open_session(file_dtype, dtype, guard);
    wd_test_ok(wd_umt5_encode(s.encoder, out, f->ids, f->mask, f->samples, f->tokens, &err), &err);
    close_session(&s);
    for (int64_t i = 0; i < f->samples * f->tokens * width; i++) {
        if (!f->mask[i / width]) out[i] = 0;
    }
    return out;
}

static int64_t count_of(const fixture *f)
{
    return f->samples * f->tokens * config.d_model;
}

static void fp32(void **state)
{
    const fixture *f = *state;
    float *out = encode(f, WD_F32, WD_F32, true);
    double error = wd_test_rel_error(out, f->reference, count_of(f));
    print_message("fp32: %.2g\n", error);
    assert_true(error <= tolerance_f32);
    free(out);
}

/* 130 tokens without a mask: every bucket of the relative bias. */
static void long_prompt(void **state)
{
    (void)state;
    int64_t dim[2];
    wd_err err;
    int32_t *ids = load_ids("tests/fixtures/umt5/in_long.safetensors", "input_ids", dim);
    wd_tensor want = wd_test_load("tests/fixtures/umt5/out_long.safetensors", "last_hidden_state");
    float *out = calloc((size_t)wd_tensor_count(&want), sizeof *out);
    session s = open_session(WD_F32, WD_F32, true);
    wd_test_ok(wd_umt5_encode(s.encoder, out, ids, NULL, dim[0], dim[1], &err), &err);
    assert_true(wd_test_rel_error(out, want.data, wd_tensor_count(&want)) <= tolerance_f32);
    close_session(&s);
    free(out);
    wd_free(ids);
    wd_free(want.data);
}

static void bf16(void **state)
{
    const fixture *f = *state;
    float *wide = encode(f, WD_F32, WD_F32, false), *out = encode(f, WD_F32, WD_BF16, true);
    double error = wd_test_rel_error(out, f->reference_bf16, count_of(f));
    double ours = wd_test_rel_error(out, wide, count_of(f));
    double theirs = wd_test_rel_error(f->reference_bf16, f->reference, count_of(f));
    print_message("bf16: %.2g from the reference; from fp32 %.2g, the reference's %.2g\n", error,
                  ours, theirs);
    assert_true(error <= tolerance_bf16);
    assert_true(ours >= 0.5 * theirs && ours <= 2 * theirs); /* bf16 is really used */
    free(wide);
    free(out);
}

/* bf16 weights used in place give the bits of fp32 weights converted, layer by layer; F16 and BF16
 * files widen to fp32 at their own precision. */
static void file_dtypes(void **state)
{
    const fixture *f = *state;
    float *converted = encode(f, WD_F32, WD_BF16, false);
    float *in_place = encode(f, WD_BF16, WD_BF16, false);
    assert_memory_equal(converted, in_place, (size_t)count_of(f) * sizeof *converted);
    float *from_f16 = encode(f, WD_F16, WD_F32, true);
    double error = wd_test_rel_error(from_f16, f->reference, count_of(f));
    assert_true(error > tolerance_f32 && error < 2e-3);
    float *from_bf16 = encode(f, WD_BF16, WD_F32, true);
    error = wd_test_rel_error(from_bf16, f->reference, count_of(f));
    assert_true(error > tolerance_f32 && error < tolerance_bf16);
    free(converted);
    free(in_place);
    free(from_f16);
    free(from_bf16);
}

/* Rows of unpadded prompts equal those of padded prompts, for any order of lengths; prompts of one
 * length share a launch. */
static void ragged(void **state)
{
    const fixture *f = *state;
    const int64_t order[] = {1, 2, 0, 0, 1};
    int64_t first[6] = {0}, width = config.d_model;
    int32_t ids[256];
    wd_err err;
    for (int i = 0; i < 5; i++) {
        int64_t n = 0;
        for (; n < f->tokens && f->mask[order[i] * f->tokens + n]; n++)
            ids[first[i] + n] = f->ids[order[i] * f->tokens + n];
        first[i + 1] = first[i] + n;
    }
    float *out = calloc((size_t)(first[5] * width), sizeof *out);
    session s = open_session(WD_F32, WD_F32, true);
    wd_test_ok(wd_umt5_encode_rows(s.encoder, out, ids, first, 5, &err), &err);
    for (int i = 0; i < 5; i++) {
        const float *want = f->reference + order[i] * f->tokens * width;
        double error =
            wd_test_rel_error(out + first[i] * width, want, (first[i + 1] - first[i]) * width);
        assert_true(error <= tolerance_f32);
    }
    close_session(&s);
    free(out);
}

enum { COPIES = 67, PIECES = 2 }; /* 67 * 17 > 1024 rows */

/* A device with memory of its own attends prompt by prompt, the processor piece by piece; the bits
 * are the same. */
static void prompts_one_by_one(void **state)
{
    const fixture *f = *state;
    const size_t count = (size_t)(COPIES * 17 * config.d_model);
    int64_t first[COPIES + 1] = {0}, launches[2];
    int32_t ids[COPIES * 17];
    float *out[2];
    wd_err err;
    for (int i = 0; i < COPIES; i++) {
        memcpy(ids + i * 17, f->ids + f->tokens, 17 * sizeof *ids);
        first[i + 1] = first[i] + 17;
    }
    for (int simulated = 0; simulated < 2; simulated++) {
        wd_device *device;
        if (simulated)
            wd_test_ok(wd_device_open_sim(&device, &(wd_sim_options){.bytes = 64 << 20}, &err),
                       &err);
        else
            wd_test_ok(wd_device_open_cpu(&device, 1, &err), &err);
        session s = open_session_on(device, WD_F32, WD_F32);
        out[simulated] = calloc(count, sizeof(float));
        wd_test_ok(wd_umt5_encode_rows(s.encoder, out[simulated], ids, first, COPIES, &err), &err);
        launches[simulated] = wd_queue_total(s.queue).launches;
        close_session(&s);
    }
    assert_memory_equal(out[0], out[1], count * sizeof(float));
    assert_int_equal(launches[1], launches[0] + config.layers * (COPIES - PIECES));
    free(out[0]);
    free(out[1]);
}

/* More rows than a piece holds: every copy of a prompt gets the same bits. */
static void many_prompts(void **state)
{
    const fixture *f = *state;
    int64_t first[COPIES + 1] = {0}, width = config.d_model, tokens = 17;
    int32_t ids[COPIES * 17];
    wd_err err;
    for (int i = 0; i < COPIES; i++) {
        memcpy(ids + i * tokens, f->ids + f->tokens, (size_t)tokens * sizeof *ids);
        first[i + 1] = first[i] + tokens;
    }
    uint16_t *out = calloc((size_t)(COPIES * tokens * width), sizeof *out);
    session s = open_session(WD_F32, WD_BF16, false);
    wd_test_ok(wd_umt5_encode_rows(s.encoder, out, ids, first, COPIES, &err), &err);
    for (int i = 1; i < COPIES; i++)
        assert_memory_equal(out, out + i * tokens * width, (size_t)(tokens * width) * sizeof *out);
    close_session(&s);
    free(out);
}

static void refusals(void **state)
{
    const fixture *f = *state;
    wd_err err;
    float out[64];
    wd_umt5 *none;
    session s = open_session(WD_F32, WD_F32, false);
    const int32_t low = -1, high = 300;
    wd_test_refused(wd_umt5_encode(s.encoder, out, &high, NULL, 1, 1, &err), &err, WD_MISMATCH,
                    "id 300, expected 0 to 299");
    wd_test_refused(wd_umt5_encode(s.encoder, out, &low, NULL, 1, 1, &err), &err, WD_MISMATCH,
                    "id -1");
    wd_test_ok(wd_umt5_encode(s.encoder, out, f->ids, NULL, 1, 1, &err), &err);
    wd_test_refused(wd_umt5_open(&none, &config, s.weights, WD_F16, s.queue, &err), &err,
                    WD_UNSUPPORTED, "float16");
    wd_umt5_config wrong = config;
    wrong.d_ff = 97;
    wd_test_refused(wd_umt5_open(&none, &wrong, s.weights, WD_F32, s.queue, &err), &err,
                    WD_MISMATCH, "wi_0");
    close_session(&s);
}

/* Opens an encoder on a new device, encodes four tokens, and closes it. */
static wd_status encode_four(void *weights, wd_err *err)
{
    static const int32_t ids[4] = {5, 6, 7, 1};
    static float out[4 * 256];
    session s = {0};
    assert_true(4 * config.d_model <= (int64_t)(sizeof out / sizeof *out));
    WD_TRY(wd_device_open_cpu(&s.device, 1, err));
    wd_status status = wd_queue_open(&s.queue, s.device, err);
    if (status == WD_OK) status = wd_umt5_open(&s.encoder, &config, weights, WD_F32, s.queue, err);
    if (status == WD_OK) status = wd_umt5_encode(s.encoder, out, ids, NULL, 1, 4, err);
    if (s.encoder) wd_umt5_close(s.encoder);
    if (s.queue) wd_queue_close(s.queue);
    assert_int_equal(wd_device_bytes(s.device), 0);
    wd_device_close(s.device);
    return status;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    session s = open_session(WD_F32, WD_F32, false);
    wd_test_failing_allocations(encode_four, NULL, s.weights, 10);
    close_session(&s);
}

static void real_size(void **state)
{
    (void)state;
    const wd_umt5_config xxl = wd_test_preset("wan2.1-1.3b").umt5;
    wd_tensor_table table;
    wd_err err;
    wd_test_ok(wd_umt5_table_open(&table, &xxl, &err), &err);
    int64_t parameters = 0;
    for (int64_t i = 1; i < table.count; i++) { /* line 0 and 1: two names of one tensor */
        wd_tensor t = {.ndim = table.spec[i].ndim};
        memcpy(t.dim, table.spec[i].dim, sizeof t.dim);
        parameters += wd_tensor_count(&t);
    }
    /* google/umt5-xxl's encoder as published for Wan 2.1: 22,723,641,344 bytes of fp32 */
    assert_int_equal(table.count - 1, 242);
    assert_int_equal(parameters, 5680910336);
    assert_int_equal(table.stages, 26);
    wd_umt5_table_close(&table);
}

static void names_of_the_fixture(void **state)
{
    (void)state;
    wd_tensor_table table;
    wd_safetensors *set;
    wd_tensor tensor;
    wd_err err;
    const char *path = WD_SOURCE_DIR "/tests/fixtures/umt5/text_encoder/model.safetensors";
    wd_test_ok(wd_umt5_table_open(&table, &config, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    int64_t found = 0;
    for (int64_t i = 0; i < table.count; i++) {
        if (table.spec[i].may_miss && !wd_safetensors_find(set, table.spec[i].name)) continue;
        wd_test_ok(wd_safetensors_expect(&tensor, set, &table.spec[i], &err), &err);
        found++;
    }
    assert_int_equal(found, wd_safetensors_count(set));
    wd_safetensors_close(set);
    wd_umt5_table_close(&table);
}

/* A matrix stays one where a size is 1: PyTorch writes the bias of one head as [32, 1]. */
static void matrices_of_one_column(void **state)
{
    (void)state;
    const wd_umt5_config thin = {.vocab_size = 300,
                                 .d_model = 1,
                                 .d_kv = 1,
                                 .d_ff = 1,
                                 .heads = 1,
                                 .layers = 1,
                                 .buckets = 32,
                                 .max_distance = 128};
    wd_tensor_table table;
    wd_err err;
    wd_test_ok(wd_umt5_table_open(&table, &thin, &err), &err);
    for (int i = 0; i < WD_UMT5_LAYER_SLOTS; i++) {
        const wd_tensor_spec *spec = &table.spec[wd__umt5_layer_line(0) + i];
        const bool is_vector = i == WD_UMT5_NORM1 || i == WD_UMT5_NORM2;
        assert_int_equal(spec->ndim, is_vector ? 1 : 2);
        assert_int_equal(spec->dim[0], i == WD_UMT5_BIAS ? 32 : 1);
        if (!is_vector) assert_int_equal(spec->dim[1], 1);
    }
    wd_umt5_table_close(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32),
        cmocka_unit_test(long_prompt),
        cmocka_unit_test(bf16),
        cmocka_unit_test(file_dtypes),
        cmocka_unit_test(ragged),
        cmocka_unit_test(many_prompts),
        cmocka_unit_test(prompts_one_by_one),
        cmocka_unit_test(refusals),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(real_size),
        cmocka_unit_test(names_of_the_fixture),
        cmocka_unit_test(matrices_of_one_column),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
