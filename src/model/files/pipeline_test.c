/* Tests of pipeline folders: wan-tiny, trees with the published models'
 * configurations and sparse weights of their true sizes, and refusals. */
#include "published.h"

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

/* A folder with the subfolder of one component can be opened. */
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

/* A component's own folder opens as well. */
static void opens_component_folders(void **state)
{
    (void)state;
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        wd_err err;
        wd_pipeline p;
        wd_safetensors *set;
        char path[WD_PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", wan_tiny, wd_component_name((wd_component)c));
        wd_test_ok(wd_pipeline_open(&p, path, &err), &err);
        /* the second expert's folder alone is just a transformer */
        int expected = c == WD_COMPONENT_TRANSFORMER_2 ? WD_COMPONENT_TRANSFORMER : c;
        for (int i = 0; i < WD_COMPONENT_COUNT; i++) assert_int_equal(p.has[i], i == expected);
        if (c > WD_COMPONENT_VAE) continue;
        wd_test_ok(wd_pipeline_open_weights(&set, &p, (wd_component)expected, &err), &err);
        wd_safetensors_close(set);
    }
}

/* ---- trees of the published models ---- */

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
    for (size_t i = 0; i < sizeof wd_test_models / sizeof *wd_test_models; i++) {
        const wd_test_published *m = &wd_test_models[i];
        wd_err err;
        wd_pipeline p;
        int64_t parameters, tensors;
        uint64_t bytes;
        char root[WD_PATH_MAX];
        wd_test_tree(root, m);
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
        {"{\"_class_name\":\"WanVACEPipeline\"}", WD_UNSUPPORTED,
         "WanVACEPipeline (VACE, video editing): take"},
        {"{\"_class_name\":\"WanDMDPipeline\"}", WD_UNSUPPORTED,
         "--transformer FOLDER/transformer"},
        {"{\"_class_name\":\"Wan\\u000aforged\"}", WD_UNSUPPORTED, "found a Wan"},
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
    wd_test_below(root, wd_test_folder(), "refused");
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_NOT_FOUND, "refused");
    wd_test_ok(wd_folder_make(root, &err), &err);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_NOT_FOUND, "model_index.json");
    wd_test_write(root, "config.json", "{\"_class_name\":\"WanModel\"}");
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_NOT_FOUND, "-Diffusers");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_test_write(root, "model_index.json", cases[i].index);
        wd_test_refused(wd_pipeline_open(&p, root, &err), &err, cases[i].status, cases[i].named);
        assert_null(strstr(err.message, "forged"));
    }
    wd_test_write(root, "model_index.json", INDEX("\"vae\":[\"diffusers\",\"AutoencoderKLWan\"]"));
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
    wd_test_below(root, wd_test_folder(), "mixed");
    snprintf(text, sizeof text, WD_TEST_DIT_CONFIG, 512, 16, 2, 2, 16);
    wd_test_write(wd_test_below(path, root, "transformer"), "config.json", text);
    snprintf(text, sizeof text, WD_TEST_DIT_CONFIG, 512, 16, 2, 3, 16);
    wd_test_write(wd_test_below(path, root, "transformer_2"), "config.json", text);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_MISMATCH,
                    "\"num_layers\": expected 2, as the first transformer has it, found 3");
    snprintf(text, sizeof text, WD_TEST_DIT_CONFIG, 511, 16, 2, 2, 16);
    wd_test_write(path, "config.json", text);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_MISMATCH,
                    "\"ffn_dim\": expected 512, as the first transformer has it, found 511");
    wd_test_ok(wd_folder_remove(path, &err), &err);
    wd_test_write(wd_test_below(path, root, "text_encoder"), "config.json",
                  "{\"model_type\":\"umt5\"}");
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_MISMATCH, "\"d_model\" 512");
    wd_test_ok(wd_folder_remove(path, &err), &err);
    wd_test_write_vae_config(wd_test_below(path, root, "vae"), true);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_MISMATCH, "\"z_dim\" 48");
    wd_test_ok(wd_folder_remove(path, &err), &err);
    snprintf(text, sizeof text, WD_TEST_DIT_CONFIG, 512, 36, 2, 2, 16);
    wd_test_write(wd_test_below(path, root, "transformer"), "config.json", text);
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
    wd_test_below(root, wd_test_folder(), "wrong");
    wd_test_below(folder, root, "transformer");
    snprintf(text, sizeof text, WD_TEST_DIT_CONFIG, 512, 16, 2, 2, 16);
    wd_test_write(folder, "config.json", text);
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
    wd_tensor_table longer = {.spec = calloc((size_t)table.count + 2, sizeof *table.spec),
                              .count = table.count + 2};
    memcpy(longer.spec, table.spec, (size_t)table.count * sizeof *table.spec);
    for (int i = 0; i < 2; i++) {
        wd_tensor_spec *more = &longer.spec[table.count + i];
        *more = (wd_tensor_spec){.ndim = 1, .dim = {4}};
        snprintf(more->name, sizeof more->name,
                 i ? "rope.freqs_cos" : "blocks.0.to_gate_compress.bias");
    }
    wd_test_sparse_set(folder, stem, &longer, 1, WD_BF16, NULL);
    wd_test_refused(wd_pipeline_open_weights(&set, &p, c, &err), &err, WD_MISMATCH,
                    "has 1 tensor that no transformer of Wan has, the first is "
                    "\"blocks.0.to_gate_compress.bias\"");
    assert_non_null(strstr(err.message, "--ignore_unknown_tensors"));
    p.ignores_unknown = true;
    wd_test_ok(wd_pipeline_open_weights(&set, &p, c, &err), &err);
    wd_safetensors_close(set);
    p.ignores_unknown = false;
    longer.count--; /* a buffer is no other model */
    memcpy(&longer.spec[table.count], &longer.spec[table.count + 1], sizeof *longer.spec);
    wd_test_sparse_set(folder, stem, &longer, 1, WD_BF16, NULL);
    wd_test_ok(wd_pipeline_open_weights(&set, &p, c, &err), &err);
    wd_safetensors_close(set);
    free(longer.spec);
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
        int height, width, steps, tokens;
    } cases[] = {
        {INDEX("\"sample_size\":256"), "Sample at 64x64 in 1 step", 256, 256, 1, 512},
        {INDEX("\"image_size\":[480,832]"), "", 480, 832, 20, 512},
        {INDEX("\"x\":1"), "Any 7 steps.\nSample with 4 steps, 832x480.\n", 480, 832, 4, 512},
        {INDEX("\"x\":1"), "It makes 1280x720 video.\n--sample_shift 8 640x640\n", 512, 512, 20,
         512},
        {INDEX("\"x\":1"), "Samples of 17x512x512.\nSample 0x1 and 65x64, then 96x128", 128, 96, 20,
         512},
        {INDEX("\"x\":1"), "Sample in 99999999999999999999 steps or x4 steps", 512, 512, 20, 512},
        /* what a student says of itself goes before all else */
        {INDEX("\"sample_size\":256,\"_wandistiller\":{\"height\":480,\"width\":832,"
               "\"num_inference_steps\":4,\"max_sequence_length\":24}"),
         "Sample with 9 steps, 64x64, prompts of up to 77 tokens", 480, 832, 4, 24},
        {INDEX("\"_wandistiller\":{\"height\":64,\"width\":64}"),
         "Sample with 9 steps, 832x480, prompts of up to 77 tokens", 64, 64, 9, 77},
        /* an older student's card, whose teacher has such a path */
        {INDEX("\"x\":1"),
         "---\nbase_model: sample/wan-832x480\n---\n\n"
         "# A text-to-image student of sample/wan-832x480-7 steps\n\n"
         "There is no negative prompt. Sample with 4 steps, guidance 1, 64x96, prompts of up to 24 "
         "tokens, flow shift 3.\n",
         96, 64, 4, 24},
        {INDEX("\"x\":1"), "# sample 832x480 7 steps\n```\nsample 832x480 7 steps\n```\n", 512, 512,
         20, 512},
        {INDEX("\"x\":1"), "---\r\nx: sample 832x480\r\n---\r\nsample 64x96\r\n", 96, 64, 20, 512},
    };
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX];
    wd_test_below(root, wd_test_folder(), "sizes");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_test_write(root, "model_index.json", cases[i].index);
        wd_test_write(root, "README.md", cases[i].card);
        wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
        assert_int_equal(p.default_height, cases[i].height);
        assert_int_equal(p.default_width, cases[i].width);
        assert_int_equal(p.default_steps, cases[i].steps);
        assert_int_equal(p.text_tokens, cases[i].tokens);
    }
}

