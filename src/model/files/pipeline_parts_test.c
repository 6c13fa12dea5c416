/* Pipelines of single files: every form of wan-tiny's components has the values of its folder,
 * other layouts of folders are understood, and what is damaged or not what it should be is refused.
 */
#include "forms.h"
#include "published.h"
#include "tiny_teacher.h"

#include <sys/stat.h>
#include <unistd.h>

#include "model/files/pipeline_impl.h"

static const char tiny[] = WD_SOURCE_DIR "/models/wan-tiny";

static const char *at(const char *name)
{
    static char path[32][WD_PATH_MAX];
    static int next;
    wd_err err;
    char *out = path[next++ % 32];
    wd_test_ok(wd_path_join(out, wd_test_folder(), name, &err), &err);
    return out;
}

static void write_text(const char *path, const char *text)
{
    wd_err err;
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

static wd_pipeline_parts only(wd_component c, const char *path)
{
    wd_pipeline_parts parts = {0};
    parts.part[c] = path;
    return parts;
}

/* The values of both, after rounding to `dtype` if that is one. */
static void check_same(const wd_pipeline *found, wd_component c, wd_dtype dtype)
{
    wd_err err;
    wd_safetensors *a, *b;
    wd_test_ok(wd_pipeline_open_weights(&a, &teacher, c, &err), &err);
    wd_test_ok(wd_pipeline_open_weights(&b, found, c, &err), &err);
    const int64_t tokenizer = wd_safetensors_find(b, "spiece_model") != NULL;
    assert_int_equal(wd_safetensors_count(a), wd_safetensors_count(b) - tokenizer);
    for (int64_t i = 0; i < wd_safetensors_count(a); i++) {
        const wd_safetensors_entry *x = wd_safetensors_at(a, i);
        const wd_safetensors_entry *y = wd_safetensors_find(b, x->name);
        if (!y) fail_msg("%s is missing", x->name);
        assert_int_equal(y->tensor.dtype, dtype == WD_DTYPE_COUNT ? x->tensor.dtype : dtype);
        for (size_t k = 0; k < (size_t)wd_tensor_count(&x->tensor); k++) {
            float want = wd_test_value(&x->tensor, k);
            if (dtype == WD_F16) want = wd_f16_to_f32(wd_f32_to_f16(want));
            if (dtype == WD_BF16) want = wd_bf16_to_f32(wd_f32_to_bf16(want));
            if (wd_test_value(&y->tensor, k) != want) fail_msg("%s: value %zu", x->name, k);
        }
    }
    wd_safetensors_close(a);
    wd_safetensors_close(b);
}

static void every_form_has_the_folders_values(void **state)
{
    (void)state;
    static const wd_component components[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TEXT_ENCODER,
                                              WD_COMPONENT_VAE};
    static const char *const prefixes[][2] = {
        {"", "model.diffusion_model."}, {"", "text_encoders.umt5xxl.transformer."}, {"", "vae."}};
    static const wd_dtype dtypes[] = {WD_DTYPE_COUNT, WD_F32, WD_F16, WD_BF16};
    wd_err err;
    wd_pipeline p;
    for (int k = 0; k < 3; k++) {
        const wd_component c = components[k];
        const char *folder = at(wd_component_name(c));
        wd_test_ok(wd_folder_make(folder, &err), &err);
        if (c != WD_COMPONENT_TEXT_ENCODER) wd_test_copy_config(folder, tiny, wd_component_name(c));
        char path[WD_PATH_MAX];
        wd_test_ok(wd_path_join(path, folder, "file.safetensors", &err), &err);
        for (int i = 0; i < 16; i++) {
            const wd_test_form form = {i & 1, prefixes[k][i >> 1 & 1], dtypes[i >> 2]};
            wd_test_write_form(path, &teacher, c, &form, NULL, 0);
            const wd_pipeline_parts parts = only(c, path);
            wd_test_ok(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err);
            assert_true(p.made[c]);
            assert_string_equal(p.part[c], path);
            assert_true(wd_dit_config_same(&p.dit, &teacher.dit));
            assert_memory_equal(&p.umt5, &teacher.umt5, offsetof(wd_umt5_config, file_dtype));
            assert_int_equal(p.vae.z_dim, teacher.vae.z_dim);
            assert_true(p.boundary_ratio == teacher.boundary_ratio);
            check_same(&p, c, form.dtype);
        }
    }
}

/* ComfyUI's folder has no scheduler and no boundary, and wan-tiny has no published sizes. */
static void comfyui_folders(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_tokenizer *tokenizer;
    const char *root = at("comfyui");
    wd_test_comfyui_folder(root, &teacher, WD_DTYPE_COUNT);
    wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
    assert_false(p.has[WD_COMPONENT_SCHEDULER]);
    wd_test_refused(wd_pipeline_require_experts(&p, &err), &err, WD_NOT_FOUND, "--teacher_preset");
    wd_test_refused(wd_pipeline_require(&p, WD_COMPONENT_SCHEDULER, &err), &err, WD_NOT_FOUND,
                    "--teacher_preset");
    wd_pipeline_parts parts = {.preset = "wan2.2-a14b"};
    wd_test_ok(wd_pipeline_open_parts(&p, root, &parts, &err), &err);
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) assert_true(p.has[c] && p.listed[c]);
    assert_true(p.boundary_ratio == 0.875 && p.scheduler.flow_shift == 5);
    wd_test_ok(wd_pipeline_require_experts(&p, &err), &err);
    for (wd_component c = 0; c <= WD_COMPONENT_VAE; c++) check_same(&p, c, WD_DTYPE_COUNT);
    wd_test_ok(wd_pipeline_tokenizer_open(&tokenizer, &p, &err), &err);
    wd_tokenizer_close(tokenizer);
    parts.preset = "wan2.1-14b";
    wd_test_refused(wd_pipeline_open_parts(&p, root, &parts, &err), &err, WD_MISMATCH,
                    "has one transformer, and the teacher has two");
    parts.preset = "wan2.2-a14b";
    wd_test_refused(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err, WD_INVALID_ARGUMENT,
                    "both say");
    char third[WD_PATH_MAX], vae[WD_PATH_MAX], other[WD_PATH_MAX];
    wd_test_ok(wd_path_join(vae, root, "vae/wan_tiny_vae.safetensors", &err), &err);
    wd_test_ok(wd_path_join(third, root, "diffusion_models/wan_tiny.safetensors", &err), &err);
    wd_test_ok(wd_path_join(other, root, "vae/wan_other_vae.safetensors", &err), &err);
    assert_int_equal(link(vae, third), 0);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_INVALID_ARGUMENT,
                    "tiny_high_noise.safetensors, tiny_low_noise.safetensors, "
                    "wan_tiny.safetensors): say which by --transformer");
    assert_int_equal(unlink(third), 0);
    assert_int_equal(link(vae, other), 0);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_INVALID_ARGUMENT, "by --vae");
    parts.part[WD_COMPONENT_VAE] = vae;
    wd_test_ok(wd_pipeline_open_parts(&p, root, &parts, &err), &err);
}

