/* First weights: which blocks, that the same width is a copy, that a narrower student is a part of
 * the teacher that fits together. */
#include "train/network/init.h"

#include "dev/device.h"
#include "io/file/file.h"
#include "student_fixture.h"
#include "teacher_copy.h"
#include "tiny_teacher.h"
#include "train/network/config.h"

static void test_blocks(void **state)
{
    (void)state;
    int64_t block[40];
    const int64_t three[] = {0, 2, 5};
    wd__student_choose_blocks(block, 3, 6);
    assert_memory_equal(block, three, sizeof three);
    for (int64_t t = 1; t <= 40; t++) {
        for (int64_t n = 1; n <= t; n++) {
            wd__student_choose_blocks(block, n, t);
            assert_int_equal(block[0], 0);
            if (n > 1) assert_int_equal(block[n - 1], t - 1);
            for (int64_t i = 1; i < n; i++) assert_true(block[i] > block[i - 1]);
        }
    }
    assert_int_equal(wd_student_expert(&teacher), WD_COMPONENT_TRANSFORMER_2);
    wd_pipeline single = teacher;
    single.has[WD_COMPONENT_TRANSFORMER_2] = false;
    assert_int_equal(wd_student_expert(&single), WD_COMPONENT_TRANSFORMER);
}

/* The student's tensor, on the host. */
static float *student_tensor(const bench *b, const wd_params *p, const char *name, wd_tensor *shape)
{
    for (int64_t line = 0; line < p->table.count; line++) {
        if (strcmp(p->table.spec[line].name, name)) continue;
        *shape = wd_params_tensor(p, WD_PARAMS_P, line);
        return read_floats(b, shape->data, wd_tensor_count(shape));
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static wd_tensor teacher_tensor(const char *name)
{
    return wd_test_load("models/wan-tiny/transformer_2/diffusion_pytorch_model.safetensors", name);
}

static void test_same_width(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_guard, 1);
    wd_dit_config config = teacher.dit;
    config.layers = 2;
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, 0, b.device, &err), &err);
    wd_test_ok(wd_student_init(&p, &teacher, WD_COMPONENT_TRANSFORMER_2, b.queue, &err), &err);
    for (int64_t line = 0; line < p.table.count; line++) {
        char name[WD_TENSOR_NAME_MAX];
        strcpy(name, p.table.spec[line].name);
        if (!strncmp(name, "blocks.1.", 9)) name[7] = '5'; /* the last block */
        wd_tensor from = teacher_tensor(name), to;
        float *got = student_tensor(&b, &p, p.table.spec[line].name, &to);
        assert_int_equal(to.ndim, from.ndim);
        assert_memory_equal(got, from.data, wd_tensor_bytes(&to));
        wd_free(got);
        wd_free(from.data);
    }
    wd_params_close(&p);
    bench_close(&b);
}

/* Which of the teacher's rows row `r` of a matrix is, given by equality of a single column. */
static int64_t find_channels(int64_t *out, const float *got, int64_t n, const float *from,
                             int64_t from_n)
{
    int64_t found = 0, next = 0;
    for (int64_t i = 0; i < n; i++) {
        while (next < from_n && from[next] != got[i]) next++;
        if (next == from_n) break;
        out[found++] = next++;
    }
    return found;
}

/* Every tensor that touches the stream has the same channels of it, and whole heads. */
static void test_narrow(void **state)
{
    (void)state;
    enum { D = 160, N = 96 };
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 2);
    wd_dit_config config = teacher.dit;
    config.layers = 3;
    config.heads = 3;
    config.ffn_dim = 320;
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_BF16, 0, b.device, &err), &err);
    wd_test_ok(wd_student_init(&p, &teacher, WD_COMPONENT_TRANSFORMER_2, b.queue, &err), &err);
    wd_tensor shape, from = teacher_tensor("scale_shift_table");
    float *got = student_tensor(&b, &p, "scale_shift_table", &shape);
    int64_t stream[N];
    assert_int_equal(find_channels(stream, got, N, from.data, D), N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(stream[i] % 32, i % 32); /* whole head-sized groups */
        assert_true(got[N + i] == ((float *)from.data)[D + stream[i]]);
    }
    wd_free(got);
    wd_free(from.data);

    from = teacher_tensor("condition_embedder.time_proj.weight"); /* [6 D, D] */
    got = student_tensor(&b, &p, "condition_embedder.time_proj.weight", &shape);
    for (int r = 0; r < 6 * N; r++) {
        const float *row = (float *)from.data + (r / N * D + stream[r % N]) * D;
        for (int c = 0; c < N; c++) assert_true(got[r * N + c] == row[stream[c]]);
    }
    wd_free(got);
    wd_free(from.data);

    /* Block 1 is the teacher's block 2: rows are whole heads, columns the stream. */
    wd_tensor bias = teacher_tensor("blocks.2.attn1.to_v.bias");
    float *bias_got = student_tensor(&b, &p, "blocks.1.attn1.to_v.bias", &shape);
    int64_t heads[N];
    assert_int_equal(find_channels(heads, bias_got, N, bias.data, D), N);
    for (int i = 0; i < N; i++) assert_int_equal(heads[i] % 32, i % 32);
    const char *const in[] = {"to_q.weight", "to_k.weight", "to_v.weight"};
    for (int m = 0; m < 3; m++) {
        char name[64], teacher_name[64];
        snprintf(name, sizeof name, "blocks.1.attn1.%s", in[m]);
        snprintf(teacher_name, sizeof teacher_name, "blocks.2.attn1.%s", in[m]);
        from = teacher_tensor(teacher_name);
        got = student_tensor(&b, &p, name, &shape);
        for (int r = 0; r < N; r++) {
            for (int c = 0; c < N; c++) {
                assert_true(got[r * N + c] == ((float *)from.data)[heads[r] * D + stream[c]]);
            }
        }
        wd_free(got);
        wd_free(from.data);
    }
    from = teacher_tensor("blocks.2.attn1.to_out.0.weight");
    got = student_tensor(&b, &p, "blocks.1.attn1.to_out.0.weight", &shape);
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < N; c++) {
            assert_true(got[r * N + c] == ((float *)from.data)[stream[r] * D + heads[c]]);
        }
    }
    wd_free(got);
    wd_free(from.data);
    wd_free(bias_got);
    wd_free(bias.data);
    wd_params_close(&p);
    bench_close(&b);
}

