/* One reader per host: see teacher/host_reader.h. */
#include "teacher/host_reader.h"

#include <pthread.h>

#include "core/clock.h"
#include "core/memory.h"
#include "dist/ring.h"

struct wd_host_reader {
    wd_host_reader_options options;
    wd_ring *ring;
    pthread_mutex_t lock;   /* of is_reading and waits */
    bool is_reading, waits; /* a file, this rank's thread; for a stage, the one that computes */
    bool threaded;          /* this is the rank that reads, its thread runs */
    pthread_t thread;
    wd_file_reader *files;
};

/* ---- reading ---- */

/* One of the two flags that tell what others see of this rank. */
static void note(wd_host_reader *r, bool *flag, bool is)
{
    pthread_mutex_lock(&r->lock);
    *flag = is;
    const double since = r->waits && !r->is_reading ? wd_clock_s() : 0;
    atomic_store(&r->options.comm->waits_since[WD_WAIT_READER], since);
    pthread_mutex_unlock(&r->lock);
}

void wd_host_reader_wait(wd_host_reader *r, bool waits)
{
    note(r, &r->waits, waits);
}

static wd_status read_file(wd_host_reader *r, const wd_stage_turn *turn, char *to, wd_err *err)
{
    note(r, &r->is_reading, true);
    const wd_stage_layout *layout = &r->options.layout[turn->expert][turn->stage];
    const wd_status status = wd_stage_read(to, layout, r->files, err);
    note(r, &r->is_reading, false);
    return status;
}

/* What is wanted may change until there is a buffer for it. */
static void *read_all(void *context)
{
    wd_host_reader *r = context;
    for (int64_t n = 0;; n++) {
        wd_stage_turn turn;
        wd_err err = {0};
        char *to = wd_ring_begin_fill(r->ring, n);
        if (!to || !wd_stage_order_next(&turn, r->options.order, WD_FOLLOWER_READS)) break;
        if (turn.read && read_file(r, &turn, to, &err)) {
            wd_ring_fail(r->ring, &err);
            break;
        }
        wd_ring_filled(r->ring, n);
    }
    return NULL;
}

/* ---- every rank ---- */

wd_status wd_host_reader_await(wd_stage_layout *layout, wd_host_reader *r,
                               const wd_stage_turn *turn, wd_err *err)
{
    const void *data;
    WD_TRY(wd_ring_await(&data, r->ring, turn->number, err));
    *layout = r->options.layout[turn->expert][turn->stage];
    /* a tensor's data is no const, though nobody writes this */
    wd_stage_was_read(layout, (char *)(uintptr_t)data);
    return WD_OK;
}

void wd_host_reader_done(wd_host_reader *reader, const wd_stage_turn *turn)
{
    wd_ring_done(reader->ring, turn->number);
    atomic_store(&reader->options.comm->brought, turn->number + 1);
}

/* ---- open and close ---- */

size_t wd_host_reader_share(int host_ranks, size_t stage_bytes)
{
    const size_t ranks = (size_t)host_ranks;
    return (wd_ring_memory(host_ranks, WD_HOST_READER_BUFFERS, stage_bytes) + ranks - 1) / ranks;
}

wd_status wd_host_reader_open(wd_host_reader **out, const wd_host_reader_options *options,
                              wd_err *err)
{
    wd_status status;
    wd_ring *ring;
    wd_host_reader *r;
    *out = NULL;
    WD_TRY(wd_ring_open(&ring, options->comm, WD_HOST_READER_BUFFERS, options->stage_bytes,
                        "teacher weights being read", err));
    if (!ring) return WD_OK;
    status = wd_alloc((void **)&r, 1, sizeof *r, "a reader", err);
    if (status != WD_OK) {
        wd_ring_close(ring);
        return status;
    }
    r->options = *options;
    r->ring = ring;
    pthread_mutex_init(&r->lock, NULL);
    const bool reads = options->comm->host_rank == 0;
    WD_TRY_OUT(wd_file_reader_open(&r->files, err));
    if (reads && pthread_create(&r->thread, NULL, read_all, r))
        WD_TRY_OUT(wd_fail(err, WD_OUT_OF_MEMORY, "no thread to read the teacher's weights"));
    r->threaded = reads;
    *out = r;
out:
    if (status != WD_OK) wd_host_reader_close(r);
    return status;
}

void *wd_host_reader_memory(const wd_host_reader *reader, size_t *bytes)
{
    return wd_ring_whole(reader->ring, bytes);
}

void wd_host_reader_leave(wd_host_reader *reader)
{
    wd_stage_order_leave(reader->options.order);
    wd_ring_leave(reader->ring);
}

void wd_host_reader_close(wd_host_reader *reader)
{
    if (!reader) return;
    wd_host_reader_leave(reader);
    if (reader->threaded) pthread_join(reader->thread, NULL);
    wd_ring_close(reader->ring);
    wd_file_reader_close(reader->files);
    pthread_mutex_destroy(&reader->lock);
    wd_free(reader);
}
