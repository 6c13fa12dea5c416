/* Tests of workflows for ComfyUI: their graph, and the values in it. */
#include "json_failing.h"
#include "workflow_check.h"

#include "wan/workflow.h"

static wd_workflow example(int64_t channels)
{
    return (wd_workflow){.unet = "s.safetensors",
                         .clip = "umt5.safetensors",
                         .vae = "vae.safetensors",
                         .prompt = "a \"red\" apple, \xc3\xbc",
                         .latent_channels = channels,
                         .width = 832,
                         .height = 480,
                         .steps = 4,
                         .shift = 5.5,
                         .cfg = 1,
                         .sampler = "euler"};
}

static void graphs_are_whole(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    for (int large = 0; large < 2; large++) {
        const wd_workflow w = example(large ? 48 : 16);
        wd_test_ok(wd_workflow_make(&json, &w, &err), &err);
        wd_test_check_workflow(json);
        const char *latent = large ? "Wan22ImageToVideoLatent" : "EmptyHunyuanLatentVideo";
        assert_int_equal(json_integer_value(wd_test_widget(json, latent, 0)), 832);
        assert_int_equal(json_integer_value(wd_test_widget(json, latent, 1)), 480);
        assert_int_equal(json_integer_value(wd_test_widget(json, latent, 2)), 1);
        assert_string_equal(json_string_value(wd_test_widget(json, "CLIPLoader", 1)), "wan");
        assert_string_equal(json_string_value(wd_test_widget(json, "UNETLoader", 0)), w.unet);
        assert_string_equal(json_string_value(wd_test_widget(json, "CLIPTextEncode", 0)), w.prompt);
        assert_true(json_real_value(wd_test_widget(json, "ModelSamplingSD3", 0)) == 5.5);
        assert_int_equal(json_integer_value(wd_test_widget(json, "KSampler", 2)), 4);
        assert_true(json_real_value(wd_test_widget(json, "KSampler", 3)) == 1);
        assert_string_equal(json_string_value(wd_test_widget(json, "KSampler", 4)), "euler");
        assert_string_equal(json_string_value(wd_test_widget(json, "KSampler", 5)), "simple");
        assert_true(json_real_value(wd_test_widget(json, "KSampler", 6)) == 1);
        json_decref(json);
    }
}

/* Bytes that are no UTF-8 are replaced: the graph stays whole. */
static void any_prompt_is_taken(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    wd_workflow w = example(16);
    w.prompt = "\xff\xfe apple";
    wd_test_ok(wd_workflow_make(&json, &w, &err), &err);
    wd_test_check_workflow(json);
    json_decref(json);
}

static wd_status make(wd_err *err)
{
    json_t *json;
    const wd_workflow w = example(16);
    WD_TRY(wd_workflow_make(&json, &w, err));
    json_decref(json);
    return WD_OK;
}

/* Without memory there is no graph, rather than one that lacks a node or a link. */
static void graphs_without_memory(void **state)
{
    (void)state;
    wd_test_json_failing(make, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_are_whole),
        cmocka_unit_test(any_prompt_is_taken),
        cmocka_unit_test(graphs_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
