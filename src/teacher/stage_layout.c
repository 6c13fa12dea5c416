/* Stages in memory: see teacher/stage_layout.h. */
#include "teacher/stage_layout.h"

#include "core/checked.h"
#include "dev/codec/values.h"
#include "dev/ops.h"

enum { ALIGN = 64 };

/* F16 is a storage type: it is widened for computing. */
static wd_dtype widened(wd_dtype stored)
{
    return stored == WD_F16 ? WD_F32 : stored;
}

static bool is_aligned(const wd_tensor *t)
{
    return (uintptr_t)t->data % wd_dtype_align(t->dtype) == 0;
}

static wd_kept_tensor keep(int64_t count, wd_dtype file, wd_dtype stored, bool unaligned,
                           wd_stage_keeping keeping)
{
    const bool same = file == stored;
    /* what is not used in place has been read to where it is aligned */
    const bool mapped = keeping.in_place || keeping.from_map;
    const bool is_read = keeping.reads_host && !(mapped && unaligned);
    wd_kept_tensor kept = {.stored = stored,
                           .bytes = wd_dtype_size(stored, count),
                           .file = wd_dtype_size(file, count)};
    kept.mapped = keeping.in_place && same && !unaligned;
    kept.room = kept.mapped ? 0 : wd_round_up(kept.bytes, ALIGN);
    kept.reading = wd_file_reader_room(kept.file);
    kept.converting = same ? 0 : wd_round_up(kept.file, ALIGN);
    kept.staging = same || is_read ? 0 : kept.file;
    return kept;
}

wd_kept_tensor wd_stage_keep(const wd_tensor_spec *spec, wd_dtype file, bool unaligned,
                             wd_stage_keeping keeping)
{
    int64_t count = 1;
    for (int i = 0; i < spec->ndim; i++) count *= spec->dim[i];
    const wd_dtype storage = wd_spec_dtype(spec, keeping.storage), computed = widened(storage);
    const wd_dtype stored = wd_dtype_is_quantised(file) ? file : storage;
    wd_kept_tensor kept = keep(count, file, stored, unaligned, keeping);
    if (stored != computed) kept.widened = wd_round_up(wd_dtype_size(computed, count), ALIGN);
    return kept;
}

wd_kept_tensor wd_stage_keep_scales(const wd_safetensors_entry *scales, wd_stage_keeping keeping)
{
    const wd_dtype dtype = scales->tensor.dtype;
    return keep(wd_tensor_count(&scales->tensor), dtype, dtype, scales->unaligned, keeping);
}

/* Adds a part that the checkpoint has. */
static void add_part(wd_stage_layout *out, int i, wd_kept_tensor kept)
{
    out->stored[i] = out->file[i];
    out->stored[i].dtype = kept.stored;
    out->widened_bytes += kept.widened;
    out->reading_bytes += kept.reading;
    out->converting_bytes += kept.converting;
    if (kept.staging > out->staging_bytes) out->staging_bytes = kept.staging;
    if (kept.mapped) {
        out->mapped_bytes += kept.bytes;
        return;
    }
    out->stored[i].data = NULL;
    out->offset[i] = out->block_bytes;
    out->block_bytes += kept.room;
}

wd_status wd_stage_lay_out(wd_stage_layout *out, const wd_dit_config *config,
                           const wd_tensor_table *table, const wd_safetensors *weights, int stage,
                           wd_stage_keeping keeping, wd_err *err)
{
    const int slots = wd_dit_stage_slots(config, stage);
    *out = (wd_stage_layout){.tensors = slots, .parts = slots};
    int64_t first = wd_dit_stage_first(config, stage);
    for (int i = 0; i < out->tensors; i++) {
        const wd_tensor_spec *spec = &table->spec[first + i];
        const wd_safetensors_entry *entry = wd_safetensors_find(weights, spec->name);
        out->offset[i] = SIZE_MAX;
        out->entry[i] = entry;
        out->of[i] = i;
        out->rounded[i] = wd_spec_dtype(spec, keeping.storage);
        if (spec->may_miss && !entry) continue;
        WD_TRY(wd_safetensors_expect(&out->file[i], weights, spec, err));
        add_part(out, i, wd_stage_keep(spec, out->file[i].dtype, entry->unaligned, keeping));
    }
    for (int i = 0; i < out->tensors; i++) {
        const wd_safetensors_entry *scales = out->entry[i] ? out->entry[i]->scale : NULL;
        if (!scales) continue;
        const int part = out->parts++;
        out->offset[part] = SIZE_MAX;
        out->entry[part] = scales;
        out->of[part] = i;
        out->file[part] = scales->tensor;
        add_part(out, part, wd_stage_keep_scales(scales, keeping));
    }
    return WD_OK;
}