/* Wan's own repositories: a folder per expert with the original configuration, or none. */
static void original_folders(void **state)
{
    (void)state;
    static const char weights[] = "diffusion_pytorch_model.safetensors";
    static const wd_test_form form = {true, "", WD_DTYPE_COUNT};
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX], high[WD_PATH_MAX], low[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_test_below(root, wd_test_folder(), "original");
    wd_test_below(high, root, "high_noise_model");
    wd_test_below(low, root, "low_noise_model");
    wd_test_ok(wd_folder_make(high, &err), &err);
    wd_test_ok(wd_folder_make(low, &err), &err);
    wd_test_write_form(wd_test_below(path, high, weights), &teacher, WD_COMPONENT_TRANSFORMER,
                       &form, NULL, 0);
    wd_test_write_form(wd_test_below(path, low, weights), &teacher, WD_COMPONENT_TRANSFORMER_2,
                       &form, NULL, 0);
    wd_test_refused(wd_pipeline_open(&p, root, &err), &err, WD_UNSUPPORTED, "number of heads");
    wd_test_copy_config(high, tiny, "transformer");
    wd_test_copy_config(low, tiny, "transformer");
    write_text(wd_test_below(path, root, "Wan2.1_VAE.pth"), "PK\3\4");
    const wd_pipeline_parts parts = {.preset = "wan2.2-a14b"};
    wd_test_ok(wd_pipeline_open_parts(&p, root, &parts, &err), &err);
    check_same(&p, WD_COMPONENT_TRANSFORMER, WD_DTYPE_COUNT);
    check_same(&p, WD_COMPONENT_TRANSFORMER_2, WD_DTYPE_COUNT);
    wd_test_refused(wd_pipeline_require(&p, WD_COMPONENT_VAE, &err), &err, WD_NOT_FOUND, "--vae");
}

