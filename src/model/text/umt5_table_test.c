/* The UMT5 table names exactly the tensors of real checkpoints. */
#include "test_preset.h"

#include "model/text/umt5_table.h"

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
    const wd_umt5_config config = {.vocab_size = 300,
                                   .d_model = 64,
                                   .d_kv = 16,
                                   .d_ff = 96,
                                   .heads = 4,
                                   .layers = 2,
                                   .buckets = 32,
                                   .max_distance = 128};
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
    const wd_umt5_config config = {.vocab_size = 300,
                                   .d_model = 1,
                                   .d_kv = 1,
                                   .d_ff = 1,
                                   .heads = 1,
                                   .layers = 1,
                                   .buckets = 32,
                                   .max_distance = 128};
    wd_tensor_table table;
    wd_err err;
    wd_test_ok(wd_umt5_table_open(&table, &config, &err), &err);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(real_size),
                                       cmocka_unit_test(names_of_the_fixture),
                                       cmocka_unit_test(matrices_of_one_column)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
