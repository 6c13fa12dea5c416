/* Tests of the description of models: counts and sizes of known ones, as data and as text. */
#include "published.h"
#include "failing.h"

#include "io/json/json.h"
#include "model/convert/inspect.h"

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("no number \"%s\"", key);
    return json_integer_value(value);
}

static void published_models(void **state)
{
    (void)state;
    static const int64_t dit_bf16[] = {2844248192, 28635351168, 10021521792};
    for (size_t i = 0; i < 3; i++) {
        const wd_test_published *m = &wd_test_models[i];
        wd_err err;
        json_t *tree;
        char root[WD_PATH_MAX], *text;
        wd_test_tree(root, m);
        wd_test_ok(wd_inspect_tree(&tree, root, NULL, &err), &err);
        assert_string_equal(json_string_value(json_object_get(tree, "kind")), "pipeline");
        assert_int_equal(number(tree, "prompt_tokens"), 512);
        const json_t *components = json_object_get(tree, "components");
        assert_int_equal(json_object_size(components), 5 + m->two_experts);
        const json_t *dit = json_object_get(components, "transformer");
        assert_int_equal(number(dit, "files"), m->shards);
        assert_int_equal(number(dit, "parameters"), m->dit_parameters);
        assert_int_equal(json_array_size(json_object_get(dit, "stages")), m->layers + 2);
        const json_t *memory = json_object_get(dit, "bytes_in_memory");
        assert_int_equal(number(memory, "stored"), m->dit_bytes);
        assert_int_equal(number(memory, "float32"), 4 * m->dit_parameters);
        assert_int_equal(number(memory, "bfloat16"), dit_bf16[i]);
        assert_true(number(dit, "bytes_on_disk") > number(memory, "stored"));
        const json_t *dtypes =
            json_object_get(json_object_get(components, "text_encoder"), "dtypes");
        const json_t *dtype = json_object_get(dtypes, wd_dtype_file_name(m->text_dtype));
        assert_int_equal(number(dtype, "tensors"), 242);
        assert_int_equal(number(dtype, "bytes"), m->text_bytes);
        assert_int_equal(number(tree, "parameters"),
                         (1 + m->two_experts) * m->dit_parameters + 5680910336 + m->vae_parameters);
        wd_test_ok(wd_inspect_text(&text, tree, &err), &err);
        assert_non_null(strstr(text, "5,680,910,336"));
        assert_int_equal(strstr(text, "timesteps from 875 up") != NULL, m->two_experts);
        wd_free(text);
        json_decref(tree);
    }
}

static void wan_tiny_as_text(void **state)
{
    (void)state;
    wd_err err;
    json_t *tree;
    char *text;
    static const char *const lines[] = {
        "wan-tiny: pipeline\n8,342,883 parameters",
        "timesteps from 875 up",
        "prompts: up to 24 tokens\n",
        "pictures: 64x64",
        "23 F32, 154 BF16\n",
        "  block 0 to 5, each            27         413,600    830 kB\n",
        "flow_shift 3.0",
        "UniPCMultistepScheduler",
    };
    wd_test_ok(wd_inspect_tree(&tree, WD_SOURCE_DIR "/models/wan-tiny", NULL, &err), &err);
    wd_test_ok(wd_inspect_text(&text, tree, &err), &err);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!strstr(text, lines[i])) fail_msg("no \"%s\" in:\n%s", lines[i], text);
    }
    wd_free(text);
    json_decref(tree);
}

static void single_files_and_components(void **state)
{
    (void)state;
    static const struct {
        const char *path, *kind;
        int64_t tensors;
    } cases[] = {
        {"models/wan-tiny/transformer/diffusion_pytorch_model.safetensors", "transformer file",
         177},
        {"tests/fixtures/dit-video/in.safetensors", "file", 4},
        {"models/wan-tiny/vae/diffusion_pytorch_model.safetensors", "VAE file", 146},
        {"models/wan-tiny/text_encoder/model.safetensors", "text encoder file", 22},
        {"tests/fixtures/dit-head128/transformer/"
         "diffusion_pytorch_model-00001-of-00007.safetensors",
         "file", 7},
        {"models/wan-tiny/vae", "component", 146},
        {"models/wan-tiny/scheduler", "component", 0},
        {"tests/fixtures/umt5", "pipeline", 22},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_err err;
        json_t *tree, *c;
        char path[WD_PATH_MAX], *text;
        const char *name;
        snprintf(path, sizeof path, "%s/%s", WD_SOURCE_DIR, cases[i].path);
        wd_test_ok(wd_inspect_tree(&tree, path, NULL, &err), &err);
        assert_string_equal(json_string_value(json_object_get(tree, "kind")), cases[i].kind);
        int64_t tensors = json_integer_value(json_object_get(tree, "tensors"));
        json_object_foreach(json_object_get(tree, "components"), name, c) tensors +=
            json_integer_value(json_object_get(c, "tensors"));
        assert_int_equal(tensors, cases[i].tensors);
        wd_test_ok(wd_inspect_text(&text, tree, &err), &err);
        wd_free(text);
        json_decref(tree);
    }
}

