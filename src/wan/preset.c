/* Published models: see wan/preset.h. Their sizes are those of the config.json files on the Hub;
 * what these leave at its default is read from here like from there. */
#include "wan/preset.h"

#include <stdio.h>
#include <string.h>

typedef struct preset {
    const char *name, *dit, *vae;
    double boundary_ratio, flow_shift, guidance_scale[2];
    bool expand_timesteps;
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

/* The negative prompt that Wan's authors publish (wan/configs/shared_config.py), without what would
 * lead away from still pictures: static, picture, still, motionless picture. */
static const char negative_prompt[] =
    "色调艳丽，过曝，细节模糊不清，字幕，风格，作品，画作，整体发灰，最差质量，低质量，"
    "JPEG压缩残留，丑陋的，残缺的，多余的手指，画得不好的手部，画得不好的脸部，畸形的，毁容的，"
    "形态畸形的肢体，手指融合，杂乱的背景，三条腿，背景人很多，倒着走";

/* Guidance as wan/configs of Wan2.1 and Wan2.2 have it (A14B: the high-noise expert first). */
static const preset presets[] = {
    {"wan2.1-1.3b", DIT(16, 12, 8960, 30), vae_21, 0, 3, {5, 5}, false},
    {"wan2.1-14b", DIT(16, 40, 13824, 40), vae_21, 0, 5, {5, 5}, false},
    {"wan2.2-a14b", DIT(16, 40, 13824, 40), vae_21, 0.875, 5, {4, 3}, false},
    {"wan2.2-5b", DIT(48, 24, 14336, 30), vae_22, 0, 5, {5, 5}, true},
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

static bool has_sizes(const wd_pipeline *p, const preset *of)
{
    json_t *json;
    wd_dit_config dit;
    const double boundary = p->has[WD_COMPONENT_TRANSFORMER_2] ? p->boundary_ratio : 0;
    if (parse(&json, of->dit, NULL) != WD_OK) return false;
    const wd_status status = wd_dit_config_read(&dit, json, of->name, NULL);
    json_decref(json);
    return status == WD_OK && boundary == of->boundary_ratio && p->dit.layers == dit.layers &&
           p->dit.heads == dit.heads && p->dit.head_dim == dit.head_dim &&
           p->dit.ffn_dim == dit.ffn_dim && p->dit.in_channels == dit.in_channels &&
           p->dit.text_dim == dit.text_dim;
}

void wd_preset_advise(wd_pipeline *p)
{
    p->guidance_scale[0] = p->guidance_scale[1] = 5;
    p->negative_prompt = "";
    for (int i = 0; i < PRESETS; i++) {
        if (!has_sizes(p, &presets[i])) continue;
        memcpy(p->guidance_scale, presets[i].guidance_scale, sizeof p->guidance_scale);
        p->negative_prompt = negative_prompt;
    }
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
                         .default_height = WD_PIPELINE_DEFAULT_PIXELS,
                         .default_width = WD_PIPELINE_DEFAULT_PIXELS,
                         .default_steps = WD_PIPELINE_DEFAULT_STEPS,
                         .text_tokens = 512};
    for (wd_component c = 0; c < WD_COMPONENT_COUNT; c++) out->has[c] = true;
    out->has[WD_COMPONENT_TRANSFORMER_2] = p->boundary_ratio > 0;
    WD_TRY(read_configs(out, p, err));
    wd_preset_advise(out);
    return WD_OK;
}