/* What two files of published sizes are taken for: one of them is Wan 2.1, two are 2.2. */
static void presets_by_sizes(void **state)
{
    (void)state;
    static const struct {
        int ffn_dim, channels, heads, layers;
        bool two;
        const char *preset; /* that is asked for */
        double boundary;
        bool expand;
        wd_status status;
        const char *named;
    } cases[] = {
        {8960, 16, 12, 30, false, NULL, 0, false, WD_OK, ""},
        {13824, 16, 40, 40, false, NULL, 0, false, WD_OK, ""},
        {13824, 16, 40, 40, true, NULL, 0.875, false, WD_OK, ""},
        {14336, 48, 24, 30, false, NULL, 0, true, WD_OK, ""},
        {13824, 16, 40, 40, false, "wan2.2-a14b", 0, false, WD_MISMATCH, "as --transformer_2"},
        {13824, 36, 40, 40, false, NULL, 0, false, WD_UNSUPPORTED, "image-to-video"},
    };
    wd_err err;
    wd_pipeline p;
    wd_tensor_table table;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_dit_config config = {.in_channels = cases[i].channels,
                                .out_channels = cases[i].channels == 36 ? 16 : cases[i].channels,
                                .heads = cases[i].heads,
                                .head_dim = 128,
                                .ffn_dim = cases[i].ffn_dim,
                                .layers = cases[i].layers,
                                .freq_dim = 256,
                                .text_dim = 4096,
                                .patch = {1, 2, 2},
                                .rope_max_seq_len = 1024,
                                .cross_attn_norm = true,
                                .eps = 1e-6};
        const char *folder = at("sizes");
        wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
        wd_test_sparse_set(folder, "wan", &table, 1, WD_BF16, NULL);
        wd_dit_table_close(&table);
        const char *path = at("sizes/wan.safetensors");
        wd_pipeline_parts parts = only(WD_COMPONENT_TRANSFORMER, path);
        if (cases[i].two) parts.part[WD_COMPONENT_TRANSFORMER_2] = path;
        parts.preset = cases[i].preset;
        const wd_status status = wd_pipeline_open_parts(&p, NULL, &parts, &err);
        if (cases[i].status != WD_OK) {
            wd_test_refused(status, &err, cases[i].status, cases[i].named);
            continue;
        }
        wd_test_ok(status, &err);
        assert_true(p.boundary_ratio == cases[i].boundary);
        assert_int_equal(p.expand_timesteps, cases[i].expand);
        assert_true(p.has[WD_COMPONENT_SCHEDULER]);
        wd_test_ok(wd_pipeline_require_experts(&p, &err), &err);
    }
}

/* A file of one tensor. */
static const char *one_tensor(const char *name, const char *tensor, const char *dtype, size_t bytes)
{
    char header[512];
    const int n = snprintf(header, sizeof header,
                           "{\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                           tensor, dtype, bytes / (strcmp(dtype, "F32") ? 1 : 4), bytes);
    const uint64_t length = (uint64_t)n;
    char *file = calloc(1, 8 + (size_t)n + bytes);
    wd_err err;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, (size_t)n);
    const char *path = at(name);
    wd_test_ok(wd_file_write(path, file, 8 + (size_t)n + bytes, &err), &err);
    free(file);
    return path;
}

