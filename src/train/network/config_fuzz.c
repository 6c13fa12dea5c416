/* Fuzz target: any JSON as a student's configuration, for a small teacher. What is accepted is a
 * transformer that tables and sizes can be made of. */
#include "fuzzing.h"

#include "model/tables/dit_table.h"
#include "train/network/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const wd_pipeline teacher = {.dit = {.in_channels = 16,
                                                .out_channels = 16,
                                                .heads = 5,
                                                .head_dim = 32,
                                                .ffn_dim = 640,
                                                .layers = 6,
                                                .freq_dim = 64,
                                                .text_dim = 96,
                                                .patch = {1, 2, 2},
                                                .rope_max_seq_len = 1024,
                                                .cross_attn_norm = true,
                                                .eps = 1e-6},
                                        .default_height = 64,
                                        .default_width = 64};
    json_t *json;
    wd_err err;
    wd_student_config config;
    wd_tensor_table table;
    if (wd_json_parse(&json, (const char *)data, bytes, "input", &err) != WD_OK) return 0;
    if (wd__student_config_read(&config, json, "input", &teacher, &err) == WD_OK) {
        if (config.image_height < 1 || config.image_height > 1 << 14 || config.dit.ffn_dim < 1)
            abort();
        if (wd_dit_table_open(&table, &config.dit, &err) == WD_OK) wd_dit_table_close(&table);
    }
    json_decref(json);
    return 0;
}
