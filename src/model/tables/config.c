/* Reading the configurations of the transformer and the text encoder, functions of all readers, and
 * all configurations as JSON: see model/tables/config.h. config_vae.c and config_scheduler.c read
 * the others. Defaults are those of the constructors (diffusers WanTransformer3DModel,
 * transformers UMT5Config). Limits on sizes are far above any published model: they keep products
 * of a hostile file's numbers within int64_t. */
#include "model/tables/config.h"

#include <string.h>

#include "core/text.h"
#include "model/tables/config_read.h"

enum { EXTENT_MAX = 1 << 20, CHANNELS_MAX = 1 << 14, UMT5_LAYERS_MAX = 1 << 10, PATCH_MAX = 64 };

/* ---- functions of all readers (model/tables/config_read.h) ---- */

wd_status wd__config_check_class(wd_json_reader r, const char *key, const char *expected,
                                 wd_json_need need, wd_err *err)
{
    const char *found = expected;
    WD_TRY(wd_json_text(&found, r, key, need, err));
    if (!strcmp(found, expected)) return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED, "%s: \"%s\": expected %s, found %.*s%s", r.where, key,
                   expected, WD_TERMINAL_SAFE(found, 100), wd_config_class_hint(found));
}

const char *wd_config_class_hint(const char *class_name)
{
#define TEXT_TO_VIDEO                                                                              \
    ": take the text-to-video model, such as Wan-AI/Wan2.1-T2V-14B-Diffusers or "                  \
    "Wan-AI/Wan2.2-T2V-A14B-Diffusers"
    static const struct {
        const char *class_name, *hint;
    } hints[] = {
        {"WanVACETransformer3DModel", " (VACE, video editing)" TEXT_TO_VIDEO},
        {"WanVACEPipeline", " (VACE, video editing)" TEXT_TO_VIDEO},
        {"WanAnimateTransformer3DModel", " (character animation)" TEXT_TO_VIDEO},
        {"WanAnimatePipeline", " (character animation)" TEXT_TO_VIDEO},
        {"WanImageToVideoPipeline", " (image to video)" TEXT_TO_VIDEO},
        {"WanVideoToVideoPipeline", " (video to video)" TEXT_TO_VIDEO},
        {"WanDMDPipeline",
         " (FastWan): give the folder of the model that it was made of, and its transformer as "
         "--transformer FOLDER/transformer"},
        {"WanModel",
         "; this is the original layout: use the repository whose name ends in -Diffusers"},
    };
#undef TEXT_TO_VIDEO
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (!strcmp(class_name, hints[i].class_name)) return hints[i].hint;
    return "";
}

wd_status wd__config_refuse_quantised(wd_json_reader r, wd_err *err)
{
    static const char key[] = "quantization_config";
    const json_t *value = json_object_get(r.object, key);
    const char *method = json_string_value(json_object_get(value, "quant_method"));
    if (!value || json_is_null(value)) return WD_OK;
    return wd_fail(
        err, WD_UNSUPPORTED,
        "%s: \"%s\" says that the weights are quantised (quant_method %.*s), which is "
        "not read: take the folder of the model that is not quantised, or a file in scaled "
        "fp8, int8 or GGUF; docs/models.md lists the forms that are read",
        r.where, key, WD_TERMINAL_SAFE(method ? method : "unknown", 60));
}

wd_status wd__config_refuse_set(wd_json_reader r, const char *const *keys, size_t count,
                                wd_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(r.object, keys[i]);
        bool off = !value || json_is_null(value) || json_is_false(value) ||
                   (json_is_number(value) && json_number_value(value) == 0) ||
                   (json_is_array(value) && json_array_size(value) == 0);
        if (off) continue;
        char text[64];
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: \"%s\" is %s: this would change the result and is not implemented; "
                       "expected false, null or absent",
                       r.where, keys[i], wd_json_show(text, sizeof text, value));
    }
    return WD_OK;
}

/* ---- the transformer ---- */

