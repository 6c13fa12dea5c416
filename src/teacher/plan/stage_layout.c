/* Stages in memory: see teacher/plan/stage_layout.h. */
#include "teacher/plan/stage_layout.h"

#include "core/checked.h"
#include "core/error.h"
#include "dev/codec/values.h"
#include "dev/ops.h"
#include "model/files/overlay.h"

_Static_assert(WD_PLACED_STAGES_MAX == WD_DIT_LAYERS_MAX + 2, "every configuration has its places");

enum { ALIGN = 64, PIECE_BYTES = 32 << 20 };

/* F16 is a storage type: it is widened for computing. */
static wd_dtype widened(wd_dtype stored)
{
    return stored == WD_F16 ? WD_F32 : stored;
}

static bool is_aligned(const wd_tensor *t)
{
    return (uintptr_t)t->data % wd_dtype_align(t->dtype) == 0;
}

/* Adds a part that the files have, which is kept in dtype `stored`. */
static void add_part(wd_stage_layout *out, int i, wd_dtype stored, bool in_place)
{
    const wd_tensor *file = &out->file[i];
    const int64_t count = wd_tensor_count(file);
    const size_t bytes = wd_dtype_size(stored, count), file_bytes = wd_tensor_bytes(file);
    const bool same = file->dtype == stored, unaligned = out->entry[i] && out->entry[i]->unaligned;
    out->stored[i] = *file;
    out->stored[i].dtype = stored;
    const bool mappable = same && !unaligned;
    out->size.file += file_bytes;
    out->size.reading += wd_file_reader_room(file_bytes);
    if (!same) out->size.converting += wd_round_up(file_bytes, ALIGN);
    if (!same) wd_placed_most(&out->size.casting, file_bytes);
    out->size.device += wd_round_up(bytes, ALIGN);
    if (!mappable) out->size.host += wd_round_up(bytes, ALIGN);
    out->unaligned |= !same && unaligned;
    if (in_place && mappable) return;
    out->stored[i].data = NULL;
    out->offset[i] = out->block_bytes;
    out->block_bytes += wd_round_up(bytes, ALIGN);
}

/* *there = whether the files have a tensor; out->file[i] and entry[i] are as they have it. */
static wd_status find_tensor(bool *there, wd_stage_layout *out, int i, const wd_tensor_spec *spec,
                             const wd_teacher_files *files, wd_err *err)
{
    wd_tensor *t = &out->file[i];
    if (files->weights) {
        out->entry[i] = wd_safetensors_find(files->weights, spec->name);
        *there = out->entry[i] || !spec->may_miss;
        return *there ? wd_safetensors_expect(t, files->weights, spec, err) : WD_OK;
    }
    *there = !spec->may_miss;
    *t = (wd_tensor){.data = (void *)((uintptr_t)(i + 1) << 32),
                     .dtype = spec->keep_f32 ? WD_F32 : files->dtype,
                     .ndim = spec->ndim};
    for (int k = 0; k < spec->ndim; k++) t->dim[k] = spec->dim[k];
    if (wd_overlay_quantises(spec, t->dtype, files->quantised)) t->dtype = files->quantised;
    return WD_OK;
}

/* The scales of tensor `i` are a part of their own. Files that are not written yet have one scale
 * for each row. */
static void add_scales(wd_stage_layout *out, int i, bool in_place)
{
    const wd_tensor *t = &out->file[i];
    const wd_safetensors_entry *entry = out->entry[i];
    const bool will_come = !entry && wd_dtype_is_quantised(t->dtype);
    if (entry ? !entry->scale : !will_come) return;
    const int part = out->parts++;
    out->offset[part] = SIZE_MAX;
    out->weight_slot[part] = i;
    out->entry[part] = entry ? entry->scale : NULL;
    out->file[part] = entry ? entry->scale->tensor
                            : (wd_tensor){.dtype = WD_F32, .ndim = 2, .dim = {t->dim[0], 1}};
    add_part(out, part, out->file[part].dtype, in_place);
}

