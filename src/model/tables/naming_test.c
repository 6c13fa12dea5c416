/* Tests of names in files: every tensor of every component goes by a name of its own in the
 * original naming, and a set under other names becomes one under diffusers' names. */
#include "test_preset.h"

#include "model/tables/dit_table.h"
#include "model/tables/names.h"
#include "model/tables/naming.h"
#include "model/text/umt5_impl.h"
#include "model/vae/vae.h"

static bool original_of(char out[WD_TENSOR_NAME_MAX], const char *name, wd_component c,
                        const wd_vae_config *vae)
{
    if (c == WD_COMPONENT_VAE) return wd__names_vae_to_original(out, WD_TENSOR_NAME_MAX, name, vae);
    if (c == WD_COMPONENT_TEXT_ENCODER)
        return wd__names_umt5_to_original(out, WD_TENSOR_NAME_MAX, name);
    return wd_names_to_original(out, WD_TENSOR_NAME_MAX, name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Every line of the table has an original name, but for what may miss; no two have the same. */
static void check_names(const wd_tensor_table *table, wd_component c, const wd_vae_config *vae)
{
    char(*names)[WD_TENSOR_NAME_MAX] = calloc((size_t)table->count, sizeof *names);
    int64_t count = 0;
    for (int64_t i = 0; i < table->count; i++) {
        const bool known = original_of(names[count], table->spec[i].name, c, vae);
        if (!known && !table->spec[i].may_miss) fail_msg("%s has no name", table->spec[i].name);
        count += known;
    }
    qsort(names, (size_t)count, sizeof *names, by_text);
    for (int64_t i = 1; i < count; i++) assert_string_not_equal(names[i], names[i - 1]);
    free(names);
}

static void names_are_different(void **state)
{
    (void)state;
    static const char *const presets[] = {"wan2.1-1.3b", "wan2.2-5b"};
    wd_err err;
    wd_tensor_table table;
    for (int i = 0; i < 2; i++) {
        const wd_pipeline p = wd_test_preset(presets[i]);
        wd_test_ok(wd_vae_table_open(&table, &p.vae, &err), &err);
        check_names(&table, WD_COMPONENT_VAE, &p.vae);
        wd_vae_table_close(&table);
        wd_test_ok(wd_umt5_table_open(&table, &p.umt5, &err), &err);
        check_names(&table, WD_COMPONENT_TEXT_ENCODER, NULL);
        wd_umt5_table_close(&table);
        wd_test_ok(wd_dit_table_open(&table, &p.dit, &err), &err);
        check_names(&table, WD_COMPONENT_TRANSFORMER, NULL);
        wd_dit_table_close(&table);
    }
}

/* As published: Wan2.1_VAE.pth, Wan2.2_VAE.pth and models_t5_umt5-xxl-enc-bf16.pth. */
static void known_pairs(void **state)
{
    (void)state;
    static const struct {
        wd_component component;
        const char *preset, *name, *original;
    } pairs[] = {
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "quant_conv.weight", "conv1.weight"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "post_quant_conv.bias", "conv2.bias"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "decoder.conv_in.weight", "decoder.conv1.weight"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "decoder.mid_block.resnets.0.norm1.gamma",
         "decoder.middle.0.residual.0.gamma"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "decoder.mid_block.attentions.0.to_qkv.weight",
         "decoder.middle.1.to_qkv.weight"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "encoder.mid_block.resnets.1.conv2.bias",
         "encoder.middle.2.residual.6.bias"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "decoder.up_blocks.1.resnets.0.conv_shortcut.weight",
         "decoder.upsamples.4.shortcut.weight"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "decoder.up_blocks.0.upsamplers.0.time_conv.weight",
         "decoder.upsamples.3.time_conv.weight"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "decoder.up_blocks.3.resnets.2.norm2.gamma",
         "decoder.upsamples.14.residual.3.gamma"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "encoder.down_blocks.2.resample.1.weight",
         "encoder.downsamples.2.resample.1.weight"},
        {WD_COMPONENT_VAE, "wan2.1-1.3b", "decoder.norm_out.gamma", "decoder.head.0.gamma"},
        {WD_COMPONENT_VAE, "wan2.2-5b", "decoder.up_blocks.0.resnets.0.conv1.weight",
         "decoder.upsamples.0.upsamples.0.residual.2.weight"},
        {WD_COMPONENT_VAE, "wan2.2-5b", "decoder.up_blocks.1.upsampler.resample.1.bias",
         "decoder.upsamples.1.upsamples.3.resample.1.bias"},
        {WD_COMPONENT_VAE, "wan2.2-5b", "encoder.down_blocks.0.downsampler.resample.1.weight",
         "encoder.downsamples.0.downsamples.2.resample.1.weight"},
        {WD_COMPONENT_TEXT_ENCODER, "wan2.1-1.3b", "shared.weight", "token_embedding.weight"},
        {WD_COMPONENT_TEXT_ENCODER, "wan2.1-1.3b",
         "encoder.block.23.layer.0.SelfAttention.relative_attention_bias.weight",
         "blocks.23.pos_embedding.embedding.weight"},
        {WD_COMPONENT_TEXT_ENCODER, "wan2.1-1.3b",
         "encoder.block.0.layer.1.DenseReluDense.wi_0.weight", "blocks.0.ffn.gate.0.weight"},
        {WD_COMPONENT_TEXT_ENCODER, "wan2.1-1.3b", "encoder.final_layer_norm.weight",
         "norm.weight"},
    };
    char out[WD_TENSOR_NAME_MAX];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const wd_pipeline p = wd_test_preset(pairs[i].preset);
        assert_true(original_of(out, pairs[i].name, pairs[i].component, &p.vae));
        assert_string_equal(out, pairs[i].original);
    }
    static const char *const others[] = {"",
                                         "decoder.",
                                         "decoder.up_blocks.",
                                         "decoder.up_blocks.0.",
                                         "decoder.up_blocks.9999999999.resnets.0.conv1.weight",
                                         "decoder.up_blocks.0.resnets.x.conv1.weight",
                                         "encoder.block.1.layer.2.weight",
                                         "encoder.block.",
                                         "encoder.block.1"};
    const wd_pipeline p = wd_test_preset("wan2.1-1.3b");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(original_of(out, others[i], WD_COMPONENT_VAE, &p.vae));
        assert_false(original_of(out, others[i], WD_COMPONENT_TEXT_ENCODER, NULL));
    }
}

