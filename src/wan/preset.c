/* Published models: see wan/preset.h. Their sizes are those of the config.json files on the Hub;
 * what these leave at its default is read from here like from there. */
#include "wan/preset.h"

#include <stdio.h>
#include <string.h>

typedef struct preset {
    const char *name, *dit, *vae;
    double boundary_ratio, flow_shift;
    bool expand_timesteps;
    int64_t height, width;
} preset;

#define DIT(channels, heads, ffn, layers)                                                          \
    "{\"_class_name\":\"WanTransformer3DModel\",\"attention_head_dim\":128,"                       \
    "\"cross_attn_norm\":true,\"eps\":1e-06,\"freq_dim\":256,\"patch_size\":[1,2,2],"              \
    "\"qk_norm\":\"rms_norm_across_heads\",\"rope_max_seq_len\":1024,\"text_dim\":4096,"           \
    "\"in_channels\":" #channels ",\"out_channels\":" #channels ",\"num_attention_heads\":" #heads \
    ",\"ffn_dim\":" #ffn ",\"num_layers\":" #layers "}"

#define STATISTICS "[" ONES "]"
#define ONES ONES_12 "," ONES_12 "," ONES_12 "," ONES_12
#define ONES_12 "1,1,1,1,1,1,1,1,1,1,1,1"

static const char vae_21[] = "{\"_class_name\":\"AutoencoderKLWan\"}";
/* The statistics of its latents are not needed for planning. */
static const char vae_22[] =
    "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":160,\"decoder_base_dim\":256,"
    "\"z_dim\":48,\"is_residual\":true,\"in_channels\":12,\"out_channels\":12,\"patch_size\":2,"
    "\"scale_factor_spatial\":16,\"latents_mean\":" STATISTICS ",\"latents_std\":" STATISTICS "}";

static const preset presets[] = {
    {"wan2.1-1.3b", DIT(16, 12, 8960, 30), vae_21, 0, 3, false, 480, 832},
    {"wan2.1-14b", DIT(16, 40, 13824, 40), vae_21, 0, 5, false, 720, 1280},
    {"wan2.2-a14b", DIT(16, 40, 13824, 40), vae_21, 0.875, 5, false, 720, 1280},
    {"wan2.2-5b", DIT(48, 24, 14336, 30), vae_22, 0, 5, true, 704, 1280},
};

enum { PRESETS = sizeof presets / sizeof *presets };

const char *const wd_preset_names[] = {"wan2.1-1.3b", "wan2.1-14b", "wan2.2-a14b", "wan2.2-5b",
                                       NULL};

static const char umt5_xxl[] =
    "{\"model_type\":\"umt5\",\"d_ff\":10240,\"d_kv\":64,\"d_model\":4096,\"num_heads\":64,"
    "\"num_layers\":24,\"vocab_size\":256384}";

static wd_status parse(json_t **out, const char *text, wd_err *err)
{
    return wd_json_parse(out, text, strlen(text), "preset", err);
}

static wd_status read_configs(wd_pipeline *out, const preset *p, wd_err *err)
{
    json_t *json;
    char scheduler[128];
    snprintf(scheduler, sizeof scheduler,
             "{\"_class_name\":\"UniPCMultistepScheduler\",\"use_flow_sigmas\":true,"
             "\"prediction_type\":\"flow_prediction\",\"flow_shift\":%g}",
             p->flow_shift);
    WD_TRY(parse(&json, p->dit, err));
    wd_status status = wd_dit_config_read(&out->dit, json, p->name, err);
    json_decref(json);
    if (status != WD_OK) return status;
    WD_TRY(parse(&json, p->vae, err));
    status = wd_vae_config_read(&out->vae, json, p->name, err);
    json_decref(json);
    if (status != WD_OK) return status;
    WD_TRY(parse(&json, umt5_xxl, err));
    status = wd_umt5_config_read(&out->umt5, json, p->name, err);
    json_decref(json);
    if (status != WD_OK) return status;
    WD_TRY(parse(&json, scheduler, err));
    status = wd_scheduler_config_read(&out->scheduler, json, p->name, err);
    json_decref(json);
    return status;
}

wd_status wd_preset_pipeline(wd_pipeline *out, const char *name, wd_err *err)
{
    const preset *p = NULL;
    for (int i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].name, name)) p = &presets[i];
    if (!p)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "teacher_preset: expected wan2.1-1.3b, wan2.1-14b, wan2.2-a14b or "
                       "wan2.2-5b, found \"%s\"",
                       name);
    *out = (wd_pipeline){.boundary_ratio = p->boundary_ratio,
                         .expand_timesteps = p->expand_timesteps,
                         .default_height = p->height,
                         .default_width = p->width,
                         .text_tokens = 512};
    for (wd_component c = 0; c < WD_COMPONENT_COUNT; c++) out->has[c] = true;
    out->has[WD_COMPONENT_TRANSFORMER_2] = p->boundary_ratio > 0;
    return read_configs(out, p, err);
}