/* A narrower student of a damaged model has its sizes, and nothing else is written over. */
static void test_not_finite(void **state)
{
    (void)state;
    enum { ROWS = 8, WIDTH = 160 };
    wd_err err;
    wd_pipeline damaged;
    wd_safetensors *set;
    char folder[WD_PATH_MAX];
    wd_test_copy_teacher(folder, "damaged");
    wd_test_ok(wd_pipeline_open(&damaged, folder, &err), &err);
    wd_test_ok(wd_pipeline_open_weights(&set, &damaged, WD_COMPONENT_TRANSFORMER_2, &err), &err);
    const wd_safetensors_entry *rows = wd_safetensors_find(set, "blocks.0.ffn.net.0.proj.weight");
    assert_int_equal(rows->tensor.dim[1], WIDTH);
    char *bytes;
    size_t count;
    const char *file = wd_test_in(folder, "transformer_2/diffusion_pytorch_model.safetensors");
    wd_test_ok(wd_file_read(&bytes, &count, file, 1 << 26, &err), &err);
    char *at = memmem(bytes, count, rows->tensor.data, wd_tensor_bytes(&rows->tensor));
    assert_non_null(at);
    memset(at, 0xff, ROWS * WIDTH * sizeof(float)); /* NaN */
    wd_safetensors_close(set);
    wd_test_ok(wd_file_write(file, bytes, count, &err), &err);
    wd_free(bytes);
    bench b = bench_on(wd_device_open_guard, 1);
    wd_dit_config config = teacher.dit;
    config.layers = 2;
    config.ffn_dim = teacher.dit.ffn_dim / 2;
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, 0, b.device, &err), &err);
    wd_test_ok(wd_student_init(&p, &damaged, WD_COMPONENT_TRANSFORMER_2, b.queue, &err), &err);
    wd_params_close(&p);
    bench_close(&b);
}

/* A student gets first weights twice where its agreement with the teacher is measured. Weights in
 * host memory are written where gradients and the copy in bf16 are, and there the copy of the first
 * ones lies between the tensors of the second ones. */
static void test_zeros_between_tensors(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(open_sim, 1);
    wd_dit_config config = teacher.dit;
    config.layers = 4; /* so that some of these lie where the copy is */
    config.ffn_dim = 100;
    const unsigned kinds =
        WD_PARAMS_TRAINED | WD_PARAMS_STATE_ON_HOST | WD_PARAMS_GRADIENTS_IN_BF16;
    int64_t between = 0;
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_BF16, kinds, b.device, &err), &err);
    for (int i = 0; i < 2; i++)
        wd_test_ok(wd_student_init(&p, &teacher, WD_COMPONENT_TRANSFORMER_2, b.queue, &err), &err);
    for (int64_t line = 0; line < p.table.count; line++) {
        const wd_tensor tensor = wd_params_tensor(&p, WD_PARAMS_P, line);
        const int64_t next = line + 1 < p.table.count ? p.offset[line + 1] : p.count;
        for (int64_t i = p.offset[line] + wd_tensor_count(&tensor); i < next; i++, between++)
            assert_true(p.buffer[WD_PARAMS_P][i] == 0);
    }
    assert_true(between > 0);
    wd_params_close(&p);
    bench_close(&b);
}

static void test_refused(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_dit_config config = teacher.dit;
    config.layers = 7;
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, 0, b.device, &err), &err);
    wd_test_refused(wd_student_init(&p, &teacher, WD_COMPONENT_TRANSFORMER, b.queue, &err), &err,
                    WD_UNSUPPORTED, "depth");
    wd_params_close(&p);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_same_width),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_zeros_between_tensors),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
