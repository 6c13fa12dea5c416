/* The tensor table of the UMT5 encoder: see model/text/umt5_table.h. */
#include "model/text/umt5_table.h"

#include <stdio.h>

#include "core/memory.h"

static void fill_layer(wd_tensor_spec *spec, int64_t layer, const wd_umt5_config *c)
{
    int64_t inner = c->heads * c->d_kv;
    const struct {
        const char *name;
        int64_t rows, columns;
    } slot[WD_UMT5_LAYER_SLOTS] = {
#define X(slot, name, rows, columns) {name, rows, columns},
        WD_UMT5_LAYER_MAP(X)
#undef X
    };
    for (int i = 0; i < WD_UMT5_LAYER_SLOTS; i++) {
        spec[i] = (wd_tensor_spec){.ndim = slot[i].columns ? 2 : 1,
                                   .dim = {slot[i].rows, slot[i].columns},
                                   .stage = (int)layer + 1};
        snprintf(spec[i].name, sizeof spec[i].name, "encoder.block.%d.layer.%s", (int)layer,
                 slot[i].name);
    }
}

wd_status wd_umt5_table_open(wd_tensor_table *out, const wd_umt5_config *config, wd_err *err)
{
    static const char *const embed_names[WD_UMT5_EMBED_SLOTS] = {"shared.weight",
                                                                 "encoder.embed_tokens.weight"};
    void *spec;
    int64_t count = wd__umt5_norm_line(config) + 1;
    WD_TRY(wd_alloc(&spec, (size_t)count, sizeof *out->spec, "a tensor table", err));
    *out = (wd_tensor_table){.spec = spec, .count = count, .stages = (int)config->layers + 2};
    for (int i = 0; i < WD_UMT5_EMBED_SLOTS; i++) {
        out->spec[i] = (wd_tensor_spec){
            .ndim = 2, .dim = {config->vocab_size, config->d_model}, .may_miss = true};
        snprintf(out->spec[i].name, sizeof out->spec[i].name, "%s", embed_names[i]);
    }
    for (int64_t i = 0; i < config->layers; i++)
        fill_layer(out->spec + wd__umt5_layer_line(i), i, config);
    out->spec[count - 1] = (wd_tensor_spec){.name = "encoder.final_layer_norm.weight",
                                            .ndim = 1,
                                            .dim = {config->d_model},
                                            .stage = out->stages - 1};
    return WD_OK;
}

void wd_umt5_table_close(wd_tensor_table *table)
{
    wd_free(table->spec);
    *table = (wd_tensor_table){0};
}
