/* Tests of pipeline folders: wan-tiny, trees with the published models' configurations and sparse
 * weights of their true sizes, and refusals. */
#include "sparse.h"

#include "wan/dit_table.h"
#include "wan/pipeline.h"
#include "wan/umt5.h"
#include "wan/vae.h"

static const char wan_tiny[] = WD_SOURCE_DIR "/models/wan-tiny";

static void opens_wan_tiny(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_safetensors *set;
    wd_test_ok(wd_pipeline_open(&p, wan_tiny, &err), &err);
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        assert_true(p.has[c]);
        wd_test_ok(wd_pipeline_require(&p, (wd_component)c, &err), &err);
        if (c > WD_COMPONENT_VAE) continue;
        wd_test_ok(wd_pipeline_open_weights(&set, &p, (wd_component)c, &err), &err);
        wd_safetensors_close(set);
    }
    assert_string_equal(p.class_name[WD_COMPONENT_VAE], "AutoencoderKLWan");
    assert_true(p.boundary_ratio == 0.875 && !p.expand_timesteps);
    assert_int_equal(p.default_height, 64); /* from its card */
    assert_int_equal(p.default_width, 64);
    assert_int_equal(p.text_tokens, 24);
    assert_int_equal(wd_pipeline_vae_scale(&p), 8);
    assert_int_equal(wd_pipeline_size_multiple(&p), 16);
    wd_test_refused(wd_pipeline_open_weights(&set, &p, WD_COMPONENT_SCHEDULER, &err), &err,
                    WD_INVALID_ARGUMENT, "scheduler");
}

/* A folder with one component's subfolder is a pipeline as far as it goes. */
static void opens_single_components(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        wd_component component;
    } cases[] = {
        {"dit-image", WD_COMPONENT_TRANSFORMER}, {"dit-head128", WD_COMPONENT_TRANSFORMER},
        {"dit-video", WD_COMPONENT_TRANSFORMER}, {"umt5", WD_COMPONENT_TEXT_ENCODER},
        {"vae-2.1", WD_COMPONENT_VAE},           {"vae-2.1-video", WD_COMPONENT_VAE},
        {"vae-2.2", WD_COMPONENT_VAE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_err err;
        wd_pipeline p;
        wd_safetensors *set;
        char path[WD_PATH_MAX];
        snprintf(path, sizeof path, "%s/tests/fixtures/%s", WD_SOURCE_DIR, cases[i].folder);
        wd_test_ok(wd_pipeline_open(&p, path, &err), &err);
        for (int c = 0; c < WD_COMPONENT_COUNT; c++)
            assert_int_equal(p.has[c], c == (int)cases[i].component);
        wd_test_ok(wd_pipeline_open_weights(&set, &p, cases[i].component, &err), &err);
        wd_safetensors_close(set);
        assert_int_equal(p.default_height, 512);
        assert_int_equal(p.text_tokens, 512);
        wd_test_refused(wd_pipeline_require(&p, WD_COMPONENT_SCHEDULER, &err), &err, WD_NOT_FOUND,
                        wd_component_name(cases[i].component));
    }
}

/* ---- trees of the published models ---- */

#define DIT                                                                                        \
    "{\"_class_name\":\"WanTransformer3DModel\",\"added_kv_proj_dim\":null,"                       \
    "\"attention_head_dim\":128,\"cross_attn_norm\":true,\"eps\":1e-06,\"ffn_dim\":%d,"            \
    "\"freq_dim\":256,\"image_dim\":null,\"in_channels\":%d,\"num_attention_heads\":%d,"           \
    "\"num_layers\":%d,\"out_channels\":%d,\"patch_size\":[1,2,2],\"text_dim\":4096,"              \
    "\"qk_norm\":\"rms_norm_across_heads\",\"rope_max_seq_len\":1024}"

