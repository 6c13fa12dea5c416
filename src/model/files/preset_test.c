/* Presets agree with the trees of the published models. */
#include "model/files/preset.h"

#include "published.h"

static void presets_are_the_published_models(void **state)
{
    (void)state;
    static const char *const name[] = {"wan2.1-1.3b", "wan2.2-a14b", "wan2.2-5b"};
    for (int i = 0; i < 3; i++) {
        wd_err err = {0};
        wd_pipeline preset, published;
        char root[WD_PATH_MAX];
        wd_test_tree(root, &wd_test_models[i]);
        wd_test_ok(wd_pipeline_open(&published, root, &err), &err);
        wd_test_ok(wd_preset_pipeline(&preset, name[i], &err), &err);
        assert_true(wd_dit_config_same(&preset.dit, &published.dit));
        assert_true(preset.boundary_ratio == published.boundary_ratio);
        assert_int_equal(preset.expand_timesteps, published.expand_timesteps);
        assert_int_equal(preset.text_tokens, published.text_tokens);
        assert_int_equal(preset.vae.z_dim, published.vae.z_dim);
        assert_int_equal(preset.vae.decoder_base_dim, published.vae.decoder_base_dim);
        assert_int_equal(wd_pipeline_vae_scale(&preset), wd_pipeline_vae_scale(&published));
        assert_memory_equal(&preset.umt5, &published.umt5, offsetof(wd_umt5_config, file_dtype));
        assert_int_equal(preset.has[WD_COMPONENT_TRANSFORMER_2],
                         published.has[WD_COMPONENT_TRANSFORMER_2]);
        assert_int_equal(published.default_height, 512);
        assert_int_equal(preset.default_width, 512);
        assert_memory_equal(preset.guidance_scale, published.guidance_scale,
                            sizeof preset.guidance_scale);
        assert_true(published.guidance_scale[0] == (i == 1 ? 4 : 5));
        assert_true(published.guidance_scale[1] == (i == 1 ? 3 : 5));
        assert_ptr_equal(preset.negative_prompt, published.negative_prompt);
        assert_non_null(strstr(published.negative_prompt, "最差质量")); /* worst quality */
        assert_null(strstr(published.negative_prompt, "静"));           /* static, still */
        assert_null(strstr(published.negative_prompt, "画面"));         /* picture */
    }
}

static void other_models_have_no_advice(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_pipeline p;
    wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    assert_string_equal(p.negative_prompt, "");
    assert_true(p.guidance_scale[0] == 5 && p.guidance_scale[1] == 5);
    assert_int_equal(p.default_height, 64);
}

static void all_names_are_known(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_pipeline p;
    int n = 0;
    for (; wd_preset_names[n]; n++)
        wd_test_ok(wd_preset_pipeline(&p, wd_preset_names[n], &err), &err);
    assert_int_equal(n, 4);
    wd_test_refused(wd_preset_pipeline(&p, "wan3", &err), &err, WD_INVALID_ARGUMENT, "\"wan3\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_the_published_models),
        cmocka_unit_test(other_models_have_no_advice),
        cmocka_unit_test(all_names_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
