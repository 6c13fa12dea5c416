/* One reader per host: see teacher/host_reader.h. */
#include "teacher/host_reader.h"

#include <pthread.h>

#include "core/clock.h"
#include "core/memory.h"
#include "dist/ring.h"
#include "teacher/stage_read.h"

enum { SWEEPS = 8 }; /* that the sequence has room for */

/* A place in the sequence. */
typedef struct item {
    int expert, stage;
    bool wanted; /* by this rank */
    bool read;   /* for any */
} item;

struct wd_host_reader {
    wd_host_reader_options options;
    wd_ring *ring;
    pthread_mutex_t lock; /* of the sequence */
    pthread_cond_t changed;
    item *item; /* [items], by number modulo items */
    int64_t items;
    int64_t announced, end; /* numbers: behind what is announced, and what runs ahead of it */
    int64_t next, reading;  /* that is brought; read, if this rank reads */
    unsigned expected;      /* experts of what runs ahead */
    bool leaving;
    bool is_reading, waits; /* a file, this rank's thread; for a stage, the one that computes */
    bool reads, threaded;   /* this is the rank that reads, its thread runs */
    pthread_t thread;
    wd_file_reader *files;
};

static item *item_of(const wd_host_reader *r, int64_t number)
{
    return &r->item[number % r->items];
}

/* ---- reading ---- */

static wd_status read_stage(wd_host_reader *r, const wd_stage_layout *layout, char *to, wd_err *err)
{
    for (int i = 0; i < layout->tensors; i++) {
        if (!layout->entry[i]) continue;
        WD_TRY(wd_stage_read(to, r->files, layout->entry[i], err));
        to += wd_file_reader_room(wd_tensor_bytes(&layout->file[i]));
    }
    return WD_OK;
}

/* The next of the sequence; false: this rank leaves. */
static bool next_to_read(wd_host_reader *r, int64_t *number)
{
    pthread_mutex_lock(&r->lock);
    while (r->reading == r->end && !r->leaving) pthread_cond_wait(&r->changed, &r->lock);
    const bool goes_on = !r->leaving;
    *number = r->reading;
    pthread_mutex_unlock(&r->lock);
    return goes_on;
}

/* Whether it is still to be read; what comes later may be announced. */
static bool was_next(wd_host_reader *r, item *out)
{
    pthread_mutex_lock(&r->lock);
    *out = *item_of(r, r->reading++);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return out->read;
}

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

static wd_status read_file(wd_host_reader *r, const item *it, char *to, wd_err *err)
{
    note(r, &r->is_reading, true);
    const wd_status status = read_stage(r, &r->options.layout[it->expert][it->stage], to, err);
    note(r, &r->is_reading, false);
    return status;
}

static void *read_all(void *context)
{
    wd_host_reader *r = context;
    int64_t n;
    while (next_to_read(r, &n)) {
        item it;
        wd_err err = {0};
        char *to = wd_ring_begin_fill(r->ring, n);
        if (!to) break;
        if (was_next(r, &it) && read_file(r, &it, to, &err)) {
            wd_ring_fail(r->ring, &err);
            break;
        }
        wd_ring_filled(r->ring, n);
    }
    return NULL;
}

/* ---- the sequence ---- */

static void set_done(wd_host_reader *r, int64_t number)
{
    wd_ring_done(r->ring, number);
    atomic_store(&r->options.comm->brought, number + 1);
}

static int64_t passed(const wd_host_reader *r)
{
    return r->reads && r->reading < r->next ? r->reading : r->next;
}

/* Adds at most `most` stages of a sweep, but its first `skip`. */
static void append(wd_host_reader *r, wd_sweep_experts sweep, int64_t skip, int64_t most)
{
    for (int e = 0; e < r->options.experts; e++)
        for (int s = 0; sweep.all >> e & 1 && s < r->options.stages; s++) {
            if (!r->options.layout[e][s].tensors || skip-- > 0) continue;
            if (most-- <= 0) return;
            *item_of(r, r->end++) =
                (item){.expert = e, .stage = s, .wanted = sweep.own >> e & 1, .read = true};
        }
}

void wd_host_reader_begin(wd_host_reader *r, wd_sweep_experts sweep, unsigned next)
{
    const int64_t most = (int64_t)r->options.experts * r->options.stages;
    pthread_mutex_lock(&r->lock);
    while (r->end + 2 * most - passed(r) > r->items) pthread_cond_wait(&r->changed, &r->lock);
    const bool as_expected = sweep.all == r->expected;
    for (int64_t n = r->announced; n < r->end; n++) {
        item *it = item_of(r, n);
        it->read = as_expected;
        it->wanted = as_expected && sweep.own >> it->expert & 1;
    }
    append(r, sweep, as_expected ? r->end - r->announced : 0, most);
    r->announced = r->end;
    r->expected = next;
    append(r, (wd_sweep_experts){next, next}, 0, r->options.ahead);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool wd_host_reader_next(wd_reading *out, wd_host_reader *r)
{
    bool found = false;
    pthread_mutex_lock(&r->lock);
    while (!found && !r->leaving) {
        if (r->next == r->end) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        const item *it = item_of(r, r->next);
        *out = (wd_reading){.number = r->next, .expert = it->expert, .stage = it->stage};
        found = it->wanted;
        if (!found) set_done(r, r->next);
        r->next++;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

bool wd_host_reader_wants(wd_host_reader *r, int64_t number)
{
    pthread_mutex_lock(&r->lock);
    const bool wanted = item_of(r, number)->wanted;
    pthread_mutex_unlock(&r->lock);
    return wanted;
}

wd_status wd_host_reader_await(wd_stage_layout *layout, wd_host_reader *r,
                               const wd_reading *reading, wd_err *err)
{
    const void *data;
    WD_TRY(wd_ring_await(&data, r->ring, reading->number, err));
    uintptr_t at = (uintptr_t)data; /* a tensor's data is no const, though nobody writes this */
    *layout = r->options.layout[reading->expert][reading->stage];
    for (int i = 0; i < layout->tensors; i++) {
        if (!layout->entry[i]) continue;
        layout->file[i].data = wd_stage_read_place((void *)at, layout->entry[i]);
        at += wd_file_reader_room(wd_tensor_bytes(&layout->file[i]));
    }
    return WD_OK;
}

void wd_host_reader_done(wd_host_reader *reader, const wd_reading *reading)
{
    set_done(reader, reading->number);
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
    pthread_cond_init(&r->changed, NULL);
    r->items = SWEEPS * (int64_t)options->experts * options->stages;
    WD_TRY_OUT(
        wd_alloc((void **)&r->item, (size_t)r->items, sizeof *r->item, "stages to read", err));
    r->reads = options->comm->host_rank == 0;
    WD_TRY_OUT(wd_file_reader_open(&r->files, err));
    if (r->reads && pthread_create(&r->thread, NULL, read_all, r))
        WD_TRY_OUT(wd_fail(err, WD_OUT_OF_MEMORY, "no thread to read the teacher's weights"));
    r->threaded = r->reads;
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
    pthread_mutex_lock(&reader->lock);
    reader->leaving = true;
    pthread_cond_broadcast(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    wd_ring_leave(reader->ring);
}

void wd_host_reader_close(wd_host_reader *reader)
{
    if (!reader) return;
    wd_host_reader_leave(reader);
    if (reader->threaded) pthread_join(reader->thread, NULL);
    wd_ring_close(reader->ring);
    wd_file_reader_close(reader->files);
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    wd_free(reader->item);
    wd_free(reader);
}
