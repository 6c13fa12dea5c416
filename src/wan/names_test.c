/* Tests of tensor names: every line of a table goes there and back; others are refused. */
#include "testing.h"

#include "wan/dit_table.h"
#include "wan/names.h"

static void every_tensor_goes_there_and_back(void **state)
{
    (void)state;
    wd_err err;
    wd_tensor_table table;
    wd_dit_config config = {16, 16, 2, 128, 512, 12, 256, 64, {1, 2, 2}, 1024, true, 1e-6};
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    for (int64_t i = 0; i < table.count; i++) {
        char original[WD_TENSOR_NAME_MAX], back[WD_TENSOR_NAME_MAX];
        const char *name = table.spec[i].name;
        assert_true(wd_names_to_original(original, sizeof original, name));
        assert_true(wd_names_to_diffusers(back, sizeof back, original));
        assert_string_equal(back, name);
        if (strcmp(original, name))
            assert_false(wd_names_to_original(back, sizeof back, original));
        else
            assert_non_null(strstr(name, "patch_embedding."));
    }
    wd_dit_table_close(&table);
}

static void known_pairs(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"blocks.11.norm2.weight", "blocks.11.norm3.weight"},
        {"blocks.0.attn1.to_out.0.bias", "blocks.0.self_attn.o.bias"},
        {"blocks.3.attn2.norm_k.weight", "blocks.3.cross_attn.norm_k.weight"},
        {"blocks.3.scale_shift_table", "blocks.3.modulation"},
        {"scale_shift_table", "head.modulation"},
        {"proj_out.weight", "head.head.weight"},
        {"condition_embedder.time_proj.bias", "time_projection.1.bias"},
        {"blocks.7.ffn.net.2.weight", "blocks.7.ffn.2.weight"},
    };
    char out[WD_TENSOR_NAME_MAX];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_true(wd_names_to_original(out, sizeof out, pairs[i][0]));
        assert_string_equal(out, pairs[i][1]);
        assert_true(wd_names_to_diffusers(out, sizeof out, pairs[i][1]));
        assert_string_equal(out, pairs[i][0]);
    }
    static const char *const others[] = {"",
                                         "blocks.",
                                         "blocks.1",
                                         "blocks.x.modulation",
                                         "blocks.1.modulationx",
                                         "blocks.1.attn2.add_k_proj.weight",
                                         "patch_embedding.scale",
                                         "img_emb.proj.0.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(wd_names_to_original(out, sizeof out, others[i]));
        assert_false(wd_names_to_diffusers(out, sizeof out, others[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_goes_there_and_back),
        cmocka_unit_test(known_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
