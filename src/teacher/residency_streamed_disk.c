/* How a streamed residency reads ahead: a thread brings what is asked for from the files, or, where
 * ranks of a host share a reader, what that one reads for all. */
#include "core/checked.h"
#include "core/memory.h"
#include "teacher/residency_streamed_impl.h"
#include "teacher/stage_read.h"

/* They take turns, but for the second, which may be too small. */
static int next_staging(wd_streamed *r, const wd_stage_layout *layout)
{
    const int next = (int)(r->staged++ % r->stagings);
    return layout->reading_bytes <= r->staging_bytes[next] ? next : 0;
}

/* Reads a tensor for a processor, which computes where it is: into its slot, where it stays as it
 * is in the file, else to *staging, which moves on. */
static wd_status read_for_processor(wd_streamed *r, wd_stage_layout *layout, int i, void *slot,
                                    char **staging, wd_err *err)
{
    const wd_safetensors_entry *entry = layout->entry[i];
    const bool direct = layout->file[i].dtype == layout->stored[i].dtype;
    const size_t bytes = wd_tensor_bytes(&layout->file[i]);
    void *to = direct ? slot : *staging;
    WD_TRY(wd_file_reader_read(r->reader, to, entry->file, entry->file_offset, bytes, err));
    if (direct) {
        layout->stored[i].data = to;
        layout->offset[i] = SIZE_MAX; /* it is there */
    } else {
        layout->file[i].data = to;
        *staging += wd_round_up(bytes, 64);
    }
    return WD_OK;
}

/* Reads the stage's tensors: for a processor into its slot or what is converted from; for another
 * device past the page cache into a pinned staging, from which they are brought while the next
 * stage is read into the other. So there a stage is read while its slot is still in use. */
static wd_status read_stage(wd_streamed *r, wd_slot *s, wd_err *err)
{
    wd_stage_layout layout = r->layout[s->expert][s->stage];
    wd_dit_stage view;
    const int k = next_staging(r, &layout);
    layout.pinned = true;
    char *staging = r->staging[k];
    if (r->reads_host) wd_event_wait(s->released);
    wd_event_wait(r->sent[k]);
    wd_stage_view(&view, &layout, s->block);
    for (int i = 0; i < layout.tensors; i++) {
        if (!layout.entry[i]) continue;
        if (r->reads_host) {
            WD_TRY(read_for_processor(r, &layout, i, view.t[i].data, &staging, err));
            continue;
        }
        WD_TRY(wd_stage_read(staging, r->reader, layout.entry[i], err));
        layout.file[i].data = wd_stage_read_place(staging, layout.entry[i]);
        staging += wd_file_reader_room(wd_tensor_bytes(&layout.file[i]));
    }
    wd_slot_launch(r, s, &layout);
    wd_event_record(r->sent[k], r->copies);
    return WD_OK;
}

static void *read_ahead(void *context)
{
    wd_streamed *r = context;
    wd_slot *s;
    while ((s = wd_slot_await_wanted(r)))
        wd_slot_set(r, s, read_stage(r, s, &s->error) == WD_OK ? WD_SLOT_FILLED : WD_SLOT_FAILED);
    return NULL;
}

/* Brings what the host's reader reads, stage by stage. */
static void *follow(void *context)
{
    wd_streamed *r = context;
    wd_reading next;
    while (wd_host_reader_next(&next, r->host_reader)) {
        wd_stage_layout layout;
        wd_slot *s = wd_slot_await_empty(r, &next);
        if (!s) break;
        const wd_status status = wd_host_reader_await(&layout, r->host_reader, &next, &s->error);
        layout.pinned = true;
        if (status == WD_OK) {
            wd_slot_launch(r, s, &layout);
            wd_event_record(r->sent[0], r->copies);
        }
        wd_slot_set(r, s, status == WD_OK ? WD_SLOT_FILLED : WD_SLOT_FAILED);
        wd_event_wait(r->sent[0]);
        wd_host_reader_done(r->host_reader, &next);
    }
    return NULL;
}

static wd_status start(wd_streamed *r, void *(*work)(void *), wd_err *err)
{
    if (pthread_create(&r->thread, NULL, work, r))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread to read the teacher's weights");
    r->threaded = true;
    return WD_OK;
}

/* The ranks of each host have one reader; not where there is one rank, which is asked all the
 * same. */
static wd_status open_host_reader(wd_streamed *r, size_t stage_bytes, const wd_streamed_options *o,
                                  wd_err *err)
{
    wd_comm *comm = o->part->sharers;
    const wd_host_reader_options options = {.comm = comm,
                                            .experts = r->base.experts,
                                            .stages = r->base.stages,
                                            .layout = r->layout,
                                            .stage_bytes = stage_bytes,
                                            .ahead = o->slots + 1};
    if (comm->host_ranks > 1)
        r->base.host_bytes += wd_host_reader_share(comm->host_ranks, stage_bytes);
    if (r->dry) return WD_OK;
    WD_TRY(wd_host_reader_open(&r->host_reader, &options, err));
    if (!r->host_reader) return WD_OK;
    size_t bytes;
    void *memory = wd_host_reader_memory(r->host_reader, &bytes);
    WD_TRY(wd_host_register(r->device, memory, bytes, "teacher weights being read", err));
    r->registered = true;
    WD_TRY(wd_event_open(&r->sent[0], r->device, err));
    return start(r, follow, err);
}

/* A processor's copies are done at once: it has one staging. */
static wd_status open_reader(wd_streamed *r, const size_t file_bytes[WD_PLACED_STAGINGS],
                             size_t converting_bytes, wd_err *err)
{
    r->stagings = r->reads_host ? 1 : WD_PLACED_STAGINGS;
    for (int i = 0; i < r->stagings; i++) {
        r->staging_bytes[i] = r->reads_host ? converting_bytes : file_bytes[i];
        WD_TRY(wd_event_open(&r->sent[i], r->device, err));
        WD_TRY(wd_streamed_take_host(&r->staging[i], r, r->staging_bytes[i],
                                     "teacher weights being read", err));
    }
    WD_TRY(wd_file_reader_open(&r->reader, err));
    return r->dry ? WD_OK : start(r, read_ahead, err);
}

wd_status wd_streamed_open_disk(wd_streamed *r, const size_t file_bytes[WD_PLACED_STAGINGS],
                                size_t converting_bytes, const wd_streamed_options *o, wd_err *err)
{
    const wd_comm *comm = o->part ? o->part->sharers : NULL;
    if (comm) WD_TRY(open_host_reader(r, file_bytes[0], o, err));
    if (comm && comm->host_ranks > 1) return WD_OK;
    return open_reader(r, file_bytes, converting_bytes, err);
}

void wd_streamed_end_disk(wd_streamed *r)
{
    if (r->threaded) {
        pthread_mutex_lock(&r->lock);
        r->closing = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        if (r->host_reader) wd_host_reader_leave(r->host_reader);
        pthread_join(r->thread, NULL);
    }
    if (!r->host_reader) return;
    size_t bytes;
    wd_queue_wait(r->copies);
    if (r->registered) wd_host_unregister(r->device, wd_host_reader_memory(r->host_reader, &bytes));
    wd_host_reader_close(r->host_reader);
}

void wd_streamed_close_disk(wd_streamed *r)
{
    for (int i = 0; i < WD_PLACED_STAGINGS; i++) wd_event_close(r->sent[i]);
    for (int i = 0; i < r->stagings; i++) wd_streamed_give_host(r, r->staging[i]);
    wd_file_reader_close(r->reader);
}
