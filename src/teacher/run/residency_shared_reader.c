/* Stages are read from the files once for all ranks of a host.
 *
 * Data flow: sequence of stages, the same on all ranks (teacher/run/stage_order.h) -> a thread of
 * the first rank of the host reads them into a ring (job/comm/ring.h) -> every rank brings those
 * that it uses to its device, and passes the others. */
#include "core/clock.h"
#include "core/memory.h"
#include "teacher/run/residency_part.h"

enum { RING_BUFFERS = 2 }; /* one is read while the other is sent */

void wd_residency_part_note_wait(wd_residency_part *r)
{
    const double since = r->is_waiting && !r->is_reading ? wd_clock_s() : 0;
    if (r->ring) atomic_store(&r->sharers->waits_since[WD_WAIT_READER], since);
}

static void note_reading(wd_residency_part *r, bool reads)
{
    pthread_mutex_lock(&r->lock);
    r->is_reading = reads;
    wd_residency_part_note_wait(r);
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
        if (!to || !wd_residency_part_next_turn(&turn, r, &r->next_read)) break;
        status = read_stage(r, &turn, to, &err);
        if (status == WD_OK)
            wd_ring_filled(r->ring, n);
        else
            wd_ring_fail(r->ring, &err);
    }
    return NULL;
}

wd_status wd_residency_part_bring_read(wd_residency_part *r, wd_stage_buffer *b)
{
    const void *data;
    wd_stage_layout layout = r->layout[b->turn.expert][b->turn.stage];
    WD_TRY(wd_ring_await(&data, r->ring, b->turn.number, &b->error));
    /* wd_tensor.data is not const; this memory is only read */
    wd_stage_was_read(&layout, (char *)(uintptr_t)data);
    layout.pinned = true;
    wd_stage_buffer_launch(r, b, &layout);
    wd_event_record(r->sent[0], r->copies);
    return WD_OK;
}

void wd_residency_part_pass(wd_residency_part *r, const wd_stage_turn *turn)
{
    if (turn->wanted) wd_event_wait(r->sent[0]);
    wd_ring_done(r->ring, turn->number);
    atomic_store(&r->sharers->brought, turn->number + 1);
}

wd_status wd_residency_part_open_ring(wd_residency_part *r, size_t stage_bytes, wd_comm *sharers,
                                      wd_err *err)
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

void wd_residency_part_close_ring(wd_residency_part *r)
{
    size_t bytes;
    if (!r->ring) return;
    if (r->reading_threaded) pthread_join(r->reading_thread, NULL);
    if (r->registered) wd_host_unregister(r->device, wd_ring_whole(r->ring, &bytes));
    wd_ring_close(r->ring);
}
