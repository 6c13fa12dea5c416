/* Fuzz target: any bytes as the single files of a pipeline, given one by one and as folders in
 * ComfyUI's layout and in that of Wan's own repositories. What opens has weights that can be looked
 * at, and a tokenizer that opens or is refused. */
#include "fuzzing.h"

#include "model/files/pipeline.h"

static void look(const char *name, const wd_pipeline_parts *parts)
{
    static wd_pipeline p;
    wd_err err;
    wd_safetensors *set;
    wd_tokenizer *tokenizer;
    json_t *config;
    if (wd_pipeline_open_parts(&p, name, parts, &err) != WD_OK) return;
    for (wd_component c = 0; c < WD_COMPONENT_COUNT; c++) {
        if (!p.has[c]) continue;
        if (wd_pipeline_config(&config, &p, c, &err) == WD_OK) json_decref(config);
        if (c > WD_COMPONENT_VAE) continue;
        if (wd_pipeline_open_weights(&set, &p, c, &err) == WD_OK) wd_safetensors_close(set);
    }
    if (wd_pipeline_tokenizer_open(&tokenizer, &p, &err) == WD_OK) wd_tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"models/diffusion_models/a_high_noise.safetensors",
                                        "models/diffusion_models/b_low_noise.safetensors",
                                        "models/diffusion_models/config.json",
                                        "models/text_encoders/umt5.safetensors",
                                        "models/text_encoders/config.json",
                                        "models/vae/wan_vae.safetensors",
                                        "models/vae/config.json",
                                        "own/config.json",
                                        "own/diffusion_pytorch_model.safetensors",
                                        "own/google/umt5-xxl/tokenizer_config.json",
                                        "own/google/umt5-xxl/spiece.model"};
    enum { NAMES = sizeof names / sizeof *names };
    char path[NAMES][512];
    static const wd_pipeline_parts none = {.preset = "wan2.2-a14b"};
    wd_fuzz_files(names, NAMES, data, bytes);
    for (int i = 0; i < NAMES; i++) snprintf(path[i], sizeof path[i], "%s", wd_fuzz_path(names[i]));
    look(wd_fuzz_path("models"), &none);
    look(wd_fuzz_path("own"), &none);
    const wd_pipeline_parts parts = {.part = {[WD_COMPONENT_TRANSFORMER] = path[0],
                                              [WD_COMPONENT_TEXT_ENCODER] = path[3],
                                              [WD_COMPONENT_VAE] = path[5],
                                              [WD_COMPONENT_TOKENIZER] = path[10]}};
    look(NULL, &parts);
    return 0;
}