wd_status wd_dit_config_read(wd_dit_config *out, const json_t *json, const char *where, wd_err *err)
{
    wd_dit_config c = {.in_channels = 16,
                       .out_channels = 16,
                       .heads = 40,
                       .head_dim = 128,
                       .ffn_dim = 13824,
                       .layers = 40,
                       .freq_dim = 256,
                       .text_dim = 4096,
                       .patch = {1, 2, 2},
                       .rope_max_seq_len = 1024,
                       .cross_attn_norm = true,
                       .eps = 1e-6};
    const wd_json_reader r = {json, where};
    int64_t patch_count = 3;
    WD_TRY(
        wd__config_check_class(r, "_class_name", "WanTransformer3DModel", WD_JSON_OPTIONAL, err));
    WD_TRY(wd__config_refuse_quantised(r, err));
    const struct {
        const char *key;
        int64_t *out, max;
    } integers[] = {
        {"in_channels", &c.in_channels, CHANNELS_MAX},
        {"num_attention_heads", &c.heads, CHANNELS_MAX},
        {"attention_head_dim", &c.head_dim, CHANNELS_MAX},
        {"ffn_dim", &c.ffn_dim, EXTENT_MAX},
        {"num_layers", &c.layers, WD_DIT_LAYERS_MAX},
        {"freq_dim", &c.freq_dim, EXTENT_MAX},
        {"text_dim", &c.text_dim, EXTENT_MAX},
        {"rope_max_seq_len", &c.rope_max_seq_len, EXTENT_MAX},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        WD_TRY(wd_json_int(integers[i].out, r, integers[i].key, 1, integers[i].max,
                           WD_JSON_OPTIONAL, err));
    /* null means in_channels; an absent key means the default */
    if (json_is_null(json_object_get(json, "out_channels"))) c.out_channels = c.in_channels;
    WD_TRY(wd_json_int(&c.out_channels, r, "out_channels", 1, CHANNELS_MAX, WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_ints(c.patch, &patch_count, 3, r, "patch_size", WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_bool(&c.cross_attn_norm, r, "cross_attn_norm", WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_float(&c.eps, r, "eps", WD_JSON_OPTIONAL, err));
    for (int i = 0; i < 3; i++) {
        if (patch_count == 3 && c.patch[i] >= 1 && c.patch[i] <= PATCH_MAX) continue;
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: \"patch_size\": expected three integers from 1 to %d", where,
                       PATCH_MAX);
    }
    if (c.patch[0] != 1) /* a picture is one frame of latents */
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: \"patch_size\": expected patches of 1 frame, as every Wan model has "
                       "them, found %lld",
                       where, (long long)c.patch[0]);
    if (c.head_dim % 2 || c.freq_dim % 2)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: \"attention_head_dim\" and \"freq_dim\" must be even, found %lld and "
                       "%lld",
                       where, (long long)c.head_dim, (long long)c.freq_dim);
    if (wd_dit_width(&c) > EXTENT_MAX || !(c.eps > 0))
        return wd_fail(err, WD_BAD_FORMAT, "%s: a width of %lld with \"eps\" %g makes no sense",
                       where, (long long)wd_dit_width(&c), c.eps);
    *out = c;
    return WD_OK;
}

bool wd_dit_config_same(const wd_dit_config *a, const wd_dit_config *b)
{
    return a->in_channels == b->in_channels && a->out_channels == b->out_channels &&
           a->heads == b->heads && a->head_dim == b->head_dim && a->ffn_dim == b->ffn_dim &&
           a->layers == b->layers && a->freq_dim == b->freq_dim && a->text_dim == b->text_dim &&
           !memcmp(a->patch, b->patch, sizeof a->patch) &&
           a->rope_max_seq_len == b->rope_max_seq_len && a->cross_attn_norm == b->cross_attn_norm &&
           a->eps == b->eps;
}

/* ---- the text encoder ---- */

/* Reads the dtype of a config: "dtype" in new files, "torch_dtype" in older ones. */
static wd_status read_file_dtype(wd_dtype *out, wd_json_reader r, wd_err *err)
{
    const char *text = NULL, *key = "torch_dtype";
    WD_TRY(wd_json_text(&text, r, key, WD_JSON_OPTIONAL, err));
    if (!text) key = "dtype";
    if (!text) WD_TRY(wd_json_text(&text, r, key, WD_JSON_OPTIONAL, err));
    if (!text) return WD_OK;
    wd_dtype dtype = WD_I8;
    if (wd_dtype_parse(&dtype, text) && (dtype == WD_F32 || dtype == WD_F16 || dtype == WD_BF16)) {
        *out = dtype;
        return WD_OK;
    }
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: \"%s\": expected float32, float16 or bfloat16, found \"%.*s\"", r.where,
                   key, WD_TERMINAL_SAFE(text, 40));
}

