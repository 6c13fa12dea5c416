/* How streamed stages come from the files: the part's thread reads them, or, where ranks of a host
 * share a reader (residency_shared_reader.c), that reads them for all. */
#include "core/checked.h"
#include "core/memory.h"
#include "teacher/run/residency_part.h"

/* Reads a stage for a processor, which computes where it is: tensors into the buffer that stay as
 * they are in the file, the others to `staging`, from which they are converted. */
static wd_status read_for_processor(wd_residency_part *r, wd_stage_layout *layout, char *buffer,
                                    char *staging, wd_err *err)
{
    for (int i = 0; i < layout->parts; i++) {
        const wd_safetensors_entry *e = layout->entry[i];
        const bool direct = layout->file[i].dtype == layout->stored[i].dtype;
        if (!e) continue;
        const size_t bytes = wd_tensor_bytes(&layout->file[i]);
        void *to = direct ? wd_stage_part_place(layout, i, buffer) : staging;
        WD_TRY(wd_file_reader_read(r->reader, to, e->file, e->file_offset, bytes, err));
        if (direct) {
            layout->stored[i].data = to;
            layout->offset[i] = SIZE_MAX; /* it is there */
        } else {
            layout->file[i].data = to;
            staging += wd_round_up(bytes, 64);
        }
    }
    return WD_OK;
}

/* For a device that does not read host memory a stage is read past the page cache into a pinned
 * staging, while its buffer is still in use, and brought from there while the next stage is read
 * into the other one. */
wd_status wd_residency_part_bring_file(wd_residency_part *r, wd_stage_buffer *s)
{
    wd_stage_layout layout = r->layout[s->turn.expert][s->turn.stage];
    const int k = (int)(r->staged++ % r->stagings); /* they take turns */
    char *staging = r->staging[k];
    layout.pinned = true;
    wd_event_wait(r->sent[k]);
    if (r->reads_host) {
        wd_event_wait(s->released);
        WD_TRY(read_for_processor(r, &layout, s->block, staging, &s->error));
    } else {
        WD_TRY(wd_stage_read(staging, &layout, r->reader, &s->error));
        wd_stage_was_read(&layout, staging);
    }
    wd_stage_buffer_launch(r, s, &layout);
    wd_event_record(r->sent[k], r->copies);
    return WD_OK;
}

wd_status wd_residency_part_open_disk(wd_residency_part *r, size_t reading_bytes,
                                      size_t converting_bytes, wd_comm *sharers, wd_err *err)
{
    if (sharers) WD_TRY(wd_residency_part_open_ring(r, reading_bytes, sharers, err));
    if (sharers && sharers->host_ranks > 1) return WD_OK;
    const size_t bytes = r->reads_host ? converting_bytes : reading_bytes;
    r->stagings =
        r->reads_host ? 1 : WD_PLACED_STAGINGS; /* a processor's copies are done at once */
    for (int i = 0; i < r->stagings; i++) {
        WD_TRY(wd_event_open(&r->sent[i], r->device, err));
        WD_TRY(wd_residency_part_take_host(&r->staging[i], r, bytes, "teacher weights being read",
                                           err));
    }
    return wd_file_reader_open(&r->reader, err);
}

void wd_residency_part_close_disk(wd_residency_part *r)
{
    wd_residency_part_close_ring(r);
    for (int i = 0; i < WD_PLACED_STAGINGS; i++) wd_event_close(r->sent[i]);
    for (int i = 0; i < r->stagings; i++) wd_residency_part_give_host(r, r->staging[i]);
    wd_file_reader_close(r->reader);
}
