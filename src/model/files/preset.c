/* Published models: see model/files/preset.h. Their sizes are those of the config.json files on the
 * Hub; keys that these omit are omitted here, too, and get the same defaults. */
#include "model/files/preset.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"

typedef struct preset {
    const char *name, *hub_id, *dit, *vae;
    double boundary_ratio, flow_shift, guidance_scale[2];
    bool expand_timesteps;
} preset;

#define DIT(channels, heads, ffn, layers)                                                          \
    "{\"_class_name\":\"WanTransformer3DModel\",\"attention_head_dim\":128,"                       \
    "\"cross_attn_norm\":true,\"eps\":1e-06,\"freq_dim\":256,\"patch_size\":[1,2,2],"              \
    "\"qk_norm\":\"rms_norm_across_heads\",\"rope_max_seq_len\":1024,\"text_dim\":4096,"           \
    "\"in_channels\":" #channels ",\"out_channels\":" #channels ",\"num_attention_heads\":" #heads \
    ",\"ffn_dim\":" #ffn ",\"num_layers\":" #layers "}"

#define HUB(name) "Wan-AI/" name "-Diffusers"

static const char vae_21[] = "{\"_class_name\":\"AutoencoderKLWan\"}";
/* The statistics of its latents are those of vae/config.json of Wan2.2-TI2V-5B-Diffusers. */
static const char vae_22[] =
    "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":160,\"decoder_base_dim\":256,"
    "\"z_dim\":48,\"is_residual\":true,\"in_channels\":12,\"out_channels\":12,\"patch_size\":2,"
    "\"scale_factor_spatial\":16,\"latents_mean\":["
    "-0.2289,-0.0052,-0.1323,-0.2339,-0.2799,0.0174,0.1838,0.1557,-0.1382,0.0542,0.2813,0.0891,"
    "0.157,-0.0098,0.0375,-0.1825,-0.2246,-0.1207,-0.0698,0.5109,0.2665,-0.2108,-0.2158,0.2502,"
    "-0.2055,-0.0322,0.1109,0.1567,-0.0729,0.0899,-0.2799,-0.123,-0.0313,-0.1649,0.0117,0.0723,"
    "-0.2839,-0.2083,-0.052,0.3748,0.0152,0.1957,0.1433,-0.2944,0.3573,-0.0548,-0.1681,-0.0667"
    "],\"latents_std\":["
    "0.4765,1.0364,0.4514,1.1677,0.5313,0.499,0.4818,0.5013,0.8158,1.0344,0.5894,1.0901,"
    "0.6885,0.6165,0.8454,0.4978,0.5759,0.3523,0.7135,0.6804,0.5833,1.4146,0.8986,0.5659,"
    "0.7069,0.5338,0.4889,0.4917,0.4069,0.4999,0.6866,0.4093,0.5709,0.6065,0.6415,0.4944,"
    "0.5726,1.2042,0.5458,1.6887,0.3971,1.06,0.3943,0.5537,0.5444,0.4089,0.7468,0.7744"
    "]}";

/* The negative prompt that Wan's authors publish (wan/configs/shared_config.py), without the words
 * that would lead away from still pictures: static, picture, still, motionless picture. */
static const char negative_prompt[] =
    "色调艳丽，过曝，细节模糊不清，字幕，风格，作品，画作，整体发灰，最差质量，低质量，"
    "JPEG压缩残留，丑陋的，残缺的，多余的手指，画得不好的手部，画得不好的脸部，畸形的，毁容的，"
    "形态畸形的肢体，手指融合，杂乱的背景，三条腿，背景人很多，倒着走";

/* Guidance as in wan/configs of Wan2.1 and Wan2.2 (A14B: the high-noise expert first). */
static const preset presets[] = {
    {"wan2.1-1.3b", HUB("Wan2.1-T2V-1.3B"), DIT(16, 12, 8960, 30), vae_21, 0, 3, {5, 5}, false},
    {"wan2.1-14b", HUB("Wan2.1-T2V-14B"), DIT(16, 40, 13824, 40), vae_21, 0, 5, {5, 5}, false},
    {"wan2.2-a14b", HUB("Wan2.2-T2V-A14B"), DIT(16, 40, 13824, 40), vae_21, .875, 5, {4, 3}, false},
    {"wan2.2-5b", HUB("Wan2.2-TI2V-5B"), DIT(48, 24, 14336, 30), vae_22, 0, 5, {5, 5}, true},
};

enum { PRESETS = sizeof presets / sizeof *presets };

const char *const wd_preset_names[] = {"wan2.1-1.3b", "wan2.1-14b", "wan2.2-a14b", "wan2.2-5b",
                                       NULL};

const char *wd_preset_hub_id(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].name, name)) return presets[i].hub_id;
    return NULL;
}

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

wd_status wd__preset_vae(wd_vae_config *out, int64_t channels, wd_err *err)
{
    json_t *json;
    if (channels != 16 && channels != 48)
        return wd_fail(err, WD_INVALID_ARGUMENT, "no published VAE has %lld latent channels",
                       (long long)channels);
    WD_TRY(parse(&json, channels == 48 ? vae_22 : vae_21, err));
    const wd_status status = wd_vae_config_read(out, json, "preset", err);
    json_decref(json);
    return status;
}