wd_status wd_umt5_config_read(wd_umt5_config *out, const json_t *json, const char *where,
                              wd_err *err)
{
    wd_umt5_config c = {.vocab_size = 250112,
                        .d_model = 512,
                        .d_kv = 64,
                        .d_ff = 1024,
                        .heads = 6,
                        .layers = 8,
                        .buckets = 32,
                        .max_distance = 128,
                        .eps = 1e-6,
                        .file_dtype = WD_F32};
    const wd_json_reader r = {json, where};
    WD_TRY(wd__config_check_class(r, "model_type", "umt5", WD_JSON_REQUIRED, err));
    WD_TRY(wd__config_refuse_quantised(r, err));
    WD_TRY(wd__config_check_class(r, "feed_forward_proj", "gated-gelu", WD_JSON_OPTIONAL, err));
    WD_TRY(wd__config_check_class(r, "dense_act_fn", "gelu_new", WD_JSON_OPTIONAL, err));
    const struct {
        const char *key;
        int64_t *out, max;
    } integers[] = {
        {"vocab_size", &c.vocab_size, 1 << 24},
        {"d_model", &c.d_model, EXTENT_MAX},
        {"d_kv", &c.d_kv, CHANNELS_MAX},
        {"d_ff", &c.d_ff, EXTENT_MAX},
        {"num_heads", &c.heads, CHANNELS_MAX},
        {"num_layers", &c.layers, UMT5_LAYERS_MAX},
        {"relative_attention_num_buckets", &c.buckets, 1 << 16},
        {"relative_attention_max_distance", &c.max_distance, EXTENT_MAX},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        WD_TRY(wd_json_int(integers[i].out, r, integers[i].key, 1, integers[i].max,
                           WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_float(&c.eps, r, "layer_norm_epsilon", WD_JSON_OPTIONAL, err));
    WD_TRY(read_file_dtype(&c.file_dtype, r, err));
    if (c.buckets % 4 || c.max_distance <= c.buckets / 4 || !(c.eps > 0))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: \"relative_attention_num_buckets\" %lld must be a multiple of 4, "
                       "\"relative_attention_max_distance\" %lld above a quarter of it, "
                       "\"layer_norm_epsilon\" %g positive",
                       where, (long long)c.buckets, (long long)c.max_distance, c.eps);
    *out = c;
    return WD_OK;
}

/* ---- configurations as JSON ---- */

json_t *wd_dit_config_json(const wd_dit_config *c)
{
    return json_pack(
        "{ss ss sn sI sb sf sI sI sn sI sI sI sI s[III] sn ss sI sI}", /* sorted */
        "_class_name", "WanTransformer3DModel", "_diffusers_version", "0.33.0", "added_kv_proj_dim",
        "attention_head_dim", (json_int_t)c->head_dim, "cross_attn_norm", (int)c->cross_attn_norm,
        "eps", c->eps, "ffn_dim", (json_int_t)c->ffn_dim, "freq_dim", (json_int_t)c->freq_dim,
        "image_dim", "in_channels", (json_int_t)c->in_channels, "num_attention_heads",
        (json_int_t)c->heads, "num_layers", (json_int_t)c->layers, "out_channels",
        (json_int_t)c->out_channels, "patch_size", (json_int_t)c->patch[0], (json_int_t)c->patch[1],
        (json_int_t)c->patch[2], "pos_embed_seq_len", "qk_norm", "rms_norm_across_heads",
        "rope_max_seq_len", (json_int_t)c->rope_max_seq_len, "text_dim", (json_int_t)c->text_dim);
}

json_t *wd_umt5_config_json(const wd_umt5_config *c)
{
    json_t *architectures = json_pack("[s]", "UMT5EncoderModel");
    if (!architectures) return NULL;
    return json_pack("{s:o, s:I, s:I, s:I, s:s, s:s, s:b, s:b, s:f, s:s, s:I, s:I, s:I, s:I, s:b, "
                     "s:s, s:I}",
                     "architectures", architectures, "d_ff", (json_int_t)c->d_ff, "d_kv",
                     (json_int_t)c->d_kv, "d_model", (json_int_t)c->d_model, "dense_act_fn",
                     "gelu_new", "feed_forward_proj", "gated-gelu", "is_encoder_decoder", 1,
                     "is_gated_act", 1, "layer_norm_epsilon", c->eps, "model_type", "umt5",
                     "num_heads", (json_int_t)c->heads, "num_layers", (json_int_t)c->layers,
                     "relative_attention_max_distance", (json_int_t)c->max_distance,
                     "relative_attention_num_buckets", (json_int_t)c->buckets,
                     "tie_word_embeddings", 1, "torch_dtype", wd_dtype_option_name(c->file_dtype),
                     "vocab_size", (json_int_t)c->vocab_size);
}

/* A new array; NULL: no memory. */
static json_t *reals(const double *value, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, json_real(value[i]))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static json_t *levels(const wd_vae_config *c)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < c->levels; i++)
        json_array_append_new(array, json_integer(c->dim_mult[i]));
    return array;
}

