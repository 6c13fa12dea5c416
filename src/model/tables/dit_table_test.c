/* Tests of the transformer's tensor table: counts of published checkpoints, islands, a file. */
#include "test_preset.h"

#include "model/tables/dit_table.h"

static wd_dit_config small(int64_t layers)
{
    wd_dit_config c = wd_test_preset("wan2.1-1.3b").dit;
    c.heads = 2;
    c.ffn_dim = 512;
    c.layers = layers;
    return c;
}

/* Parameters, tensors, and bytes in bf16 with islands of the published models. */
static void counts_of_published_models(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int64_t parameters, tensors, bf16_bytes;
    } models[] = {
        {"wan2.1-1.3b", 1418996800, 825, 2844248192},
        {"wan2.1-14b", 14288491584, 1095, 28635351168},
        {"wan2.2-a14b", 14288491584, 1095, 28635351168}, /* each expert */
        {"wan2.2-5b", 4999787712, 825, 10021521792},
    };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        wd_err err;
        wd_tensor_table table;
        int64_t parameters = 0, bytes = 0;
        const wd_pipeline published = wd_test_preset(models[m].name);
        wd_test_ok(wd_dit_table_open(&table, &published.dit, &err), &err);
        for (int64_t i = 0; i < table.count; i++) {
            const wd_tensor_spec *s = &table.spec[i];
            int64_t count = 1;
            for (int d = 0; d < s->ndim; d++) count *= s->dim[d];
            parameters += count;
            bytes += count * (int64_t)wd_dtype_bytes(wd_spec_dtype(s, WD_BF16));
        }
        assert_int_equal(parameters, models[m].parameters);
        assert_int_equal(table.count, models[m].tensors);
        assert_int_equal(bytes, models[m].bf16_bytes);
        wd_dit_table_close(&table);
    }
}

static void slots_find_their_lines(void **state)
{
    (void)state;
    wd_err err;
    wd_tensor_table table;
    wd_dit_config config = small(3);
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    assert_int_equal(table.stages, 5);
    assert_int_equal(table.count, wd_dit_stage_first(&config, 4) + wd_dit_stage_slots(&config, 4));
    const wd_tensor_spec *s = &table.spec[wd_dit_stage_first(&config, 3) + WD_DIT_BLOCK_FFN1_W];
    assert_string_equal(s->name, "blocks.2.ffn.net.0.proj.weight");
    assert_int_equal(s->stage, 3);
    assert_int_equal(s->dim[0], 512);
    assert_int_equal(s->dim[1], 256);
    s = &table.spec[wd_dit_stage_first(&config, 4) + WD_DIT_HEAD_PROJ_W];
    assert_string_equal(s->name, "proj_out.weight");
    assert_int_equal(s->dim[0], 64);
    wd_dit_table_close(&table);
}

/* A checkpoint has every line of the table but those that may miss, and no other tensor; keep_f32
 * tensors are F32 in files that diffusers wrote in bf16. */
static void agrees_with_checkpoints(void **state)
{
    (void)state;
    const struct {
        const char *folder;
        wd_dit_config config;
    } models[] = {
        {"models/wan-tiny/transformer",
         {16, 16, 5, 32, 640, 6, 256, 96, {1, 2, 2}, 1024, true, 1e-6}},
        {"models/wan-tiny/transformer_2",
         {16, 16, 5, 32, 640, 6, 256, 96, {1, 2, 2}, 1024, true, 1e-6}},
    };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        wd_err err;
        wd_tensor_table table;
        wd_safetensors *set;
        wd_tensor t;
        char path[WD_PATH_MAX];
        wd_test_ok(wd_path_join(path, WD_SOURCE_DIR, models[m].folder, &err), &err);
        wd_test_ok(wd_safetensors_open_stem(&set, path, "diffusion_pytorch_model", &err), &err);
        wd_test_ok(wd_dit_table_open(&table, &models[m].config, &err), &err);
        assert_int_equal(table.count, wd_safetensors_count(set));
        for (int64_t i = 0; i < table.count; i++) {
            wd_test_ok(wd_safetensors_expect(&t, set, &table.spec[i], &err), &err);
            assert_int_equal(t.dtype, wd_spec_dtype(&table.spec[i], WD_BF16));
        }
        wd_dit_table_close(&table);
        wd_safetensors_close(set);
    }
}

static void without_cross_attention_norm(void **state)
{
    (void)state;
    wd_err err;
    wd_tensor_table table;
    wd_dit_config config = small(1);
    config.cross_attn_norm = false;
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    const wd_tensor_spec *s = &table.spec[wd_dit_stage_first(&config, 1) + WD_DIT_BLOCK_NORM2_B];
    assert_string_equal(s->name, "blocks.0.norm2.bias");
    assert_true(s->may_miss);
    assert_int_equal(s->dim[0], 0);
    assert_false(table.spec[wd_dit_stage_first(&config, 1) + WD_DIT_BLOCK_SELF_NORM_Q].keep_f32);
    wd_dit_table_close(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_published_models),
        cmocka_unit_test(slots_find_their_lines),
        cmocka_unit_test(agrees_with_checkpoints),
        cmocka_unit_test(without_cross_attention_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
