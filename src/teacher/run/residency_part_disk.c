/* The stages of a part that come from the files: see teacher/run/residency_part.h. The part's
 * thread reads them, or, where ranks of a host share the part, one rank reads each stage for all of
 * them. */
#include "core/checked.h"
#include "core/clock.h"
#include "core/memory.h"
#include "teacher/run/residency_part.h"

/* ---- one reader for the ranks of a host ---- */

enum { RING_BUFFERS = 2 }; /* one is read while the other is sent */

void wd__residency_part_note_wait(wd_residency_part *r)
{
    const double since = r->is_waiting && !r->is_reading ? wd_clock_s() : 0;
    if (r->ring) atomic_store(&r->sharers->waits_since[WD_WAIT_READER], since);
}

static void note_reading(wd_residency_part *r, bool reads)
{
    pthread_mutex_lock(&r->lock);
    r->is_reading = reads;
    wd__residency_part_note_wait(r);
    pthread_mutex_unlock(&r->lock);
}

static wd_status read_stage(wd_residency_part *r, const wd_stage_turn *turn, char *to, wd_err *err)
{
    note_reading(r, true);
    const wd_stage_layout *layout = &r->layout[turn->expert][turn->stage];
    const wd_status status = wd_stage_read(to, layout, r->reader, err);
    note_reading(r, false);
    return status;
}

static void *read_all(void *context)
{
    wd_residency_part *r = context;
    wd_status status = WD_OK;
    for (int64_t n = 0; status == WD_OK; n++) {
        wd_stage_turn turn;
        wd_err err = {0};
        char *to = wd_ring_begin_fill(r->ring, n);
        if (!to || !wd__residency_part_next_turn(&turn, r, &r->next_read)) break;
        status = read_stage(r, &turn, to, &err);
        if (status == WD_OK)
            wd_ring_filled(r->ring, n);
        else
            wd_ring_fail(r->ring, &err);
    }
    return NULL;
}

wd_status wd__residency_part_bring_read(wd_residency_part *r, wd_stage_buffer *b)
{
    const void *data;
    wd_stage_layout layout = r->layout[b->turn.expert][b->turn.stage];
    WD_TRY(wd_ring_await(&data, r->ring, b->turn.number, &b->error));
    /* wd_tensor.data is not const; this memory is only read */
    wd_stage_was_read(&layout, (char *)(uintptr_t)data);
    layout.pinned = true;
    wd__stage_buffer_launch(r, b, &layout);
    wd_event_record(r->sent[0], r->copies);
    return WD_OK;
}

void wd__residency_part_pass(wd_residency_part *r, const wd_stage_turn *turn)
{
    if (turn->wanted) wd_event_wait(r->sent[0]);
    wd_ring_done(r->ring, turn->number);
    atomic_store(&r->sharers->brought, turn->number + 1);
}

/* Opens the ring, for stages of up to `stage_bytes`. All ranks of the job call it; a host of one
 * rank gets none. The first rank of a host begins to read. */
static wd_status open_ring(wd_residency_part *r, size_t stage_bytes, wd_comm *sharers, wd_err *err)
{
    const char *what = "teacher weights being read";
    const size_t here = (size_t)sharers->host_ranks;
    size_t bytes;
    r->sharers = sharers;
    if (here > 1) /* a rank counts its part */
        r->host_bytes +=
            (wd_ring_memory(sharers->host_ranks, RING_BUFFERS, stage_bytes) + here - 1) / here;
    if (r->dry) return WD_OK;
    WD_TRY(wd_ring_open(&r->ring, sharers, RING_BUFFERS, stage_bytes, what, err));
    if (!r->ring) return WD_OK;
    void *memory = wd_ring_whole(r->ring, &bytes);
    WD_TRY(wd_host_register(r->device, memory, bytes, what, err));
    r->registered = true;
    WD_TRY(wd_event_open(&r->sent[0], r->device, err));
    if (sharers->host_rank) return WD_OK;
    WD_TRY(wd_file_reader_open(&r->reader, err));
    r->next_read = 0;
    if (pthread_create(&r->reading_thread, NULL, read_all, r))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread to read the teacher's weights");
    r->reading_threaded = true;
    return WD_OK;
}

static void close_ring(wd_residency_part *r)
{
    size_t bytes;
    if (!r->ring) return;
    if (r->reading_threaded) pthread_join(r->reading_thread, NULL);
    if (r->registered) wd_host_unregister(r->device, wd_ring_whole(r->ring, &bytes));
    wd_ring_close(r->ring);
}

/* ---- stages from files ---- */

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
wd_status wd__residency_part_bring_file(wd_residency_part *r, wd_stage_buffer *s)
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
    wd__stage_buffer_launch(r, s, &layout);
    wd_event_record(r->sent[k], r->copies);
    return WD_OK;
}

wd_status wd__residency_part_open_disk(wd_residency_part *r, size_t reading_bytes,
                                       size_t converting_bytes, wd_comm *sharers, wd_err *err)
{
    if (sharers) WD_TRY(open_ring(r, reading_bytes, sharers, err));
    if (sharers && sharers->host_ranks > 1) return WD_OK;
    const size_t bytes = r->reads_host ? converting_bytes : reading_bytes;
    r->stagings =
        r->reads_host ? 1 : WD_PLACED_STAGINGS; /* a processor's copies are done at once */
    for (int i = 0; i < r->stagings; i++) {
        WD_TRY(wd_event_open(&r->sent[i], r->device, err));
        WD_TRY(wd__residency_part_take_host(&r->staging[i], r, bytes, "teacher weights being read",
                                            err));
    }
    return wd_file_reader_open(&r->reader, err);
}

void wd__residency_part_close_disk(wd_residency_part *r)
{
    close_ring(r);
    for (int i = 0; i < WD_PLACED_STAGINGS; i++) wd_event_close(r->sent[i]);
    for (int i = 0; i < r->stagings; i++) wd__residency_part_give_host(r, r->staging[i]);
    wd_file_reader_close(r->reader);
}
