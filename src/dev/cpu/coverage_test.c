/* Every operation has a test that compares its kernels with the reference. A new operation fails
 * here until the table names the file that tests it. */
#include "testing.h"

#include "dev/ops.h"

enum { SOURCE_MAX = 1 << 20 };

/* x of src/dev/cpu/x_test.c */
static const char *const test_of[WD_OP_COUNT] = {
    [WD_OP_MATMUL] = "matmul",
    [WD_OP_ATTENTION] = "attention",
    [WD_OP_ATTENTION_BACKWARD] = "attention",
    [WD_OP_CONV] = "conv",
    [WD_OP_LAYERNORM] = "norm",
    [WD_OP_LAYERNORM_BACKWARD] = "norm",
    [WD_OP_RMSNORM] = "norm",
    [WD_OP_RMSNORM_BACKWARD] = "norm",
    [WD_OP_CHANNELNORM] = "norm",
    [WD_OP_RESIDUAL] = "norm",
    [WD_OP_RESIDUAL_BACKWARD] = "norm",
    [WD_OP_ACTIVATION] = "pointwise",
    [WD_OP_ACTIVATION_BACKWARD] = "pointwise",
    [WD_OP_MULTIPLY] = "pointwise",
    [WD_OP_ADD_TABLE] = "pointwise",
    [WD_OP_SUM_ROWS] = "train",
    [WD_OP_TIMESTEP_EMBED] = "pointwise",
    [WD_OP_STRIDED_COPY] = "pointwise",
    [WD_OP_GATHER_ROWS] = "pointwise",
    [WD_OP_CAST] = "pointwise",
    [WD_OP_DEQUANTISE] = "dequantise",
    [WD_OP_FILL] = "pointwise",
    [WD_OP_COMBINE] = "pointwise",
    [WD_OP_GUIDANCE] = "pointwise",
    [WD_OP_STEP_SAMPLES] = "pointwise",
    [WD_OP_MSE] = "train",
    [WD_OP_SUM_SQUARES] = "train",
    [WD_OP_SUM_SQUARES_CHUNKS] = "train",
    [WD_OP_CLIP_FACTOR] = "train",
    [WD_OP_MOMENTS] = "train",
    [WD_OP_MASTERS] = "train",
    [WD_OP_ADAMW] = "train",
    [WD_OP_EMA] = "train",
};

static const char *const token[WD_OP_COUNT] = {
#define X(op, name) [WD_OP_##op] = "WD_OP_" #op ",",
    WD_OP_MAP(X)
#undef X
};

static void every_operation_is_tested(void **state)
{
    (void)state;
    for (int op = 0; op < WD_OP_COUNT; op++) {
        char path[WD_PATH_MAX], *source;
        size_t bytes;
        wd_err err;
        if (!test_of[op])
            fail_msg("%s has no test: write one, and name its file here", wd_op_name((wd_op)op));
        snprintf(path, sizeof path, "%s/src/dev/cpu/%s_test.c", WD_SOURCE_DIR, test_of[op]);
        wd_test_ok(wd_file_read(&source, &bytes, path, SOURCE_MAX, &err), &err);
        source[bytes - 1] = 0;
        if (!strstr(source, token[op]))
            fail_msg("%s does not test %s", path, wd_op_name((wd_op)op));
        wd_free(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operation_is_tested)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