typedef struct published {
    const char *name;
    int ffn_dim, channels, heads, layers, shards;
    bool two_experts;
    int64_t dit_parameters, vae_parameters, vae_tensors;
    wd_dtype dit_dtype, text_dtype;
    uint64_t dit_bytes, text_bytes; /* of the tensors, in the files' dtype */
} published;

static const published models[] = {
    {"2.1-1.3B", 8960, 16, 12, 30, 2, false, 1418996800, 126892531, 194, WD_F32, WD_F32, 5675987200,
     22723641344},
    {"2.2-A14B", 13824, 16, 40, 40, 12, true, 14288491584, 126892531, 194, WD_F32, WD_BF16,
     57153966336, 11361820672},
    {"2.2-5B", 14336, 48, 24, 30, 5, false, 4999787712, 704688668, 196, WD_F32, WD_BF16,
     19999150848, 11361820672},
};

static void write_text(const char *folder, const char *name, const char *text)
{
    wd_err err;
    char path[WD_PATH_MAX];
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_path_join(path, folder, name, &err), &err);
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

static void write_vae_config(const char *folder, bool is_22)
{
    char text[4096];
    size_t n = 0;
    n += (size_t)sprintf(text, "{\"_class_name\":\"AutoencoderKLWan\"");
    if (is_22) {
        n +=
            (size_t)sprintf(text + n, ",\"base_dim\":160,\"decoder_base_dim\":256,\"z_dim\":48,"
                                      "\"is_residual\":true,\"in_channels\":12,\"out_channels\":12,"
                                      "\"patch_size\":2,\"scale_factor_spatial\":16");
        for (int list = 0; list < 2; list++) {
            n += (size_t)sprintf(text + n, ",\"latents_%s\":[", list ? "std" : "mean");
            for (int i = 0; i < 48; i++) n += (size_t)sprintf(text + n, "%s0.5", i ? "," : "");
            n += (size_t)sprintf(text + n, "]");
        }
    }
    strcpy(text + n, "}");
    write_text(folder, "config.json", text);
}

static const char *sub(char path[WD_PATH_MAX], const char *root, const char *name)
{
    snprintf(path, WD_PATH_MAX, "%s/%s", root, name);
    return path;
}

/* The tree of a published model under the test's folder. */
static void make_tree(char root[WD_PATH_MAX], const published *m)
{
    wd_err err;
    wd_pipeline p;
    wd_tensor_table table;
    char text[1024], path[WD_PATH_MAX];
    sub(root, wd_test_folder(), m->name);
    snprintf(text, sizeof text, DIT, m->ffn_dim, m->channels, m->heads, m->layers, m->channels);
    write_text(sub(path, root, "transformer"), "config.json", text);
    if (m->two_experts) write_text(sub(path, root, "transformer_2"), "config.json", text);
    snprintf(
        text, sizeof text,
        "{\"model_type\":\"umt5\",\"d_ff\":10240,\"d_kv\":64,\"d_model\":4096,\"num_heads\":64,"
        "\"num_layers\":24,\"vocab_size\":256384,\"torch_dtype\":\"%s\"}",
        wd_dtype_option_name(m->text_dtype));
    write_text(sub(path, root, "text_encoder"), "config.json", text);
    write_vae_config(sub(path, root, "vae"), m->channels == 48);
    write_text(sub(path, root, "tokenizer"), "tokenizer_config.json",
               "{\"model_max_length\": 1000000000000000019884624838656}");
    write_text(sub(path, root, "scheduler"), "scheduler_config.json",
               "{\"_class_name\":\"UniPCMultistepScheduler\",\"use_flow_sigmas\":true,"
               "\"prediction_type\":\"flow_prediction\",\"flow_shift\":3.0}");
    snprintf(text, sizeof text,
             "{\"_class_name\":\"WanPipeline\",\"scheduler\":[\"diffusers\","
             "\"UniPCMultistepScheduler\"],"
             "\"text_encoder\":[\"transformers\",\"UMT5EncoderModel\"],"
             "\"tokenizer\":[\"transformers\",\"T5TokenizerFast\"],"
             "\"transformer\":[\"diffusers\",\"WanTransformer3DModel\"],"
             "\"transformer_2\":[%s],\"vae\":[\"diffusers\",\"AutoencoderKLWan\"],"
             "\"boundary_ratio\":%s,\"expand_timesteps\":%s,\"future_key\":{\"x\":1}}",
             m->two_experts ? "\"diffusers\",\"WanTransformer3DModel\"" : "null,null",
             m->two_experts ? "0.875" : "null", m->channels == 48 ? "true" : "false");
    write_text(root, "model_index.json", text);
    wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
    wd_test_ok(wd_dit_table_open(&table, &p.dit, &err), &err);
    wd_test_sparse_set(sub(path, root, "transformer"), "diffusion_pytorch_model", &table, m->shards,
                       m->dit_dtype, NULL);
    if (m->two_experts)
        wd_test_sparse_set(sub(path, root, "transformer_2"), "diffusion_pytorch_model", &table,
                           m->shards, m->dit_dtype, NULL);
    wd_dit_table_close(&table);
    wd_test_ok(wd_umt5_table_open(&table, &p.umt5, &err), &err);
    wd_test_sparse_set(sub(path, root, "text_encoder"), "model", &table, 5, m->text_dtype,
                       "encoder.embed_tokens.weight");
    wd_umt5_table_close(&table);
    wd_test_ok(wd_vae_table_open(&table, &p.vae, &err), &err);
    wd_test_sparse_set(sub(path, root, "vae"), "diffusion_pytorch_model", &table, 1, WD_F32, NULL);
    wd_vae_table_close(&table);
}

