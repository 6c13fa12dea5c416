/* Tests of the configuration readers: real files, defaults, refusals by name. */
#include "testing.h"

#include "model/tables/config.h"

static json_t *parse(const char *text)
{
    wd_err err;
    json_t *json;
    wd_test_ok(wd_json_parse(&json, text, strlen(text), "test", &err), &err);
    return json;
}

static json_t *load(const char *file)
{
    wd_err err;
    json_t *json;
    char path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(path, WD_SOURCE_DIR, file, &err), &err);
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    return json;
}

static void transformer_files(void **state)
{
    (void)state;
    wd_err err;
    wd_dit_config c;
    json_t *json = load("models/wan-tiny/transformer/config.json");
    wd_test_ok(wd_dit_config_read(&c, json, "x", &err), &err);
    assert_int_equal(c.in_channels, 16);
    assert_int_equal(c.heads, 5);
    assert_int_equal(c.head_dim, 32);
    assert_int_equal(wd_dit_width(&c), 160);
    assert_int_equal(c.ffn_dim, 640);
    assert_int_equal(c.layers, 6);
    assert_int_equal(c.text_dim, 96);
    assert_int_equal(c.patch[0] * 100 + c.patch[1] * 10 + c.patch[2], 122);
    assert_true(c.cross_attn_norm);
    /* Our JSON equals the file that diffusers wrote, except for version and origin. */
    json_t *ours = wd_dit_config_json(&c);
    assert_non_null(ours);
    json_object_del(json, "_name_or_path");
    json_object_set_new(json, "_diffusers_version", json_string("0.33.0"));
    assert_true(json_equal(ours, json));
    json_decref(ours);
    json_decref(json);
    json = load("tests/fixtures/dit-video/transformer/config.json");
    wd_test_ok(wd_dit_config_read(&c, json, "x", &err), &err);
    assert_false(c.cross_attn_norm);
    json_decref(json);
}

static void transformer_defaults(void **state)
{
    (void)state;
    wd_err err;
    wd_dit_config c;
    json_t *json = parse("{}");
    wd_test_ok(wd_dit_config_read(&c, json, "x", &err), &err);
    assert_int_equal(wd_dit_width(&c), 5120);
    assert_int_equal(c.ffn_dim, 13824);
    assert_int_equal(c.rope_max_seq_len, 1024);
    json_decref(json);
    /* The unused I2V keys of a 5B file have no effect; null out_channels means in_channels. */
    json = parse("{\"in_channels\":48,\"out_channels\":null,\"added_kv_proj_dim\":5120,"
                 "\"image_dim\":1280}");
    wd_test_ok(wd_dit_config_read(&c, json, "x", &err), &err);
    assert_int_equal(c.out_channels, 48);
    json_decref(json);
}

typedef wd_status reader(void *out, const json_t *json, const char *where, wd_err *err);

/* One function pointer type for all readers: their first argument is a struct each. */
static wd_status read_dit(void *out, const json_t *json, const char *where, wd_err *err)
{
    return wd_dit_config_read(out, json, where, err);
}

static wd_status read_umt5(void *out, const json_t *json, const char *where, wd_err *err)
{
    return wd_umt5_config_read(out, json, where, err);
}

static wd_status read_vae(void *out, const json_t *json, const char *where, wd_err *err)
{
    return wd_vae_config_read(out, json, where, err);
}

static wd_status read_scheduler(void *out, const json_t *json, const char *where, wd_err *err)
{
    return wd_scheduler_config_read(out, json, where, err);
}

#define UNIPC                                                                                      \
    "\"_class_name\":\"UniPCMultistepScheduler\",\"prediction_type\":\"flow_prediction\","         \
    "\"use_flow_sigmas\":true,"
#define EULER "\"_class_name\":\"FlowMatchEulerDiscreteScheduler\","