/* Wan2.2's image-to-video transformer has no tensor that a text-to-video one lacks. */
static void says_image_to_video(void **state)
{
    (void)state;
    for (int channels = 16; channels <= 36; channels += 20) {
        wd_err err;
        wd_pipeline p;
        wd_tensor_table table;
        json_t *tree;
        char path[WD_PATH_MAX], *text;
        wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
        p.dit.in_channels = channels;
        wd_test_ok(wd_dit_table_open(&table, &p.dit, &err), &err);
        wd_test_sparse_file(wd_test_below(path, wd_test_folder(), "i2v.safetensors"), &table, 0, 1,
                            WD_F32, NULL);
        wd_dit_table_close(&table);
        wd_test_ok(wd_inspect_tree(&tree, path, NULL, &err), &err);
        wd_test_ok(wd_inspect_text(&text, tree, &err), &err);
        assert_int_equal(strstr(text, "image-to-video") != NULL, channels == 36);
        wd_free(text);
        json_decref(tree);
    }
}

static void refuses_as_use_would(void **state)
{
    (void)state;
    wd_err err;
    json_t *tree;
    char root[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_test_refused(wd_inspect_tree(&tree, "/none", NULL, &err), &err, WD_NOT_FOUND, "/none");
    wd_test_below(root, wd_test_folder(), "broken");
    wd_test_write(root, "model_index.json",
                  "{\"_class_name\":\"WanPipeline\",\"vae\":[\"diffusers\",\"AutoencoderKLWan\"]}");
    wd_test_refused(wd_inspect_tree(&tree, root, NULL, &err), &err, WD_NOT_FOUND,
                    "vae/config.json");
    wd_test_write_vae_config(wd_test_below(path, root, "vae"), false);
    wd_test_refused(wd_inspect_tree(&tree, root, NULL, &err), &err, WD_NOT_FOUND,
                    "diffusion_pytorch_model.safetensors");
    wd_test_write(path, "diffusion_pytorch_model.safetensors", "short");
    wd_test_refused(wd_inspect_tree(&tree, root, NULL, &err), &err, WD_BAD_FORMAT, "5 bytes long");
}

/* Long keys, values and names are cut, and characters that a terminal obeys are not printed. */
static void hostile_configurations_are_only_text(void **state)
{
    (void)state;
    enum { LONG = 4000 };
    wd_err err;
    json_t *tree, *config;
    char root[WD_PATH_MAX], *text, *written;
    wd_test_below(root, wd_test_folder(), "hostile");
    for (size_t length = 120; length < LONG; length += length < 200 ? 1 : 997) {
        char key[LONG + 1];
        memset(key, 'k', length);
        key[length] = '\0';
        config = json_pack("{s:s, s:s, s:s, s:s}", "_class_name", "FlowMatchEulerDiscreteScheduler",
                           key, key, "escape", "\x1b]0;title\x07", "turned", "\xe2\x80\xae");
        written = json_dumps(config, 0);
        wd_test_write(root, "scheduler_config.json", written);
        wd_test_ok(wd_inspect_tree(&tree, root, NULL, &err), &err);
        wd_test_ok(wd_inspect_text(&text, tree, &err), &err);
        const char *found = strstr(text, "kkkkkkkk");
        assert_non_null(found);
        assert_int_equal(strspn(found, "k"), 60);
        assert_non_null(strstr(text, "turned"));
        assert_null(strchr(text, '\x1b'));
        assert_null(strstr(text, "\xe2\x80\xae"));
        wd_free(text);
        json_decref(tree);
        json_decref(config);
        free(written);
    }
}

/* The name of the file is shorter than the suffix of a shard's name. */
static void a_short_name_is_read_within_its_bounds(void **state)
{
    (void)state;
    wd_err err;
    json_t *tree;
    char *before = getcwd(NULL, 0), *name = strdup("x");
    assert_int_equal(chdir(wd_test_folder()), 0);
    wd_test_ok(wd_file_copy(name, WD_SOURCE_DIR "/tests/fixtures/umt5/in.safetensors", &err), &err);
    wd_test_ok(wd_inspect_tree(&tree, name, NULL, &err), &err);
    assert_string_equal(json_string_value(json_object_get(tree, "kind")), "file");
    json_decref(tree);
    assert_int_equal(chdir(before), 0);
    free(name);
    free(before);
}

static wd_status inspect_tiny(void *context, wd_err *err)
{
    (void)context;
    json_t *tree = NULL;
    char *text = NULL;
    wd_status status = wd_inspect_tree(&tree, WD_SOURCE_DIR "/models/wan-tiny", NULL, err);
    if (status == WD_OK) status = wd_inspect_text(&text, tree, err);
    json_decref(tree);
    wd_free(text);
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    wd_test_failing_allocations(inspect_tiny, NULL, NULL, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_models),
        cmocka_unit_test(wan_tiny_as_text),
        cmocka_unit_test(single_files_and_components),
        cmocka_unit_test(says_image_to_video),
        cmocka_unit_test(refuses_as_use_would),
        cmocka_unit_test(hostile_configurations_are_only_text),
        cmocka_unit_test(a_short_name_is_read_within_its_bounds),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
