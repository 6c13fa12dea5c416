/* Stages in memory: see teacher/stage_layout.h. */
#include "teacher/stage_layout.h"

#include "core/checked.h"
#include "dev/ops.h"

enum { ALIGN = 64 };

/* F16 is a storage type: it is widened for computing. */
static wd_dtype widened(wd_dtype stored)
{
    return stored == WD_F16 ? WD_F32 : stored;
}

static bool is_aligned(const wd_tensor *t)
{
    return (uintptr_t)t->data % wd_dtype_bytes(t->dtype) == 0;
}

wd_status wd_stage_lay_out(wd_stage_layout *out, const wd_dit_config *config,
                           const wd_tensor_table *table, const wd_safetensors *weights, int stage,
                           wd_stage_keeping keeping, wd_err *err)
{
    *out = (wd_stage_layout){.tensors = wd_dit_stage_slots(config, stage)};
    int64_t first = wd_dit_stage_first(config, stage);
    for (int i = 0; i < out->tensors; i++) {
        const wd_tensor_spec *spec = &table->spec[first + i];
        out->offset[i] = SIZE_MAX;
        out->entry[i] = wd_safetensors_find(weights, spec->name);
        if (spec->may_miss && !out->entry[i]) continue;
        wd_tensor *file = &out->file[i];
        WD_TRY(wd_safetensors_expect(file, weights, spec, err));
        out->stored[i] = *file;
        out->stored[i].dtype = wd_spec_dtype(spec, keeping.storage);
        bool same = file->dtype == out->stored[i].dtype, aligned = is_aligned(file);
        size_t bytes = wd_tensor_bytes(&out->stored[i]), file_bytes = wd_tensor_bytes(file);
        wd_tensor wide = out->stored[i];
        wide.dtype = widened(wide.dtype);
        out->widened_bytes += wd_round_up(wd_tensor_bytes(&wide), ALIGN);
        out->reading_bytes += wd_round_up(file_bytes, ALIGN);
        if (!same) out->converting_bytes += wd_round_up(file_bytes, ALIGN);
        if (keeping.in_place && same && aligned) {
            out->mapped_bytes += bytes;
            continue;
        }
        out->stored[i].data = NULL;
        out->offset[i] = out->block_bytes;
        out->block_bytes += wd_round_up(bytes, ALIGN);
        if (!(same || (keeping.reads_host && aligned)) && file_bytes > out->staging_bytes)
            out->staging_bytes = file_bytes;
    }
    return WD_OK;
}

void wd_stage_view(wd_dit_stage *stored, const wd_stage_layout *layout, char *block)
{
    *stored = (wd_dit_stage){0};
    for (int i = 0; i < layout->tensors; i++) {
        stored->t[i] = layout->stored[i];
        if (layout->offset[i] != SIZE_MAX) stored->t[i].data = block + layout->offset[i];
    }
}

void wd_stage_bring(wd_dit_stage *stored, const wd_stage_layout *layout, char *block, void *staging,
                    wd_queue *queue)
{
    bool reads_host = wd_device_reads_host(wd_queue_device(queue));
    wd_stage_view(stored, layout, block);
    for (int i = 0; i < layout->tensors; i++) {
        const wd_tensor *file = &layout->file[i], *to = &stored->t[i];
        if (layout->offset[i] == SIZE_MAX) continue;
        if (file->dtype == to->dtype) {
            wd_queue_copy(queue, to->data, file->data, wd_tensor_bytes(file));
            continue;
        }
        const void *from = file->data;
        if (!reads_host || !is_aligned(file)) {
            wd_queue_copy(queue, staging, from, wd_tensor_bytes(file));
            from = staging;
        }
        wd_op_cast(queue, &(wd_cast_args){.to = to->data,
                                          .from = from,
                                          .to_type = to->dtype,
                                          .from_type = file->dtype,
                                          .count = wd_tensor_count(file)});
    }
}

void wd_stage_widen(wd_dit_stage *stage, char *to, wd_queue *queue)
{
    for (int i = 0; i < WD_DIT_BLOCK_SLOTS; i++) {
        wd_tensor *t = &stage->t[i];
        if (!t->data || t->dtype != WD_F16) continue;
        wd_op_cast(queue, &(wd_cast_args){.to = to,
                                          .from = t->data,
                                          .to_type = WD_F32,
                                          .from_type = WD_F16,
                                          .count = wd_tensor_count(t)});
        t->data = to;
        t->dtype = WD_F32;
        to += wd_round_up(wd_tensor_bytes(t), ALIGN);
    }
}