static const struct {
    reader *read;
    const char *text;
    wd_status status;
    const char *named;
} refusals[] = {
    {read_dit, "[]", WD_BAD_FORMAT, "expected a JSON object"},
    {read_dit, "{\"_class_name\":\"WanVACETransformer3DModel\"}", WD_UNSUPPORTED,
     "found WanVACETransformer3DModel (VACE"},
    {read_dit, "{\"_class_name\":\"WanModel\"}", WD_UNSUPPORTED, "-Diffusers"},
    {read_dit, "{\"_class_name\":\"Other\\nforged: line\"}", WD_UNSUPPORTED,
     "expected WanTransformer3DModel, found Other"},
    {read_dit, "{\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}}", WD_UNSUPPORTED,
     "(quant_method bitsandbytes)"},
    {read_dit, "{\"quantization_config\":{}}", WD_UNSUPPORTED, "(quant_method unknown)"},
    {read_umt5, "{\"model_type\":\"umt5\",\"quantization_config\":{\"quant_method\":\"fp8\"}}",
     WD_UNSUPPORTED, "(quant_method fp8)"},
    {read_vae, "{\"quantization_config\":{\"quant_method\":\"torchao\"}}", WD_UNSUPPORTED,
     "(quant_method torchao)"},
    {read_dit, "{\"_class_name\":\"FluxTransformer2DModel\"}", WD_UNSUPPORTED,
     "FluxTransformer2DModel"},
    {read_dit, "{\"num_layers\":\"40\"}", WD_BAD_FORMAT, "\"num_layers\": expected an integer"},
    {read_dit, "{\"num_layers\":40.5}", WD_BAD_FORMAT, "found 40.5"},
    {read_dit, "{\"num_layers\":0}", WD_BAD_FORMAT, "from 1 to 126, found 0"},
    {read_dit, "{\"num_layers\":127}", WD_BAD_FORMAT,
     "\"num_layers\": expected an integer from 1 to 126, found 127"},
    {read_dit, "{\"ffn_dim\":-1}", WD_BAD_FORMAT, "\"ffn_dim\""},
    {read_dit, "{\"in_channels\":9000000000}", WD_BAD_FORMAT, "\"in_channels\""},
    {read_dit, "{\"attention_head_dim\":16384,\"num_attention_heads\":16384}", WD_BAD_FORMAT,
     "width"},
    {read_dit, "{\"attention_head_dim\":33}", WD_UNSUPPORTED, "even"},
    {read_dit, "{\"patch_size\":[1,2]}", WD_BAD_FORMAT, "\"patch_size\""},
    {read_dit, "{\"patch_size\":[1,2,2,2]}", WD_BAD_FORMAT, "\"patch_size\""},
    {read_dit, "{\"patch_size\":[1,0,2]}", WD_BAD_FORMAT, "\"patch_size\""},
    {read_dit, "{\"patch_size\":2}", WD_BAD_FORMAT, "\"patch_size\""},
    {read_dit, "{\"patch_size\":[2,2,2]}", WD_UNSUPPORTED, "patches of 1 frame"},
    {read_dit, "{\"cross_attn_norm\":1}", WD_BAD_FORMAT, "true or false, found 1"},
    {read_dit, "{\"eps\":0}", WD_BAD_FORMAT, "\"eps\""},
    {read_umt5, "{}", WD_BAD_FORMAT, "\"model_type\" is missing"},
    {read_umt5, "{\"model_type\":\"t5\"}", WD_UNSUPPORTED, "expected umt5, found t5"},
    {read_umt5, "{\"model_type\":\"umt5\",\"feed_forward_proj\":\"relu\"}", WD_UNSUPPORTED, "relu"},
    {read_umt5, "{\"model_type\":\"umt5\",\"torch_dtype\":\"float8\"}", WD_UNSUPPORTED, "float8"},
    {read_umt5, "{\"model_type\":\"umt5\",\"relative_attention_num_buckets\":30}", WD_UNSUPPORTED,
     "30"},
    {read_umt5, "{\"model_type\":\"umt5\",\"relative_attention_max_distance\":8}", WD_UNSUPPORTED,
     "max_distance\" 8 above a quarter of it"},
    {read_vae, "{\"_class_name\":\"AutoencoderKL\"}", WD_UNSUPPORTED, "found AutoencoderKL"},
    {read_vae, "{\"attn_scales\":[0.5]}", WD_UNSUPPORTED, "\"attn_scales\" is [0.5]"},
    {read_vae, "{\"dim_mult\":[]}", WD_BAD_FORMAT, "\"dim_mult\""},
    {read_vae, "{\"dim_mult\":[1,2,4,0]}", WD_BAD_FORMAT, "\"dim_mult\""},
    {read_vae, "{\"dim_mult\":[1,1,1,1,1,1,1,1,1]}", WD_BAD_FORMAT, "at most 8"},
    {read_vae, "{\"dim_mult\":[1,2,4]}", WD_BAD_FORMAT, "\"temperal_downsample\" is missing"},
    {read_vae, "{\"temperal_downsample\":[true]}", WD_BAD_FORMAT, "array of 3 booleans"},
    {read_vae, "{\"temperal_downsample\":[0,1,1]}", WD_BAD_FORMAT, "booleans"},
    {read_vae, "{\"temperal_downsample\":[true,true,true]}", WD_UNSUPPORTED, "make 8 and 8"},
    {read_vae, "{\"z_dim\":48}", WD_BAD_FORMAT, "\"latents_mean\": expected 48"},
    {read_vae, "{\"z_dim\":129}", WD_BAD_FORMAT, "from 1 to 128"},
    {read_vae, "{\"z_dim\":1,\"latents_mean\":[0],\"latents_std\":[0]}", WD_BAD_FORMAT,
     "\"latents_std\"[0] is 0"},
    {read_vae, "{\"patch_size\":2,\"scale_factor_spatial\":16}", WD_UNSUPPORTED, "expected 12"},
    {read_vae, "{\"patch_size\":2}", WD_UNSUPPORTED, "make 16 and 4"},
    {read_vae, "{\"base_dim\":1}", WD_UNSUPPORTED, "at least 2 channels"},
    {read_vae, "{\"decoder_base_dim\":1}", WD_UNSUPPORTED, "at least 2 channels"},
    {read_scheduler, "{}", WD_BAD_FORMAT, "\"_class_name\" is missing"},
    {read_scheduler, "{\"_class_name\":\"DDIMScheduler\"}", WD_UNSUPPORTED, "found DDIMScheduler"},
    {read_scheduler, "{\"_class_name\":\"UniPCMultistepScheduler\"}", WD_UNSUPPORTED, "epsilon"},
    {read_scheduler, "{" UNIPC "\"thresholding\":true}", WD_UNSUPPORTED,
     "\"thresholding\" is true"},
    {read_scheduler, "{" UNIPC "\"use_karras_sigmas\":true}", WD_UNSUPPORTED, "karras"},
    {read_scheduler, "{" UNIPC "\"use_dynamic_shifting\":true}", WD_UNSUPPORTED, "dynamic"},
    {read_scheduler, "{" UNIPC "\"shift_terminal\":0.1}", WD_UNSUPPORTED,
     "\"shift_terminal\" is 0.1"},
    {read_scheduler, "{" UNIPC "\"solver_p\":{\"a\":1}}", WD_UNSUPPORTED, "solver_p"},
    {read_scheduler, "{" UNIPC "\"solver_type\":\"bh3\"}", WD_UNSUPPORTED, "found \"bh3\""},
    {read_scheduler, "{" UNIPC "\"solver_order\":4}", WD_BAD_FORMAT, "\"solver_order\""},
    {read_scheduler, "{" UNIPC "\"flow_shift\":0}", WD_BAD_FORMAT, "\"flow_shift\""},
    {read_scheduler, "{" UNIPC "\"flow_shift\":1e300}", WD_BAD_FORMAT, "up to 1000"},
    {read_scheduler, "{" UNIPC "\"final_sigmas_type\":\"one\"}", WD_UNSUPPORTED,
     "final_sigmas_type"},
    {read_scheduler, "{" UNIPC "\"disable_corrector\":[64]}", WD_UNSUPPORTED, "step 64"},
    {read_scheduler, "{" EULER "\"invert_sigmas\":true}", WD_UNSUPPORTED, "invert_sigmas"},
    {read_scheduler, "{" EULER "\"stochastic_sampling\":true}", WD_UNSUPPORTED, "stochastic"},
    {read_scheduler, "{" EULER "\"shift\":\"3\"}", WD_BAD_FORMAT, "\"shift\": expected a number"},
};

