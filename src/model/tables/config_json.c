/* Configurations of text encoder, VAE and scheduler as their libraries write them: see
 * model/tables/config.h. For components that come without a configuration file. */
#include "model/tables/config.h"

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
