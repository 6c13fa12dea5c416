/* Stages in memory: see teacher/stage_layout.h. */
#include "teacher/stage_layout.h"

#include "core/checked.h"
#include "dev/ops.h"
#include "io/file_reader.h"

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

wd_kept_tensor wd_stage_keep(const wd_tensor_spec *spec, wd_dtype file, bool unaligned,
                             wd_stage_keeping keeping)
{
    size_t count = 1;
    for (int i = 0; i < spec->ndim; i++) count *= (size_t)spec->dim[i];
    const wd_dtype stored = wd_spec_dtype(spec, keeping.storage);
    const bool same = file == stored;
    /* what is not used in place has been read to where it is aligned */
    const bool mapped = keeping.in_place || keeping.from_map;
    const bool is_read = keeping.reads_host && !(mapped && unaligned);
    wd_kept_tensor kept = {.stored = stored,
                           .bytes = count * wd_dtype_bytes(stored),
                           .file = count * wd_dtype_bytes(file)};
    kept.mapped = keeping.in_place && same && !unaligned;
    kept.room = kept.mapped ? 0 : wd_round_up(kept.bytes, ALIGN);
    kept.reading = wd_file_reader_room(kept.file);
    kept.converting = same ? 0 : wd_round_up(kept.file, ALIGN);
    kept.staging = same || is_read ? 0 : kept.file;
    kept.widened = wd_round_up(count * wd_dtype_bytes(widened(stored)), ALIGN);
    return kept;
}

wd_status wd_stage_lay_out(wd_stage_layout *out, const wd_dit_config *config,
                           const wd_tensor_table *table, const wd_safetensors *weights, int stage,
                           wd_stage_keeping keeping, wd_err *err)
{
    *out = (wd_stage_layout){.tensors = wd_dit_stage_slots(config, stage)};
    int64_t first = wd_dit_stage_first(config, stage);
    for (int i = 0; i < out->tensors; i++) {
        const wd_tensor_spec *spec = &table->spec[first + i];
        const wd_safetensors_entry *entry = wd_safetensors_find(weights, spec->name);
        out->offset[i] = SIZE_MAX;
        out->entry[i] = entry;
        if (spec->may_miss && !entry) continue;
        WD_TRY(wd_safetensors_expect(&out->file[i], weights, spec, err));
        const wd_kept_tensor kept =
            wd_stage_keep(spec, out->file[i].dtype, entry->unaligned, keeping);
        out->stored[i] = out->file[i];
        out->stored[i].dtype = kept.stored;
        out->widened_bytes += kept.widened;
        out->reading_bytes += kept.reading;
        out->converting_bytes += kept.converting;
        if (kept.staging > out->staging_bytes) out->staging_bytes = kept.staging;
        if (kept.mapped) {
            out->mapped_bytes += kept.bytes;
            continue;
        }
        out->stored[i].data = NULL;
        out->offset[i] = out->block_bytes;
        out->block_bytes += kept.room;
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

static void fetch(wd_queue *queue, void *to, const wd_tensor *from, bool pinned)
{
    if (pinned)
        wd_queue_copy(queue, to, from->data, wd_tensor_bytes(from));
    else
        wd_queue_copy_and_wait(queue, to, from->data, wd_tensor_bytes(from));
}

void wd_stage_bring(wd_dit_stage *stored, const wd_stage_layout *layout, char *block, void *staging,
                    wd_queue *queue)
{
    bool reads_host = wd_device_traits(wd_queue_device(queue))->reads_host;
    wd_stage_view(stored, layout, block);
    for (int i = 0; i < layout->tensors; i++) {
        const wd_tensor *file = &layout->file[i], *to = &stored->t[i];
        if (layout->offset[i] == SIZE_MAX) continue;
        if (file->dtype == to->dtype) {
            fetch(queue, to->data, file, layout->pinned);
            continue;
        }
        const void *from = file->data;
        if (!reads_host || !is_aligned(file)) {
            fetch(queue, staging, file, layout->pinned);
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