/* Writes tensors under the original names behind a prefix, and reads them by diffusers' names. */
static void a_set_under_other_names(void **state)
{
    (void)state;
    static const char *const metadata[] = {"format", "pt", NULL};
    char path[WD_PATH_MAX];
    wd_err err;
    wd_safetensors *set;
    wd_safetensors_writer *writer;
    wd_naming naming;
    wd_safetensors_item items[4];
    static const char *const stored[] = {
        "model.diffusion_model.head.modulation", "model.diffusion_model.patch_embedding.weight",
        "model.diffusion_model.blocks.0.self_attn.q.weight", "something.else"};
    for (int i = 0; i < 4; i++) items[i] = (wd_safetensors_item){stored[i], WD_F32, 1, {i + 1}};
    wd_test_ok(wd_path_join(path, wd_test_folder(), "prefixed.safetensors", &err), &err);
    wd_test_ok(wd_safetensors_create(&writer, path, items, 4, metadata, &err), &err);
    const float values[10] = {0};
    wd_test_ok(wd_safetensors_put(writer, values, sizeof values, &err), &err);
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    assert_true(wd_naming_detect(&naming, set, WD_COMPONENT_TRANSFORMER_2, NULL));
    assert_true(naming.original);
    assert_string_equal(naming.prefix, "model.diffusion_model.");
    assert_false(wd_naming_detect(&naming, set, WD_COMPONENT_VAE, NULL));
    assert_true(wd_naming_detect(&naming, set, WD_COMPONENT_TRANSFORMER, NULL));
    wd_tensor_spec spec[] = {{.name = "scale_shift_table"},
                             {.name = "patch_embedding.weight"},
                             {.name = "blocks.0.attn1.to_q.weight"},
                             {.name = "proj_out.bias"}};
    const wd_tensor_table table = {.spec = spec, .count = 4, .stages = 1};
    wd_test_ok(wd_naming_apply(&naming, set, &table, &err), &err);
    for (int i = 0; i < 3; i++) {
        const wd_safetensors_entry *e = wd_safetensors_find(set, spec[i].name);
        assert_non_null(e);
        assert_string_equal(e->stored, stored[i]);
        assert_int_equal(e->tensor.dim[0], i + 1);
    }
    assert_non_null(wd_safetensors_find(set, "something.else"));
    assert_null(wd_safetensors_find(set, stored[0]));
    wd_tensor found;
    spec[2].ndim = 1;
    spec[2].dim[0] = 7;
    wd_test_refused(wd_safetensors_expect(&found, set, &spec[2], &err), &err, WD_MISMATCH,
                    "\"model.diffusion_model.blocks.0.self_attn.q.weight\": expected shape [7]");
    const char *const twice[] = {"a", "b", "a", NULL};
    wd_test_refused(wd_safetensors_rename(set, twice, &err), &err, WD_BAD_FORMAT,
                    "are two names of \"a\": expected one of them");
    assert_non_null(strstr(err.message, "\"model.diffusion_model.head.modulation\""));
    wd_safetensors_close(set);
}

