/* Tests of tensor names: every line of a table has an original name of its own; others are refused.
 */
#include "testing.h"

#include "model/tables/dit_table.h"
#include "model/tables/names.h"

static void every_tensor_has_a_name_of_its_own(void **state)
{
    (void)state;
    wd_err err;
    wd_tensor_table table;
    wd_dit_config config = {16, 16, 2, 128, 512, 12, 256, 64, {1, 2, 2}, 1024, true, 1e-6};
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    char(*original)[WD_TENSOR_NAME_MAX] = calloc((size_t)table.count, sizeof *original);
    for (int64_t i = 0; i < table.count; i++) {
        char again[WD_TENSOR_NAME_MAX];
        const char *name = table.spec[i].name;
        assert_true(wd_names_to_original(original[i], sizeof *original, name));
        for (int64_t k = 0; k < i; k++) assert_string_not_equal(original[i], original[k]);
        if (strcmp(original[i], name))
            assert_false(wd_names_to_original(again, sizeof again, original[i]));
        else
            assert_non_null(strstr(name, "patch_embedding."));
    }
    free(original);
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
    }
    static const char *const others[] = {"",
                                         "blocks.",
                                         "blocks.1",
                                         "blocks.x.scale_shift_table",
                                         "blocks.1.scale_shift_tables",
                                         "blocks.1.attn2.add_k_proj.weight",
                                         "patch_embedding.scale",
                                         "img_emb.proj.0.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(wd_names_to_original(out, sizeof out, others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_has_a_name_of_its_own),
        cmocka_unit_test(known_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