static void measure(const wd_pipeline *p, wd_component c, int64_t *parameters, int64_t *tensors,
                    uint64_t *bytes)
{
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_pipeline_open_weights(&set, p, c, &err), &err);
    *parameters = 0;
    *bytes = 0;
    *tensors = wd_safetensors_count(set);
    for (int64_t i = 0; i < *tensors; i++) {
        *parameters += wd_tensor_count(&wd_safetensors_at(set, i)->tensor);
        *bytes += wd_tensor_bytes(&wd_safetensors_at(set, i)->tensor);
    }
    wd_safetensors_close(set);
}

/* Parameters, tensors and bytes of the published files. */
static void opens_published_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const published *m = &models[i];
        wd_err err;
        wd_pipeline p;
        int64_t parameters, tensors;
        uint64_t bytes;
        char root[WD_PATH_MAX];
        make_tree(root, m);
        wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
        assert_int_equal(p.has[WD_COMPONENT_TRANSFORMER_2], m->two_experts);
        assert_true(p.boundary_ratio == (m->two_experts ? 0.875 : 0));
        assert_int_equal(p.expand_timesteps, m->channels == 48);
        assert_int_equal(p.text_tokens, 512);
        assert_int_equal(p.default_height, 512);
        assert_int_equal(wd_pipeline_size_multiple(&p), m->channels == 48 ? 32 : 16);
        assert_int_equal(p.umt5.file_dtype, m->text_dtype);
        for (int c = 0; c < 1 + m->two_experts; c++) {
            measure(&p, (wd_component)c, &parameters, &tensors, &bytes);
            assert_int_equal(parameters, m->dit_parameters);
            assert_int_equal(tensors, m->layers * 27 + 15);
            assert_int_equal(bytes, m->dit_bytes);
        }
        measure(&p, WD_COMPONENT_TEXT_ENCODER, &parameters, &tensors, &bytes);
        assert_int_equal(parameters, 5680910336);
        assert_int_equal(tensors, 242);
        assert_int_equal(bytes, m->text_bytes);
        measure(&p, WD_COMPONENT_VAE, &parameters, &tensors, &bytes);
        assert_int_equal(parameters, m->vae_parameters);
        assert_int_equal(tensors, m->vae_tensors);
    }
}

/* ---- refusals ---- */