static json_t *flags(const wd_vae_config *c)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < c->levels - 1; i++)
        json_array_append_new(array, json_boolean(c->temporal_downsample[i]));
    return array;
}

json_t *wd_vae_config_json(const wd_vae_config *c)
{
    json_t *patch = c->patch_size > 1 ? json_integer(c->patch_size) : json_null();
    return json_pack(
        "{s:s, s:s, s:[], s:I, s:I, s:o, s:f, s:I, s:b, s:o, s:o, s:I, s:I, s:o, s:I, s:I, s:o, "
        "s:I}",
        "_class_name", "AutoencoderKLWan", "_diffusers_version", "0.35.0", "attn_scales",
        "base_dim", (json_int_t)c->base_dim, "decoder_base_dim", (json_int_t)c->decoder_base_dim,
        "dim_mult", levels(c), "dropout", 0.0, "in_channels", (json_int_t)c->in_channels,
        "is_residual", (int)c->is_residual, "latents_mean", reals(c->latents_mean, c->z_dim),
        "latents_std", reals(c->latents_std, c->z_dim), "num_res_blocks",
        (json_int_t)c->num_res_blocks, "out_channels", (json_int_t)c->out_channels, "patch_size",
        patch, "scale_factor_spatial", (json_int_t)c->scale_factor_spatial, "scale_factor_temporal",
        (json_int_t)c->scale_factor_temporal, "temperal_downsample", flags(c), "z_dim",
        (json_int_t)c->z_dim);
}

json_t *wd_scheduler_config_json(const wd_scheduler_config *c)
{
    if (c->kind == WD_SCHEDULER_EULER)
        return json_pack("{s:s, s:I, s:f}", "_class_name", wd_scheduler_class_name(c->kind),
                         "num_train_timesteps", (json_int_t)c->num_train_timesteps, "shift",
                         c->flow_shift);
    json_t *disabled = json_array();
    for (int i = 0; disabled && i < 64; i++)
        if (c->disable_corrector >> i & 1) json_array_append_new(disabled, json_integer(i));
    return json_pack("{s:s, s:o, s:s, s:f, s:b, s:I, s:b, s:s, s:I, s:s, s:b}", "_class_name",
                     wd_scheduler_class_name(c->kind), "disable_corrector", disabled,
                     "final_sigmas_type", c->final_sigma_zero ? "zero" : "sigma_min", "flow_shift",
                     c->flow_shift, "lower_order_final", (int)c->lower_order_final,
                     "num_train_timesteps", (json_int_t)c->num_train_timesteps, "predict_x0",
                     (int)c->predict_x0, "prediction_type", "flow_prediction", "solver_order",
                     (json_int_t)c->solver_order, "solver_type", c->bh1 ? "bh1" : "bh2",
                     "use_flow_sigmas", 1);
}
