/* The UMT5 encoder's weights and their table: see model/text/umt5_impl.h. Weights stay in the
 * mapped file; a layer that cannot be used in place is copied to a buffer for one layer. */
#include <stdio.h>

#include "core/memory.h"
#include "model/tables/weights.h"
#include "model/text/umt5_impl.h"

wd_tensor wd__umt5_bring(wd_umt5 *e, wd_arena *stage, const wd_safetensors_entry *w)
{
    wd_tensor t = w->tensor;
    if (wd_weight_in_place(w, e->dtype, e->queue)) return t;
    t.dtype = e->dtype;
    t.data = wd_arena_push(stage, wd_tensor_bytes(&t));
    wd_weight_bring(t.data, e->raw, w, e->dtype, e->queue);
    return t;
}

void wd__umt5_bring_layer(wd_tensor w[WD_UMT5_LAYER_SLOTS], wd_umt5 *e, int64_t layer)
{
    wd_arena stage = wd_arena_over(e->stage, e->stage_bytes);
    const wd_safetensors_entry **line = e->line + wd__umt5_layer_line(layer);
    for (int i = 0; i < WD_UMT5_LAYER_SLOTS; i++) {
        if (i != WD_UMT5_BIAS) w[i] = wd__umt5_bring(e, &stage, line[i]);
    }
    if (layer + 1 == e->config.layers || wd_device_is_dry(wd_queue_device(e->queue))) return;
    for (int i = 0; i < WD_UMT5_LAYER_SLOTS; i++)
        wd_safetensors_will_need(line[WD_UMT5_LAYER_SLOTS + i]);
}

/* Computes the bytes of `stage` and `raw` for the largest layer. */
static void size_stage(wd_umt5 *e)
{
    for (int64_t layer = 0; layer <= e->config.layers; layer++) {
        wd_arena stage = wd_arena_over(NULL, SIZE_MAX);
        int slots = layer < e->config.layers ? WD_UMT5_LAYER_SLOTS : 1;
        for (int i = 0; i < slots; i++) {
            const wd_safetensors_entry *w = e->line[wd__umt5_layer_line(layer) + i];
            if (i == WD_UMT5_BIAS || wd_weight_in_place(w, e->dtype, e->queue)) continue;
            wd_arena_push(&stage, (size_t)wd_tensor_count(&w->tensor) * wd_dtype_bytes(e->dtype));
            size_t bytes = wd_weight_raw_bytes(w, e->dtype, e->queue);
            if (bytes > e->raw_bytes) e->raw_bytes = bytes;
        }
        if (stage.peak > e->stage_bytes) e->stage_bytes = stage.peak;
    }
}

/* Finds the file's entry of every tensor of the table. */
static wd_status find_tensors(wd_umt5 *e, const wd_safetensors *weights,
                              const wd_tensor_table *table, wd_err *err)
{
    wd_tensor ignored;
    for (int64_t i = 0; i < table->count; i++) {
        const wd_tensor_spec *spec = &table->spec[i];
        const wd_safetensors_entry *entry = wd_safetensors_find(weights, spec->name);
        if (!entry && spec->may_miss) continue;
        WD_TRY(wd_safetensors_expect(&ignored, weights, spec, err));
        e->line[i] = entry;
    }
    e->embedding = e->line[0] ? e->line[0] : e->line[1];
    if (e->embedding) return WD_OK;
    return wd_fail(err, WD_NOT_FOUND, "%s: has neither tensor \"%s\" nor \"%s\"",
                   e->line[WD_UMT5_EMBED_SLOTS]->file, table->spec[0].name, table->spec[1].name);
}

wd_status wd_umt5_open(wd_umt5 **out, const wd_umt5_config *config, const wd_safetensors *weights,
                       wd_dtype dtype, wd_queue *queue, wd_err *err)
{
    void *block;
    wd_umt5 *e = NULL;
    wd_tensor_table table = {0};
    wd_device *device = wd_queue_device(queue);
    wd_status status;
    if (dtype != WD_F32 && dtype != WD_BF16)
        return wd_fail(err, WD_UNSUPPORTED,
                       "UMT5 computes in float32 or bfloat16, not in %s: its activations overflow",
                       wd_dtype_option_name(dtype));
    WD_TRY(wd_alloc(&block, 1, sizeof *e, "a text encoder", err));
    e = block;
    *e = (wd_umt5){.config = *config, .dtype = dtype, .queue = queue};
    WD_TRY_OUT(wd_umt5_table_open(&table, config, err));
    WD_TRY_OUT(wd_alloc(&block, (size_t)table.count, sizeof *e->line, "a text encoder", err));
    e->line = block;
    WD_TRY_OUT(find_tensors(e, weights, &table, err));
    size_stage(e);
    if (e->stage_bytes)
        WD_TRY_OUT(wd_device_alloc(&e->stage, device, e->stage_bytes, "text encoder layer", err));
    if (e->raw_bytes)
        WD_TRY_OUT(wd_device_alloc(&e->raw, device, e->raw_bytes, "text encoder tensor", err));
    *out = e;
    e = NULL;
out:
    wd_umt5_table_close(&table);
    wd_umt5_close(e);
    return status;
}

void wd_umt5_close(wd_umt5 *e)
{
    if (!e) return;
    wd_device_free(wd_queue_device(e->queue), e->stage);
    wd_device_free(wd_queue_device(e->queue), e->raw);
    wd_free(e->line);
    wd_free(e);
}

/* ---- the tensor table ---- */

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