/* What a student says of itself comes from a file, so it is checked. */
static void refuses_senseless_sampling(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *named;
    } cases[] = {
        {"7", "\"_wandistiller\": expected an object"},
        {"{\"height\":65,\"width\":64}", "as multiples of 16"},
        {"{\"height\":64}", "as multiples of 16"},
        {"{\"height\":1e9,\"width\":64}", "\"height\""},
        {"{\"num_inference_steps\":0}", "\"num_inference_steps\""},
        {"{\"max_sequence_length\":\"long\"}", "\"max_sequence_length\""},
        {"{\"trained_steps\":-1}", "\"trained_steps\""},
    };
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX], index[512];
    wd_test_below(root, wd_test_folder(), "senseless");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(index, sizeof index, "{\"_class_name\":\"WanPipeline\",\"_wandistiller\":%s}",
                 cases[i].entry);
        wd_test_write(root, "model_index.json", index);
        wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_BAD_FORMAT, cases[i].named);
    }
}

/* The tokenizer limits the tokens of prompts: at least one, at most 512. */
static void lengths_of_prompts(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t tokens; /* 0: refused */
    } cases[] = {{"{}", 512},
                 {"{\"model_max_length\": 24}", 24},
                 {"{\"model_max_length\": 1000000000000000019884624838656}", 512},
                 {"{\"model_max_length\": 0}", 0},
                 {"{\"model_max_length\": -3}", 0},
                 {"{\"model_max_length\": 0.5}", 0}};
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX], folder[WD_PATH_MAX];
    wd_test_below(root, wd_test_folder(), "lengths");
    wd_test_write(root, "model_index.json",
                  INDEX("\"tokenizer\":[\"transformers\",\"T5TokenizerFast\"]"));
    wd_test_below(folder, root, "tokenizer");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_test_write(folder, "tokenizer_config.json", cases[i].config);
        const wd_status status = wd_pipeline_open(&p, root, &err);
        if (!cases[i].tokens) {
            wd_test_refused(status, &err, WD_BAD_FORMAT, "\"model_max_length\" is ");
            continue;
        }
        wd_test_ok(status, &err);
        assert_int_equal(p.text_tokens, cases[i].tokens);
    }
}