static void what_is_refused(void **state)
{
    (void)state;
    const wd_component dit = WD_COMPONENT_TRANSFORMER, text = WD_COMPONENT_TEXT_ENCODER,
                       vae = WD_COMPONENT_VAE;
    wd_err err;
    wd_pipeline p;
    write_text(at("a.pth"), "PK\3\4and more");
    write_text(at("b.safetensors"), "PK\3\4 with another name");
    write_text(at("c.gguf"), "GGUF\3");
    write_text(at("d.safetensors"), "GGUF\3 with another name");
    write_text(at("e.safetensors"), "short");
    write_text(at("g.gguf"), "something else");
    static const char flux[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                               "\24\0\0\0\0\0\0\0general.architecture\10\0\0\0"
                               "\4\0\0\0\0\0\0\0flux";
    wd_test_ok(wd_file_write(at("flux.gguf"), flux, sizeof flux - 1, &err), &err);
    static const char empty[] = "\2\0\0\0\0\0\0\0{}";
    wd_test_ok(wd_folder_make(at("empty"), &err), &err);
    wd_test_ok(wd_file_write(at("empty.safetensors"), empty, 10, &err), &err);
    wd_test_ok(wd_file_write(at("empty/model.safetensors"), empty, 10, &err), &err);
    wd_test_ok(wd_file_write(at("empty/diffusion_pytorch_model.safetensors"), empty, 10, &err),
               &err);
    const struct {
        wd_component component;
        const char *path;
        wd_status status;
        const char *named;
    } cases[] = {
        {vae, at("a.pth"), WD_UNSUPPORTED, "wan_2.1_vae.safetensors"},
        {text, at("a.pth"), WD_UNSUPPORTED, "umt5_xxl_fp16.safetensors"},
        {dit, at("a.pth"), WD_UNSUPPORTED, "Comfy-Org/Wan_2.1_ComfyUI_repackaged"},
        {dit, at("b.safetensors"), WD_UNSUPPORTED, "is a torch file"},
        {dit, at("c.gguf"), WD_BAD_FORMAT, "is 5 bytes long, too short"},
        {text, at("d.safetensors"), WD_UNSUPPORTED, "is a GGUF file of version"},
        {dit, at("g.gguf"), WD_BAD_FORMAT, "does not begin with \"GGUF\""},
        {dit, at("flux.gguf"), WD_UNSUPPORTED, "is \"flux\", expected wan for a transformer"},
        {text, at("flux.gguf"), WD_UNSUPPORTED, "is \"flux\", expected t5encoder"},
        {dit, at("e.safetensors"), WD_BAD_FORMAT, "5 bytes long"},
        {vae, at("empty.safetensors"), WD_UNSUPPORTED, "has no tensors"},
        {vae, at("empty"), WD_UNSUPPORTED, "has no tensors"},
        {text, at("empty"), WD_UNSUPPORTED, "has no tensors"},
        {dit, at("missing.safetensors"), WD_NOT_FOUND, "--transformer: "},
        {dit, one_tensor("f.safetensors", "x", "F32", 4), WD_UNSUPPORTED, "no Wan transformer"},
        {text, one_tensor("g.safetensors", "x", "F32", 4), WD_UNSUPPORTED, "no UMT5 text encoder"},
        {vae, one_tensor("h.safetensors", "x", "F32", 4), WD_UNSUPPORTED, "no Wan VAE"},
        {dit, one_tensor("i.safetensors", "scaled_fp8", "F32", 4), WD_UNSUPPORTED,
         "has no tensors"},
        {dit, one_tensor("j.safetensors", "blocks.0.ffn.0.scale_weight", "F32", 4), WD_BAD_FORMAT,
         "is a scale, but there is no \"blocks.0.ffn.0.weight\""},
        {dit, one_tensor("k.safetensors", "blocks.0.ffn.0.weight", "F8_E4M3", 4), WD_UNSUPPORTED,
         "no Wan transformer"},
        {dit, one_tensor("l.safetensors", "blocks.0.cross_attn.k_img.weight", "F32", 4),
         WD_UNSUPPORTED, "an image-to-video model"},
        {dit, one_tensor("m.safetensors", "lora_unet_blocks_0_ffn_0.lora_down.weight", "F32", 4),
         WD_UNSUPPORTED, "a LoRA"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wd_pipeline_parts parts = only(cases[i].component, cases[i].path);
        wd_test_refused(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err, cases[i].status,
                        cases[i].named);
    }
    wd_tokenizer *tokenizer;
    wd_pipeline_parts parts = only(WD_COMPONENT_TOKENIZER, at("f.safetensors"));
    wd_test_ok(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err);
    wd_test_refused(wd_pipeline_tokenizer_open(&tokenizer, &p, &err), &err, WD_UNSUPPORTED,
                    "\"spiece_model\"");
    parts = only(WD_COMPONENT_TOKENIZER, one_tensor("n.safetensors", "spiece_model", "U8", 9));
    wd_test_ok(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err);
    assert_true(wd_pipeline_tokenizer_open(&tokenizer, &p, &err) != WD_OK);
    parts = only(WD_COMPONENT_TOKENIZER, WD_SOURCE_DIR "/models/wan-tiny/tokenizer/tokenizer.json");
    wd_test_ok(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err);
    wd_test_refused(wd_pipeline_tokenizer_open(&tokenizer, &p, &err), &err, WD_UNSUPPORTED,
                    "expected spiece.model");
}

/* An int8 tensor in the place of a weight is not taken as it is. */
static void quantised_tensors_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_tensor_table table;
    const char *folder = at("int8");
    wd_test_ok(wd_dit_table_open(&table, &teacher.dit, &err), &err);
    wd_test_sparse_set(folder, "wan", &table, 1, WD_I8, NULL);
    wd_dit_table_close(&table);
    wd_test_copy_config(folder, tiny, "transformer");
    const wd_pipeline_parts parts = only(WD_COMPONENT_TRANSFORMER, at("int8/wan.safetensors"));
    wd_test_refused(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err, WD_BAD_FORMAT,
                    "is quantised (I8), and its scale is missing");
}

/* A pipe among the files is named, and nothing waits for its writer. */
static void pipes_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    assert_int_equal(mkfifo(at("pipe.safetensors"), 0600), 0);
    const wd_pipeline_parts parts = only(WD_COMPONENT_TRANSFORMER, at("pipe.safetensors"));
    wd_test_refused(wd_pipeline_open_parts(&p, tiny, &parts, &err), &err, WD_IO,
                    "pipe.safetensors: is not a file");
}