static void refuses_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        wd_err err = {0};
        union {
            wd_dit_config dit;
            wd_umt5_config umt5;
            wd_vae_config vae;
            wd_scheduler_config scheduler;
        } out;
        json_t *json = parse(refusals[i].text);
        wd_status status = refusals[i].read(&out, json, "folder/config.json", &err);
        if (status != refusals[i].status || !strstr(err.message, refusals[i].named) ||
            !strstr(err.message, "folder/config.json"))
            fail_msg("case %zu, %s: %s: %s", i, refusals[i].text, wd_status_text(status),
                     err.message);
        assert_null(strstr(err.message, "forged"));
        json_decref(json);
    }
}

static void text_encoder_files(void **state)
{
    (void)state;
    wd_err err;
    wd_umt5_config c;
    json_t *json = load("models/wan-tiny/text_encoder/config.json");
    wd_test_ok(wd_umt5_config_read(&c, json, "x", &err), &err);
    assert_int_equal(c.vocab_size, 512);
    assert_int_equal(c.d_kv * c.heads, 96);
    assert_int_equal(c.file_dtype, WD_BF16);
    json_decref(json);
    json = parse("{\"model_type\":\"umt5\",\"torch_dtype\":\"float32\",\"d_model\":4096,"
                 "\"num_heads\":64,\"num_layers\":24,\"d_ff\":10240,\"vocab_size\":256384}");
    wd_test_ok(wd_umt5_config_read(&c, json, "x", &err), &err);
    assert_int_equal(c.file_dtype, WD_F32);
    assert_int_equal(c.buckets, 32);
    json_decref(json);
}