static bool has_sizes(const wd_pipeline *p, const preset *wanted)
{
    json_t *json;
    wd_dit_config dit;
    if (parse(&json, wanted->dit, NULL) != WD_OK) return false;
    const wd_status status = wd_dit_config_read(&dit, json, wanted->name, NULL);
    json_decref(json);
    return status == WD_OK && p->dit.layers == dit.layers && p->dit.heads == dit.heads &&
           p->dit.head_dim == dit.head_dim && p->dit.ffn_dim == dit.ffn_dim &&
           p->dit.in_channels == dit.in_channels && p->dit.text_dim == dit.text_dim;
}

void wd__preset_advise(wd_pipeline *p)
{
    const double boundary = p->has[WD_COMPONENT_TRANSFORMER_2] ? p->boundary_ratio : 0;
    p->guidance_scale[0] = p->guidance_scale[1] = 5;
    p->negative_prompt = "";
    for (int i = 0; i < PRESETS; i++) {
        if (boundary != presets[i].boundary_ratio || !has_sizes(p, &presets[i])) continue;
        memcpy(p->guidance_scale, presets[i].guidance_scale, sizeof p->guidance_scale);
        p->negative_prompt = negative_prompt;
    }
}

static wd_status find(const preset **out, const char *name, wd_err *err)
{
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(presets[i].name, name)) continue;
        *out = &presets[i];
        return WD_OK;
    }
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "teacher_preset: expected wan2.1-1.3b, wan2.1-14b, wan2.2-a14b or wan2.2-5b, "
                   "found \"%s\"",
                   name);
}

/* The preset of the pipeline's sizes and number of experts; NULL: there is none. */
static const preset *fitting(const wd_pipeline *p)
{
    for (int i = 0; i < PRESETS; i++) {
        const bool two = presets[i].boundary_ratio > 0;
        if (two == p->has[WD_COMPONENT_TRANSFORMER_2] && has_sizes(p, &presets[i]))
            return &presets[i];
    }
    return NULL;
}

static wd_status check_fit(const wd_pipeline *p, const preset *wanted, wd_err *err)
{
    const bool two = p->has[WD_COMPONENT_TRANSFORMER_2];
    if (two != (wanted->boundary_ratio > 0))
        return wd_fail(err, WD_MISMATCH, "--teacher_preset %s: has %s, and the teacher has %s; %s",
                       wanted->name, two ? "one transformer" : "two experts", two ? "two" : "one",
                       two ? "leave --transformer_2 out, or name another preset"
                           : "give the low-noise one as --transformer_2");
    return WD_OK;
}

static void take_scheduler(wd_pipeline *p, const wd_pipeline *published)
{
    const wd_component c = WD_COMPONENT_SCHEDULER;
    if (p->has[c]) return;
    p->scheduler = published->scheduler;
    p->expand_timesteps = published->expand_timesteps;
    p->has[c] = p->listed[c] = p->made[c] = true;
    snprintf(p->class_name[c], sizeof p->class_name[c], "%s",
             wd_scheduler_class_name(p->scheduler.kind));
}

wd_status wd__preset_complete(const char **taken, wd_pipeline *p, const char *name, wd_err *err)
{
    const preset *wanted = NULL;
    wd_pipeline *published;
    void *block;
    *taken = NULL;
    if (name) {
        WD_TRY(find(&wanted, name, err));
        WD_TRY(check_fit(p, wanted, err));
    } else {
        wanted = fitting(p);
    }
    if (!wanted) return WD_OK;
    WD_TRY(wd_alloc(&block, 1, sizeof *published, "a pipeline", err));
    published = block;
    const wd_status status = wd_preset_pipeline(published, wanted->name, err);
    if (status == WD_OK) {
        take_scheduler(p, published);
        if (p->boundary_ratio <= 0) p->boundary_ratio = published->boundary_ratio;
        *taken = wanted->name;
    }
    wd_free(block);
    return status;
}

wd_status wd_preset_pipeline(wd_pipeline *out, const char *name, wd_err *err)
{
    const preset *p = NULL;
    WD_TRY(find(&p, name, err));
    *out = (wd_pipeline){.boundary_ratio = p->boundary_ratio,
                         .expand_timesteps = p->expand_timesteps,
                         .default_height = WD_PIPELINE_DEFAULT_PIXELS,
                         .default_width = WD_PIPELINE_DEFAULT_PIXELS,
                         .default_steps = WD_PIPELINE_DEFAULT_STEPS,
                         .text_tokens = 512};
    for (wd_component c = 0; c < WD_COMPONENT_COUNT; c++) out->has[c] = true;
    out->has[WD_COMPONENT_TRANSFORMER_2] = p->boundary_ratio > 0;
    WD_TRY(read_configs(out, p, err));
    wd__preset_advise(out);
    return WD_OK;
}