wd_status wd_stage_read(char *room, const wd_stage_layout *layout, wd_file_reader *reader,
                        wd_err *err)
{
    for (int i = 0; i < layout->parts; i++) {
        const wd_safetensors_entry *e = layout->entry[i];
        if (!e) continue;
        const size_t bytes = wd_tensor_bytes(&layout->file[i]);
        if (e->unaligned)
            WD_TRY(wd_file_reader_read(reader, room, e->file, e->file_offset, bytes, err));
        else
            WD_TRY(wd_file_reader_read_pages(reader, room, e->file, e->file_offset, bytes, err));
        room += wd_file_reader_room(bytes);
    }
    return WD_OK;
}

void wd_stage_was_read(wd_stage_layout *layout, char *room)
{
    for (int i = 0; i < layout->parts; i++) {
        const wd_safetensors_entry *e = layout->entry[i];
        wd_tensor *file = &layout->file[i];
        if (!e) continue;
        file->data = e->unaligned ? room : wd_file_reader_place(room, e->file_offset);
        room += wd_file_reader_room(wd_tensor_bytes(file));
    }
}

void *wd_stage_part_place(const wd_stage_layout *layout, int i, char *block)
{
    return layout->offset[i] == SIZE_MAX ? layout->stored[i].data : block + layout->offset[i];
}

void wd_stage_view(wd_dit_stage *stored, const wd_stage_layout *layout, char *block)
{
    *stored = (wd_dit_stage){0};
    for (int i = 0; i < layout->parts; i++) {
        wd_tensor *t = &stored->t[layout->of[i]];
        if (i < layout->tensors) *t = layout->stored[i];
        *(i < layout->tensors ? &t->data : &t->scales.data) = wd_stage_part_place(layout, i, block);
    }
}

void wd_stage_view_dry(wd_dit_stage *stored, const wd_dit_config *config,
                       const wd_tensor_table *table, int stage, wd_dtype compute, bool gaps)
{
    const int64_t first = wd_dit_stage_first(config, stage);
    uintptr_t address = (uintptr_t)1 << 20;
    *stored = (wd_dit_stage){0};
    for (int i = 0; i < wd_dit_stage_slots(config, stage); i++) {
        const wd_tensor_spec *spec = &table->spec[first + i];
        wd_tensor *t = &stored->t[i];
        t->dtype = wd_spec_dtype(spec, compute);
        t->ndim = spec->ndim;
        for (int k = 0; k < spec->ndim; k++) t->dim[k] = spec->dim[k];
        if (!wd_tensor_count(t)) continue;
        t->data = (void *)address;
        address += wd_round_up(wd_tensor_bytes(t), ALIGN) + (gaps ? ALIGN : 0);
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
    for (int i = 0; i < layout->parts; i++) {
        const wd_tensor *file = &layout->file[i];
        const wd_dtype to_type = layout->stored[i].dtype;
        void *to = wd_stage_part_place(layout, i, block);
        if (layout->offset[i] == SIZE_MAX) continue;
        if (file->dtype == to_type) {
            fetch(queue, to, file, layout->pinned);
            continue;
        }
        const void *from = file->data;
        if (!reads_host || !is_aligned(file)) {
            fetch(queue, staging, file, layout->pinned);
            from = staging;
        }
        wd_op_cast(queue, &(wd_cast_args){.to = to,
                                          .from = from,
                                          .to_type = to_type,
                                          .from_type = file->dtype,
                                          .count = wd_tensor_count(file)});
    }
}

void wd_stage_widen(wd_dit_stage *stage, const wd_stage_layout *layout, char *to, wd_queue *queue)
{
    for (int i = 0; i < layout->tensors; i++) {
        wd_tensor *t = &stage->t[i];
        const wd_dtype rounded = layout->rounded[i], wide = widened(rounded);
        if (!t->data || (t->dtype != WD_F16 && !wd_dtype_is_quantised(t->dtype))) continue;
        if (t->dtype == WD_F16)
            wd_op_cast(queue, &(wd_cast_args){.to = to,
                                              .from = t->data,
                                              .to_type = wide,
                                              .from_type = t->dtype,
                                              .count = wd_tensor_count(t)});
        else
            wd_tensor_dequantise(queue, to, wide, rounded, t);
        t->data = to;
        t->dtype = wide;
        t->scales = (wd_scales){0};
        to += wd_round_up(wd_tensor_bytes(t), ALIGN);
    }
}