static void vae_files(void **state)
{
    (void)state;
    wd_err err;
    wd_vae_config c;
    json_t *json = parse("{\"_class_name\":\"AutoencoderKLWan\"}");
    wd_test_ok(wd_vae_config_read(&c, json, "x", &err), &err);
    assert_int_equal(c.base_dim, 96);
    assert_int_equal(c.decoder_base_dim, 96);
    assert_int_equal(c.patch_size, 1);
    assert_true(c.latents_mean[15] == -0.2921 && c.latents_std[0] == 2.8184);
    assert_true(!c.temporal_downsample[0] && c.temporal_downsample[2]);
    json_decref(json);
    json = load("models/wan-tiny/vae/config.json");
    wd_test_ok(wd_vae_config_read(&c, json, "x", &err), &err);
    assert_int_equal(c.base_dim, 16);
    assert_int_equal(c.num_res_blocks, 1);
    assert_true(c.latents_mean[0] == 0.813);
    json_decref(json);
    json = load("tests/fixtures/vae-2.2/vae/config.json");
    wd_test_ok(wd_vae_config_read(&c, json, "x", &err), &err);
    assert_true(c.is_residual);
    assert_int_equal(c.decoder_base_dim, 6);
    assert_int_equal(c.z_dim, 12);
    assert_int_equal(c.patch_size, 2);
    assert_int_equal(c.scale_factor_spatial, 16);
    json_decref(json);
}

static void scheduler_files(void **state)
{
    (void)state;
    wd_err err;
    wd_scheduler_config c;
    json_t *json = load("models/wan-tiny/scheduler/scheduler_config.json");
    wd_test_ok(wd_scheduler_config_read(&c, json, "x", &err), &err);
    assert_int_equal(c.kind, WD_SCHEDULER_UNIPC);
    assert_int_equal(c.num_train_timesteps, 1000);
    assert_true(c.flow_shift == 3 && c.solver_order == 2 && !c.bh1 && c.lower_order_final);
    assert_true(c.predict_x0 && c.final_sigma_zero && c.disable_corrector == 0);
    json_decref(json);
    json = parse("{" UNIPC "\"flow_shift\":12,\"solver_type\":\"bh1\",\"solver_order\":3,"
                 "\"disable_corrector\":[0,-1,63],\"final_sigmas_type\":\"sigma_min\","
                 "\"lower_order_final\":false,\"shift_terminal\":null}");
    wd_test_ok(wd_scheduler_config_read(&c, json, "x", &err), &err);
    assert_true(c.flow_shift == 12 && c.solver_order == 3 && c.bh1 && !c.lower_order_final);
    assert_true(!c.final_sigma_zero && c.disable_corrector == (UINT64_C(1) << 63 | 1));
    json_decref(json);
    json = parse("{" EULER "\"shift\":5.0}");
    wd_test_ok(wd_scheduler_config_read(&c, json, "x", &err), &err);
    assert_true(c.kind == WD_SCHEDULER_EULER && c.flow_shift == 5);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transformer_files), cmocka_unit_test(transformer_defaults),
        cmocka_unit_test(refuses_by_name),   cmocka_unit_test(text_encoder_files),
        cmocka_unit_test(vae_files),         cmocka_unit_test(scheduler_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