#define INDEX(more) "{\"_class_name\":\"WanPipeline\"," more "}"

static void refuses_other_pipelines(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        wd_status status;
        const char *named;
    } cases[] = {
        {"{}", WD_BAD_FORMAT, "\"_class_name\" is missing"},
        {"{\"_class_name\":\"WanImageToVideoPipeline\"}", WD_UNSUPPORTED,
         "WanImageToVideoPipeline"},
        {"{\"_class_name\":\"WanVACEPipeline\"}", WD_UNSUPPORTED, "WanVACEPipeline"},
        {"{\"_class_name\":\"FluxPipeline\"}", WD_UNSUPPORTED, "FluxPipeline"},
        {INDEX("\"transformer\":[\"diffusers\",\"WanVACETransformer3DModel\"]"), WD_UNSUPPORTED,
         "WanVACETransformer3DModel"},
        {INDEX("\"text_encoder\":[\"transformers\",\"T5EncoderModel\"]"), WD_UNSUPPORTED,
         "expected UMT5EncoderModel, found T5EncoderModel"},
        {INDEX("\"vae\":[\"AutoencoderKLWan\"]"), WD_BAD_FORMAT, "\"vae\""},
        {INDEX("\"image_encoder\":[\"transformers\",\"CLIPVisionModel\"]"), WD_UNSUPPORTED,
         "CLIPVisionModel"},
        {INDEX("\"boundary_ratio\":0.875"), WD_MISMATCH, "no \"transformer_2\""},
        {INDEX("\"boundary_ratio\":1.5"), WD_BAD_FORMAT, "1.5"},
        {INDEX("\"sample_size\":[64,100]"), WD_BAD_FORMAT, "multiples of 16"},
    };
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX];
    sub(root, wd_test_folder(), "refused");
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_NOT_FOUND, "refused");
    wd_test_ok(wd_folder_make(root, &err), &err);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_NOT_FOUND, "model_index.json");
    write_text(root, "config.json", "{\"_class_name\":\"WanModel\"}");
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_NOT_FOUND, "-Diffusers");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(root, "model_index.json", cases[i].index);
        wd_test_refused(wd_pipeline_open(&p, root, &err), &err, cases[i].status, cases[i].named);
    }
    write_text(root, "model_index.json", INDEX("\"vae\":[\"diffusers\",\"AutoencoderKLWan\"]"));
    wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
    wd_test_refused(wd_pipeline_require(&p, WD_COMPONENT_VAE, &err), &err, WD_NOT_FOUND,
                    "incomplete download");
}

static void refuses_what_does_not_fit_together(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX], path[WD_PATH_MAX], text[1024];
    sub(root, wd_test_folder(), "mixed");
    snprintf(text, sizeof text, DIT, 512, 16, 2, 2, 16);
    write_text(sub(path, root, "transformer"), "config.json", text);
    snprintf(text, sizeof text, DIT, 512, 16, 2, 3, 16);
    write_text(sub(path, root, "transformer_2"), "config.json", text);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_MISMATCH, "layers 3 and 2");
    wd_test_ok(wd_folder_remove(path, &err), &err);
    write_text(sub(path, root, "text_encoder"), "config.json", "{\"model_type\":\"umt5\"}");
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_MISMATCH, "\"d_model\" 512");
    wd_test_ok(wd_folder_remove(path, &err), &err);
    write_vae_config(sub(path, root, "vae"), true);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_MISMATCH, "\"z_dim\" 48");
    wd_test_ok(wd_folder_remove(path, &err), &err);
    snprintf(text, sizeof text, DIT, 512, 36, 2, 2, 16);
    write_text(sub(path, root, "transformer"), "config.json", text);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_UNSUPPORTED, "image-to-video");
}