/* A hostile card has the word before a size 140,000 times on one line. Searching the line again for
 * each word would take a minute; one pass takes milliseconds. */
static void a_long_line_is_read_once(void **state)
{
    (void)state;
    static const char word[] = "sample ";
    const size_t bytes = sizeof word - 1, count = 140000;
    char *card = malloc(bytes * count + 16), root[WD_PATH_MAX];
    wd_err err;
    wd_pipeline p;
    for (size_t i = 0; i < count; i++) memcpy(card + i * bytes, word, bytes);
    strcpy(card + bytes * count, "\nsample 96x128\n");
    wd_test_below(root, wd_test_folder(), "long");
    wd_test_write(root, "model_index.json", INDEX("\"x\":1"));
    wd_test_write(root, "README.md", card);
    const clock_t begun = clock();
    wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
    wd_test_processor_time(begun, 5);
    assert_int_equal(p.default_height, 128);
    assert_int_equal(p.default_width, 96);
    free(card);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_wan_tiny),
        cmocka_unit_test(opens_single_components),
        cmocka_unit_test(opens_component_folders),
        cmocka_unit_test(opens_published_models),
        cmocka_unit_test(refuses_other_pipelines),
        cmocka_unit_test(refuses_what_does_not_fit_together),
        cmocka_unit_test(refuses_wrong_weights),
        cmocka_unit_test(default_sizes),
        cmocka_unit_test(refuses_senseless_sampling),
        cmocka_unit_test(lengths_of_prompts),
        cmocka_unit_test(a_long_line_is_read_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