wd_status wd_stage_lay_out(wd_stage_layout *out, const wd_dit_config *config,
                           const wd_tensor_table *table, const wd_teacher_files *files, int stage,
                           wd_dtype storage, bool in_place, wd_err *err)
{
    const int slots = wd_dit_stage_slots(config, stage);
    const int64_t first = wd_dit_stage_first(config, stage);
    *out = (wd_stage_layout){.tensors = slots, .parts = slots};
    for (int i = 0; i < out->tensors; i++) {
        const wd_tensor_spec *spec = &table->spec[first + i];
        const wd_dtype kept = wd_spec_dtype(spec, storage), computed = widened(kept);
        bool there;
        out->offset[i] = SIZE_MAX;
        out->weight_slot[i] = i;
        out->rounded[i] = kept;
        WD_TRY(find_tensor(&there, out, i, spec, files, err));
        if (!there) continue;
        const wd_tensor *file = &out->file[i];
        const wd_dtype stored = wd_dtype_is_quantised(file->dtype) ? file->dtype : kept;
        add_part(out, i, stored, in_place);
        if (stored == computed) continue;
        const size_t bytes = wd_dtype_size(computed, wd_tensor_count(file));
        out->size.widened += wd_round_up(bytes, ALIGN);
    }
    for (int i = 0; i < out->tensors; i++) add_scales(out, i, in_place);
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
        wd_tensor *t = &stored->t[layout->weight_slot[i]];
        if (i < layout->tensors) *t = layout->stored[i];
        *(i < layout->tensors ? &t->data : &t->scales.data) = wd_stage_part_place(layout, i, block);
    }
}

/* Copies `count` elements from the mapped file, or from where it was read. */
static void fetch(wd_queue *queue, void *to, const void *from, const wd_tensor *file, int64_t count,
                  bool pinned)
{
    const size_t bytes = wd_dtype_size(file->dtype, count);
    if (pinned)
        wd_queue_copy(queue, to, from, bytes);
    else
        wd_queue_copy_and_wait(queue, to, from, bytes);
}

/* Elements of a tensor that are brought at a time. */
static int64_t piece_of(const wd_stage_layout *layout, const wd_tensor *file)
{
    const int64_t all = wd_tensor_count(file), block = wd_dtype_block(file->dtype);
    const int64_t piece = PIECE_BYTES / (int64_t)wd_dtype_bytes(file->dtype) * block;
    return layout->may_stop && piece < all ? piece : all;
}

/* Brings part `i` to `to`. */
static void bring_part(char *to, const wd_stage_layout *layout, int i, void *staging,
                       wd_queue *queue)
{
    const wd_tensor *file = &layout->file[i];
    const wd_dtype to_type = layout->stored[i].dtype;
    const bool in_place = wd_device_traits(wd_queue_device(queue))->reads_host && is_aligned(file);
    const int64_t all = wd_tensor_count(file), piece = piece_of(layout, file);
    for (int64_t at = 0; at < all; at += piece) {
        const int64_t count = all - at < piece ? all - at : piece;
        const char *from = (const char *)file->data + wd_dtype_size(file->dtype, at);
        void *out = to + wd_dtype_size(to_type, at);
        if (layout->may_stop && wd_stop_requested()) return;
        if (file->dtype == to_type) {
            fetch(queue, out, from, file, count, layout->pinned);
            continue;
        }
        if (!in_place) fetch(queue, staging, from, file, count, layout->pinned);
        wd_op_cast(queue, &(wd_cast_args){.to = out,
                                          .from = in_place ? (const void *)from : staging,
                                          .to_type = to_type,
                                          .from_type = file->dtype,
                                          .count = count});
    }
}

void wd_stage_bring(wd_dit_stage *stored, const wd_stage_layout *layout, char *block, void *staging,
                    wd_queue *queue)
{
    wd_stage_view(stored, layout, block);
    for (int i = 0; i < layout->parts; i++)
        if (layout->offset[i] != SIZE_MAX)
            bring_part(wd_stage_part_place(layout, i, block), layout, i, staging, queue);
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

wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err)
{
    wd_tensor_table table;
    wd_stage_layout layout;
    wd_status status = WD_OK;
    *out = (wd_teacher_size){.experts = experts, .stages = wd_dit_stages(config)};
    WD_REQUIRE(out->stages <= WD_PLACED_STAGES_MAX, "a teacher of %d stages", out->stages);
    WD_TRY(wd_dit_table_open(&table, config, err));
    for (int i = 0; i < experts * out->stages && status == WD_OK; i++) {
        const int e = i / out->stages, s = i % out->stages;
        status = wd_stage_lay_out(&layout, config, &table, &files[e], s, storage, false, err);
        out->stage[e][s] = layout.size;
    }
    wd_dit_table_close(&table);
    return status;
}
