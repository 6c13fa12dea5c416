/* Folder model/tables. What a model is made of: configurations, the tensors of each stage, the
 * names that others give them.
 *
 * The configurations of a Wan pipeline's components, read from their config.json files.
 *
 * Each component has a struct. Absent keys get the defaults of diffusers or transformers, and
 * values are checked. A configuration of another kind of model (I2V image encoder, VACE, another
 * class) is refused by name. */
#ifndef WD_MODEL_TABLES_CONFIG_H
#define WD_MODEL_TABLES_CONFIG_H

#include "core/tensor.h"
#include "io/json/json.h"

/* The maximal number of blocks of a transformer. Placements have arrays for this many blocks,
 * embedding and head. */
enum { WD_DIT_LAYERS_MAX = 126 };

/* WanTransformer3DModel. Width D = heads * head_dim. */
typedef struct wd_dit_config {
    int64_t in_channels, out_channels;
    int64_t heads, head_dim, ffn_dim, layers;
    int64_t freq_dim, text_dim;
    int64_t patch[3]; /* frames, height, width */
    int64_t rope_max_seq_len;
    bool cross_attn_norm;
    double eps;
} wd_dit_config;

/* UMT5EncoderModel. */
typedef struct wd_umt5_config {
    int64_t vocab_size, d_model, d_kv, d_ff, heads, layers;
    int64_t buckets, max_distance; /* of the relative position bias */
    double eps;
    wd_dtype file_dtype; /* dtype / torch_dtype of the config; F32 if it has none */
} wd_umt5_config;

enum { WD_VAE_CHANNELS_MAX = 128, WD_VAE_LEVELS_MAX = 8 };

/* AutoencoderKLWan: 2.1 layout, or 2.2 (is_residual). */
typedef struct wd_vae_config {
    int64_t base_dim, decoder_base_dim, z_dim, num_res_blocks;
    int64_t levels, dim_mult[WD_VAE_LEVELS_MAX];
    bool temporal_downsample[WD_VAE_LEVELS_MAX]; /* levels - 1 of them */
    bool is_residual;
    int64_t in_channels, out_channels, patch_size; /* patch_size 1: none */
    int64_t scale_factor_spatial, scale_factor_temporal;
    double latents_mean[WD_VAE_CHANNELS_MAX], latents_std[WD_VAE_CHANNELS_MAX]; /* z_dim */
} wd_vae_config;

typedef enum wd_scheduler_kind { WD_SCHEDULER_UNIPC, WD_SCHEDULER_EULER } wd_scheduler_kind;

/* UniPCMultistepScheduler or FlowMatchEulerDiscreteScheduler; a parameter that changes the result
 * and is not implemented is refused by name. */
typedef struct wd_scheduler_config {
    wd_scheduler_kind kind;
    int64_t num_train_timesteps;
    double flow_shift;    /* UniPC flow_shift, Euler shift */
    int64_t solver_order; /* UniPC from here on */
    bool bh1;             /* solver_type "bh1" instead of "bh2" */
    bool lower_order_final;
    bool predict_x0;
    bool final_sigma_zero;      /* final_sigmas_type "zero" instead of "sigma_min" */
    uint64_t disable_corrector; /* bit i: step i */
} wd_scheduler_config;

/* The class name in diffusers: static text. */
const char *wd_scheduler_class_name(wd_scheduler_kind kind);

/* Each reads one parsed config; `where` names the file in errors. */
wd_status wd_dit_config_read(wd_dit_config *out, const json_t *json, const char *where,
                             wd_err *err);
wd_status wd_umt5_config_read(wd_umt5_config *out, const json_t *json, const char *where,
                              wd_err *err);
wd_status wd_vae_config_read(wd_vae_config *out, const json_t *json, const char *where,
                             wd_err *err);
wd_status wd_scheduler_config_read(wd_scheduler_config *out, const json_t *json, const char *where,
                                   wd_err *err);

/* Whether both configurations describe the same transformer. */
bool wd_dit_config_same(const wd_dit_config *a, const wd_dit_config *b);

/* Makes the JSON that diffusers writes for a transformer of this configuration; the caller owns it.
 */
json_t *wd_dit_config_json(const wd_dit_config *config);

/* As wd_dit_config_json, for the other components. Keys without a field have the values of Wan's
 * models. */
json_t *wd_umt5_config_json(const wd_umt5_config *config);
json_t *wd_vae_config_json(const wd_vae_config *config);
json_t *wd_scheduler_config_json(const wd_scheduler_config *config);

/* D */
static inline int64_t wd_dit_width(const wd_dit_config *c)
{
    return c->heads * c->head_dim;
}

#endif