/* Configurations that are made say what those of the folder say. */
static void made_configurations_read_back(void **state)
{
    (void)state;
    wd_err err;
    wd_umt5_config umt5;
    wd_vae_config vae;
    wd_scheduler_config scheduler;
    json_t *json = wd_umt5_config_json(&teacher.umt5);
    wd_test_ok(wd_umt5_config_read(&umt5, json, "made", &err), &err);
    assert_memory_equal(&umt5, &teacher.umt5, offsetof(wd_umt5_config, file_dtype));
    assert_int_equal(umt5.file_dtype, teacher.umt5.file_dtype);
    json_decref(json);
    json = wd_vae_config_json(&teacher.vae);
    wd_test_ok(wd_vae_config_read(&vae, json, "made", &err), &err);
    assert_memory_equal(vae.latents_mean, teacher.vae.latents_mean, 16 * sizeof(double));
    assert_memory_equal(vae.latents_std, teacher.vae.latents_std, 16 * sizeof(double));
    assert_int_equal(vae.base_dim, teacher.vae.base_dim);
    assert_int_equal(vae.num_res_blocks, teacher.vae.num_res_blocks);
    json_decref(json);
    json = wd_scheduler_config_json(&teacher.scheduler);
    wd_test_ok(wd_scheduler_config_read(&scheduler, json, "made", &err), &err);
    assert_int_equal(scheduler.kind, teacher.scheduler.kind);
    assert_true(scheduler.flow_shift == teacher.scheduler.flow_shift);
    assert_int_equal(scheduler.solver_order, teacher.scheduler.solver_order);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_the_folders_values),
        cmocka_unit_test(comfyui_folders),
        cmocka_unit_test(original_folders),
        cmocka_unit_test(presets_by_sizes),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(quantised_tensors_are_refused),
        cmocka_unit_test(pipes_are_refused),
        cmocka_unit_test(made_configurations_read_back),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
