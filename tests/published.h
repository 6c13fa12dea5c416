/* Folders of the published models: their configurations, and sparse weights of their true sizes. */
#ifndef WD_TESTS_PUBLISHED_H
#define WD_TESTS_PUBLISHED_H

#include "sparse.h"

#include "model/files/pipeline.h"
#include "model/tables/dit_table.h"
#include "model/text/umt5.h"
#include "model/vae/vae.h"

#define WD_TEST_DIT_CONFIG                                                                         \
    "{\"_class_name\":\"WanTransformer3DModel\",\"added_kv_proj_dim\":null,"                       \
    "\"attention_head_dim\":128,\"cross_attn_norm\":true,\"eps\":1e-06,\"ffn_dim\":%d,"            \
    "\"freq_dim\":256,\"image_dim\":null,\"in_channels\":%d,\"num_attention_heads\":%d,"           \
    "\"num_layers\":%d,\"out_channels\":%d,\"patch_size\":[1,2,2],\"text_dim\":4096,"              \
    "\"qk_norm\":\"rms_norm_across_heads\",\"rope_max_seq_len\":1024}"

typedef struct wd_test_published {
    const char *name;
    int ffn_dim, channels, heads, layers, shards;
    bool two_experts;
    int64_t dit_parameters, vae_parameters, vae_tensors;
    wd_dtype dit_dtype, text_dtype;
    uint64_t dit_bytes, text_bytes; /* of the tensors, in the files' dtype */
} wd_test_published;

static const wd_test_published wd_test_models[] = {
    {"2.1-1.3B", 8960, 16, 12, 30, 2, false, 1418996800, 126892531, 194, WD_F32, WD_F32, 5675987200,
     22723641344},
    {"2.2-A14B", 13824, 16, 40, 40, 12, true, 14288491584, 126892531, 194, WD_F32, WD_BF16,
     57153966336, 11361820672},
    {"2.2-5B", 14336, 48, 24, 30, 5, false, 4999787712, 704688668, 196, WD_F32, WD_BF16,
     19999150848, 11361820672},
};

static inline void wd_test_write(const char *folder, const char *name, const char *text)
{
    wd_err err;
    char path[WD_PATH_MAX];
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_path_join(path, folder, name, &err), &err);
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

static inline void wd_test_write_vae_config(const char *folder, bool is_22)
{
    char text[4096];
    size_t n = 0;
    n += (size_t)sprintf(text, "{\"_class_name\":\"AutoencoderKLWan\"");
    if (is_22) {
        n +=
            (size_t)sprintf(text + n, ",\"base_dim\":160,\"decoder_base_dim\":256,\"z_dim\":48,"
                                      "\"is_residual\":true,\"in_channels\":12,\"out_channels\":12,"
                                      "\"patch_size\":2,\"scale_factor_spatial\":16");
        for (int list = 0; list < 2; list++) {
            n += (size_t)sprintf(text + n, ",\"latents_%s\":[", list ? "std" : "mean");
            for (int i = 0; i < 48; i++) n += (size_t)sprintf(text + n, "%s0.5", i ? "," : "");
            n += (size_t)sprintf(text + n, "]");
        }
    }
    strcpy(text + n, "}");
    wd_test_write(folder, "config.json", text);
}

static inline const char *wd_test_below(char path[WD_PATH_MAX], const char *root, const char *name)
{
    snprintf(path, WD_PATH_MAX, "%s/%s", root, name);
    return path;
}

/* Makes the folder of a published model in the test's folder. */
static inline void wd_test_tree(char root[WD_PATH_MAX], const wd_test_published *m)
{
    wd_err err;
    wd_pipeline p;
    wd_tensor_table table;
    char text[1024], path[WD_PATH_MAX];
    wd_test_below(root, wd_test_folder(), m->name);
    snprintf(text, sizeof text, WD_TEST_DIT_CONFIG, m->ffn_dim, m->channels, m->heads, m->layers,
             m->channels);
    wd_test_write(wd_test_below(path, root, "transformer"), "config.json", text);
    if (m->two_experts)
        wd_test_write(wd_test_below(path, root, "transformer_2"), "config.json", text);
    snprintf(
        text, sizeof text,
        "{\"model_type\":\"umt5\",\"d_ff\":10240,\"d_kv\":64,\"d_model\":4096,\"num_heads\":64,"
        "\"num_layers\":24,\"vocab_size\":256384,\"torch_dtype\":\"%s\"}",
        wd_dtype_option_name(m->text_dtype));
    wd_test_write(wd_test_below(path, root, "text_encoder"), "config.json", text);
    wd_test_write_vae_config(wd_test_below(path, root, "vae"), m->channels == 48);
    wd_test_write(wd_test_below(path, root, "tokenizer"), "tokenizer_config.json",
                  "{\"model_max_length\": 1000000000000000019884624838656}");
    wd_test_write(wd_test_below(path, root, "scheduler"), "scheduler_config.json",
                  "{\"_class_name\":\"UniPCMultistepScheduler\",\"use_flow_sigmas\":true,"
                  "\"prediction_type\":\"flow_prediction\",\"flow_shift\":3.0}");
    snprintf(text, sizeof text,
             "{\"_class_name\":\"WanPipeline\",\"scheduler\":[\"diffusers\","
             "\"UniPCMultistepScheduler\"],"
             "\"text_encoder\":[\"transformers\",\"UMT5EncoderModel\"],"
             "\"tokenizer\":[\"transformers\",\"T5TokenizerFast\"],"
             "\"transformer\":[\"diffusers\",\"WanTransformer3DModel\"],"
             "\"transformer_2\":[%s],\"vae\":[\"diffusers\",\"AutoencoderKLWan\"],"
             "\"boundary_ratio\":%s,\"expand_timesteps\":%s,\"future_key\":{\"x\":1}}",
             m->two_experts ? "\"diffusers\",\"WanTransformer3DModel\"" : "null,null",
             m->two_experts ? "0.875" : "null", m->channels == 48 ? "true" : "false");
    wd_test_write(root, "model_index.json", text);
    wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
    wd_test_ok(wd_dit_table_open(&table, &p.dit, &err), &err);
    wd_test_sparse_set(wd_test_below(path, root, "transformer"), "diffusion_pytorch_model", &table,
                       m->shards, m->dit_dtype, NULL);
    if (m->two_experts)
        wd_test_sparse_set(wd_test_below(path, root, "transformer_2"), "diffusion_pytorch_model",
                           &table, m->shards, m->dit_dtype, NULL);
    wd_dit_table_close(&table);
    wd_test_ok(wd_umt5_table_open(&table, &p.umt5, &err), &err);
    wd_test_sparse_set(wd_test_below(path, root, "text_encoder"), "model", &table, 5, m->text_dtype,
                       "encoder.embed_tokens.weight");
    wd_umt5_table_close(&table);
    wd_test_ok(wd_vae_table_open(&table, &p.vae, &err), &err);
    wd_test_sparse_set(wd_test_below(path, root, "vae"), "diffusion_pytorch_model", &table, 1,
                       WD_F32, NULL);
    wd_vae_table_close(&table);
}

#endif