static void refuses_wrong_weights(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_tensor_table table;
    wd_safetensors *set;
    char root[WD_PATH_MAX], folder[WD_PATH_MAX], text[1024];
    sub(root, wd_test_folder(), "wrong");
    sub(folder, root, "transformer");
    snprintf(text, sizeof text, DIT, 512, 16, 2, 2, 16);
    write_text(folder, "config.json", text);
    wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
    const wd_component c = WD_COMPONENT_TRANSFORMER;
    wd_test_refused(wd_pipeline_open_weights(&set, &p, c, &err), &err, WD_NOT_FOUND,
                    "diffusion_pytorch_model.safetensors");
    wd_test_ok(wd_dit_table_open(&table, &p.dit, &err), &err);
    const char stem[] = "diffusion_pytorch_model";
    wd_test_sparse_set(folder, stem, &table, 1, WD_F16, "blocks.1.norm2.bias");
    wd_test_refused(wd_pipeline_open_weights(&set, &p, c, &err), &err, WD_NOT_FOUND,
                    "\"blocks.1.norm2.bias\" is missing");
    wd_test_sparse_set(folder, stem, &table, 1, WD_F64, NULL);
    wd_test_refused(wd_pipeline_open_weights(&set, &p, c, &err), &err, WD_UNSUPPORTED, "found F64");
    wd_tensor_spec *spec = &table.spec[wd_dit_stage_first(&p.dit, 1) + WD_DIT_BLOCK_FFN1_W];
    spec->dim[0] = 511;
    wd_test_sparse_set(folder, stem, &table, 1, WD_BF16, NULL);
    wd_test_refused(wd_pipeline_open_weights(&set, &p, c, &err), &err, WD_MISMATCH,
                    "expected shape [512, 256], found [511, 256]");
    spec->dim[0] = 512;
    static const struct {
        const char *name;
        const char *named;
    } foreign[] = {
        {"condition_embedder.image_embedder.norm1.weight", "image-to-video"},
        {"blocks.0.attn2.add_k_proj.weight", "image-to-video"},
        {"vace_blocks.0.proj_in.weight", "VACE"},
    };
    wd_tensor_spec last = table.spec[table.count - 1];
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        snprintf(table.spec[table.count - 1].name, WD_TENSOR_NAME_MAX, "%s", foreign[i].name);
        wd_test_sparse_set(folder, stem, &table, 1, WD_BF16, NULL);
        wd_test_refused(wd_pipeline_open_weights(&set, &p, c, &err), &err, WD_UNSUPPORTED,
                        foreign[i].named);
        assert_non_null(strstr(err.message, foreign[i].name));
    }
    table.spec[table.count - 1] = last;
    wd_test_sparse_set(folder, stem, &table, 1, WD_BF16, NULL);
    wd_test_ok(wd_pipeline_open_weights(&set, &p, c, &err), &err);
    wd_safetensors_close(set);
    wd_dit_table_close(&table);
}

static void default_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *index, *card;
        int height, width;
    } cases[] = {
        {INDEX("\"sample_size\":256"), "Sample at 64x64", 256, 256},
        {INDEX("\"image_size\":[480,832]"), "", 480, 832},
        {INDEX("\"x\":1"), "Any text.\nSample with 20 steps, 832x480.\n", 480, 832},
        {INDEX("\"x\":1"), "It makes 1280x720 video.\n--sample_shift 8 640x640\n", 512, 512},
        {INDEX("\"x\":1"), "Samples of 17x512x512.\nSample 0x1 and 65x64, then 96x128", 128, 96},
    };
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX];
    sub(root, wd_test_folder(), "sizes");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(root, "model_index.json", cases[i].index);
        write_text(root, "README.md", cases[i].card);
        wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
        assert_int_equal(p.default_height, cases[i].height);
        assert_int_equal(p.default_width, cases[i].width);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_wan_tiny),
        cmocka_unit_test(opens_single_components),
        cmocka_unit_test(opens_published_models),
        cmocka_unit_test(refuses_other_pipelines),
        cmocka_unit_test(refuses_what_does_not_fit_together),
        cmocka_unit_test(refuses_wrong_weights),
        cmocka_unit_test(default_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
