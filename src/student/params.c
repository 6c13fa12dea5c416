/* The flat parameters: layout, memory, views. See params.h for the layout and its reasons. */
#include "student/params.h"

#include <assert.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "dev/ops.h"

static wd_status lay_out(wd_params *params, wd_err *err)
{
    const wd_tensor_table *table = &params->table;
    WD_TRY(wd_alloc((void **)&params->offset, (size_t)table->count, sizeof *params->offset,
                    "offsets of the parameters", err));
    int64_t end = 0;
    for (int64_t i = 0; i < table->count; i++) {
        wd_tensor view = wd_params_tensor(params, WD_PARAMS_P, i);
        params->offset[i] = end;
        params->weights += wd_tensor_count(&view);
        end += (int64_t)wd_round_up((size_t)wd_tensor_count(&view), WD_PARAMS_ALIGN);
    }
    params->count = end;
    return WD_OK;
}

static bool wants(const wd_params *params, wd_params_buffer buffer)
{
    switch (buffer) {
    case WD_PARAMS_P: return true;
    case WD_PARAMS_EMA: return params->kinds & WD_PARAMS_WITH_EMA;
    default: return params->kinds & WD_PARAMS_TRAINED;
    }
}

wd_status wd_params_open(wd_params *out, const wd_dit_config *config, wd_dtype dtype,
                         unsigned kinds, wd_device *device, wd_err *err)
{
    static const char *const what[WD_PARAMS_BUFFERS] = {
        "student weights", "student gradients", "student first moments", "student second moments",
        "student EMA"};
    assert(dtype == WD_F32 || dtype == WD_BF16);
    wd_params params = {.config = *config, .dtype = dtype, .kinds = kinds, .device = device};
    wd_status status = WD_OK;
    WD_TRY_OUT(wd_dit_table_open(&params.table, config, err));
    WD_TRY_OUT(lay_out(&params, err));
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        if (!wants(&params, (wd_params_buffer)i)) continue;
        WD_TRY_OUT(wd_device_alloc((void **)&params.buffer[i], device,
                                   (size_t)params.count * sizeof(float), what[i], err));
    }
    if (dtype == WD_BF16) {
        WD_TRY_OUT(wd_device_alloc((void **)&params.copy, device,
                                   (size_t)params.count * sizeof(uint16_t),
                                   "student weights in bf16", err));
    }
out:
    if (status == WD_OK) *out = params;
    else wd_params_close(&params);
    return status;
}

void wd_params_close(wd_params *params)
{
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        if (params->buffer[i]) wd_device_free(params->device, params->buffer[i]);
    }
    if (params->copy) wd_device_free(params->device, params->copy);
    wd_free(params->offset);
    wd_dit_table_close(&params->table);
    *params = (wd_params){0};
}

size_t wd_params_bytes(const wd_params *params)
{
    size_t bytes = params->copy ? (size_t)params->count * sizeof(uint16_t) : 0;
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        if (params->buffer[i]) bytes += (size_t)params->count * sizeof(float);
    }
    return bytes;
}

wd_tensor wd_params_tensor(const wd_params *params, wd_params_buffer buffer, int64_t line)
{
    const wd_tensor_spec *spec = &params->table.spec[line];
    float *base = params->buffer[buffer];
    wd_tensor view = {.data = base ? base + params->offset[line] : NULL,
                      .dtype = WD_F32,
                      .ndim = spec->ndim};
    memcpy(view.dim, spec->dim, sizeof view.dim);
    return view;
}

void wd_params_weights(wd_dit_stage *out, const wd_params *params, int stage)
{
    int64_t first = wd_dit_stage_first(&params->config, stage);
    int slots = wd_dit_stage_slots(&params->config, stage);
    *out = (wd_dit_stage){0};
    for (int slot = 0; slot < slots; slot++) {
        int64_t line = first + slot;
        out->t[slot] = wd_params_tensor(params, params->shown, line);
        out->t[slot].dtype = wd_spec_dtype(&params->table.spec[line], params->dtype);
        if (out->t[slot].dtype == WD_BF16) out->t[slot].data = params->copy + params->offset[line];
    }
}

void wd_params_grads(wd_dit_stage *out, const wd_params *params, int stage)
{
    int64_t first = wd_dit_stage_first(&params->config, stage);
    int slots = wd_dit_stage_slots(&params->config, stage);
    assert(params->buffer[WD_PARAMS_G]);
    *out = (wd_dit_stage){0};
    for (int slot = 0; slot < slots; slot++) {
        out->t[slot] = wd_params_tensor(params, WD_PARAMS_G, first + slot);
    }
}

void wd_params_stage_range(int64_t *first, int64_t *count, const wd_params *params, int stage)
{
    int64_t line = wd_dit_stage_first(&params->config, stage);
    int64_t next = line + wd_dit_stage_slots(&params->config, stage);
    *first = params->offset[line];
    *count = (next < params->table.count ? params->offset[next] : params->count) - *first;
}

void wd_params_show(wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    assert((buffer == WD_PARAMS_P || buffer == WD_PARAMS_EMA) && params->buffer[buffer]);
    params->shown = buffer;
    if (!params->copy) return;
    wd_op_cast(queue, &(wd_cast_args){.to = params->copy,
                                      .from = params->buffer[buffer],
                                      .to_type = WD_BF16,
                                      .from_type = WD_F32,
                                      .count = params->count});
}

void wd_params_zero_grads(const wd_params *params, wd_queue *queue)
{
    wd_op_fill(queue, &(wd_fill_args){.to = params->buffer[WD_PARAMS_G],
                                      .type = WD_F32,
                                      .count = params->count});
}