static const char *in_folder(const char *name)
{
    static char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    return path;
}

/* A file of tensors of one float each. */
static wd_safetensors *open_names(const char *const *names, int count)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    static const float zeros[4];
    const char *path = in_folder("trained.safetensors");
    wd_safetensors_item items[4];
    wd_safetensors_writer *writer;
    wd_safetensors *set;
    wd_err err;
    for (int i = 0; i < count; i++) items[i] = (wd_safetensors_item){names[i], WD_F32, 1, {1}};
    wd_test_ok(wd_safetensors_create(&writer, path, items, count, metadata, &err), &err);
    wd_test_ok(wd_safetensors_put(writer, zeros, (size_t)count * sizeof *zeros, &err), &err);
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    return set;
}

/* What trainers put before and between the names of a whole checkpoint, in either naming. */
static void prefixes_of_trainers(void **state)
{
    (void)state;
    static const struct {
        const char *before, *inner; /* in front of all names, and of "attn1" and "self_attn" */
        const char *prefix;         /* that is found */
    } cases[] = {
        {"_orig_mod.", "", ""},
        {"module.", "", "module."},
        {"module._orig_mod.", "", "module."},
        {"ema.", "", "ema."},
        {"model.", "", "model."},
        {"pipe.dit.", "", "pipe.dit."},
        {"a.b.c.d.", "", "a.b.c.d."},
        {"", "_orig_mod.", ""},
        {"_fsdp_wrapped_module.", "_fsdp_wrapped_module._checkpoint_wrapped_module.", ""},
    };
    static const char *const names[2][3] = {
        {"blocks.0.%sattn1.to_q.weight", "patch_embedding.weight", "scale_shift_table"},
        {"blocks.0.%sself_attn.q.weight", "patch_embedding.weight", "head.modulation"},
    };
    wd_err err;
    wd_naming naming;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char name[3][256], inner[256];
        const char *list[3];
        for (int k = 0; k < 3; k++) {
            snprintf(inner, sizeof inner, names[i % 2][k], cases[i / 2].inner);
            snprintf(name[k], sizeof name[k], "%s%s", cases[i / 2].before, inner);
            list[k] = name[k];
        }
        wd_safetensors *set = open_names(list, 3);
        wd_test_ok(wd_naming_unwrap(set, &err), &err);
        assert_true(wd_naming_detect(&naming, set, WD_COMPONENT_TRANSFORMER, NULL));
        assert_string_equal(naming.prefix, cases[i / 2].prefix);
        assert_int_equal(naming.original, i % 2);
        assert_non_null(wd_naming_find(&naming, set, "blocks.0.attn1.to_q.weight"));
        wd_safetensors_close(set);
    }
}

/* A prefix that only some tensors have is named, not taken off. */
static void a_prefix_of_some(void **state)
{
    (void)state;
    static const char *const names[] = {"critic.patch_embedding.weight",
                                        "ema.patch_embedding.weight", "ema.scale_shift_table"};
    wd_naming naming;
    wd_safetensors *set = open_names(names, 3);
    char hint[512];
    assert_false(wd_naming_detect(&naming, set, WD_COMPONENT_TRANSFORMER, NULL));
    wd_naming_hint(hint, sizeof hint, set, WD_COMPONENT_TRANSFORMER);
    assert_non_null(strstr(hint, "\"ema.scale_shift_table\""));
    wd_naming_hint(hint, sizeof hint, set, WD_COMPONENT_VAE);
    assert_string_equal(hint, "");
    wd_safetensors_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_different),     cmocka_unit_test(known_pairs),
        cmocka_unit_test(a_set_under_other_names), cmocka_unit_test(prefixes_of_trainers),
        cmocka_unit_test(a_prefix_of_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
