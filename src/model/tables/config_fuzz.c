/* Fuzz target: any JSON as each component's configuration; accepted ones must have a table. */
#include "fuzzing.h"

#include "model/tables/dit_table.h"
#include "model/text/umt5.h"
#include "model/vae/vae.h"

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
