/* Fuzz target: any JSON as each component's configuration; tables are made of what is accepted. */
#include "fuzzing.h"

#include "wan/dit_table.h"
#include "wan/umt5.h"
#include "wan/vae.h"

#define SEED(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const wd_fuzz_seed seeds[] = {
        SEED("{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":2,\"patch_size\":[1,2,2],"
             "\"eps\":1e-6,\"out_channels\":null,\"ffn_dim\":64,\"cross_attn_norm\":true}"),
        SEED(
            "{\"model_type\":\"umt5\",\"num_layers\":2,\"d_model\":8,\"torch_dtype\":\"float16\"}"),
        SEED("{\"_class_name\":\"AutoencoderKLWan\",\"z_dim\":1,\"latents_mean\":[0],"
             "\"latents_std\":[1],\"dim_mult\":[1,2],\"temperal_downsample\":[true],"
             "\"scale_factor_spatial\":2,\"scale_factor_temporal\":2,\"is_residual\":true}"),
        SEED("{\"_class_name\":\"UniPCMultistepScheduler\",\"use_flow_sigmas\":true,"
             "\"prediction_type\":\"flow_prediction\",\"disable_corrector\":[1,2],"
             "\"solver_type\":\"bh1\",\"final_sigmas_type\":\"sigma_min\"}"),
        SEED("{\"_class_name\":\"FlowMatchEulerDiscreteScheduler\",\"shift\":3.0}"),
    };
    return wd_fuzz_begin(argc, argv, seeds, sizeof seeds / sizeof *seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_t *json;
    wd_err err;
    wd_dit_config dit;
    wd_umt5_config umt5;
    wd_vae_config vae;
    wd_scheduler_config scheduler;
    wd_tensor_table table;
    if (wd_json_parse(&json, (const char *)data, bytes, "input", &err) != WD_OK) return 0;
    if (wd_dit_config_read(&dit, json, "input", &err) == WD_OK &&
        wd_dit_table_open(&table, &dit, &err) == WD_OK)
        wd_dit_table_close(&table);
    if (wd_umt5_config_read(&umt5, json, "input", &err) == WD_OK &&
        wd_umt5_table_open(&table, &umt5, &err) == WD_OK)
        wd_umt5_table_close(&table);
    if (wd_vae_config_read(&vae, json, "input", &err) == WD_OK &&
        wd_vae_table_open(&table, &vae, &err) == WD_OK)
        wd_vae_table_close(&table);
    wd_scheduler_config_read(&scheduler, json, "input", &err);
    json_decref(json);
    return 0;
}
