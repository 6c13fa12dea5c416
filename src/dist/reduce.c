/* Reduction in buckets: see dist/reduce.h.
 *
 * Buckets go through a ring of slots: posted (its copy is launched, the exchange waits for it),
 * added (the own piece is summed, the gathering is posted), placed (the copy back is launched).
 * Each of the three counts up bucket by bucket, so operations are posted in one order on all
 * ranks. A slot's next bucket need not wait for the copy back: it is copied out by the same
 * queue. */
#include "dist/reduce.h"

#include <assert.h>
#include <string.h>

#include "core/memory.h"

enum {
    SLOTS = 4,
    EXCHANGES = 2, /* under way before the oldest is waited for */
    BLOCK = 2048   /* elements that are summed at a time: they stay in the nearest cache */
};

typedef struct slot {
    char *bucket;            /* [pieces.bucket] staging: out, and with the sums back in */
    float *arrived;          /* [ranks, own piece] */
    size_t *at, *arrived_at; /* [ranks + 1] bytes */
    wd_event *copied;
    wd_ticket ticket;
    int64_t number; /* of the bucket */
    unsigned round;
    float *data; /* its bucket on the device */
} slot;

struct wd_reduce {
    wd_reduce_options options;
    wd_queue *copies; /* owned */
    wd_event *ready, *done;
    wd_queue *queue; /* borrowed: of the round */
    float *data;
    unsigned round;
    int64_t next; /* the bucket that is posted next, from the last to the first; -1: all are */
    int64_t posted, added, placed;
    float *sum; /* by_round: [share] of the rounds so far */
    slot slot[SLOTS];
};

/* ---- opening ---- */

static wd_status open_slot(slot *s, const wd_reduce_options *o, wd_device *device, wd_err *err)
{
    static const char what[] = "gradients on their way";
    const size_t ranks = (size_t)o->comm->ranks, ends = ranks + 1;
    const size_t arrived = ranks * (size_t)wd_pieces_piece_max(&o->pieces);
    WD_TRY(wd_alloc((void **)&s->bucket, (size_t)o->pieces.bucket, sizeof(float), what, err));
    WD_TRY(wd_alloc((void **)&s->arrived, arrived, sizeof(float), what, err));
    WD_TRY(wd_alloc((void **)&s->at, ends, sizeof *s->at, what, err));
    WD_TRY(wd_alloc((void **)&s->arrived_at, ends, sizeof *s->arrived_at, what, err));
    return wd_event_open(&s->copied, device, err);
}

static void close_slot(slot *s)
{
    wd_event_close(s->copied);
    wd_free(s->bucket);
    wd_free(s->arrived);
    wd_free(s->at);
    wd_free(s->arrived_at);
}

wd_status wd_reduce_open(wd_reduce **out, const wd_reduce_options *options, wd_device *device,
                         wd_err *err)
{
    assert(options->pieces.ranks == options->comm->ranks);
    wd_reduce *r;
    wd_status status;
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "gradients on their way", err));
    r->options = *options;
    r->next = -1;
    WD_TRY_OUT(wd_queue_open(&r->copies, device, err));
    WD_TRY_OUT(wd_event_open(&r->ready, device, err));
    WD_TRY_OUT(wd_event_open(&r->done, device, err));
    for (int i = 0; i < SLOTS; i++) WD_TRY_OUT(open_slot(&r->slot[i], options, device, err));
    if (options->by_round) {
        const int64_t share = wd_pieces_share(&options->pieces, options->comm->rank);
        WD_TRY_OUT(
            wd_alloc((void **)&r->sum, (size_t)share, sizeof(float), "sums of gradients", err));
    }
    *out = r;
out:
    if (status != WD_OK) wd_reduce_close(r);
    return status;
}

const wd_pieces *wd_reduce_pieces(const wd_reduce *reduce)
{
    return &reduce->options.pieces;
}

/* ---- the three steps of a bucket ---- */

static wd_range own_piece(const wd_reduce *r, const slot *s)
{
    return wd_pieces_piece(&r->options.pieces, s->number, r->options.comm->rank);
}

/* Where the own piece begins in the bucket. */
static int64_t own_begin(const wd_reduce *r, const slot *s)
{
    return own_piece(r, s).first - wd_pieces_bucket(&r->options.pieces, s->number).first;
}

static void lay_out(slot *s, const wd_reduce *r, size_t element_bytes)
{
    const wd_pieces *p = &r->options.pieces;
    const int64_t first = wd_pieces_bucket(p, s->number).first;
    const size_t own = (size_t)wd_range_count(own_piece(r, s)) * element_bytes;
    for (int rank = 0; rank <= p->ranks; rank++) {
        const int64_t begin = rank < p->ranks ? wd_pieces_piece(p, s->number, rank).first
                                              : wd_pieces_bucket(p, s->number).end;
        s->at[rank] = (size_t)(begin - first) * element_bytes;
        s->arrived_at[rank] = (size_t)rank * own;
    }
}

/* to [count] = or += each of the ranks' [count], in their order. */
static void add_ranks(float *restrict to, const float *restrict from, int64_t count, int ranks,
                      bool first)
{
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int64_t n = count - begin < BLOCK ? count - begin : BLOCK;
        for (int rank = 0; rank < ranks; rank++) {
            const float *part = from + rank * count + begin;
            if (first && rank == 0)
                memcpy(to + begin, part, (size_t)n * sizeof *to);
            else
                for (int64_t i = 0; i < n; i++) to[begin + i] += part[i];
        }
    }
}

/* The sum of the own piece, into its place in the staged bucket where it is the last round's. */
static void add_piece(wd_reduce *r, slot *s)
{
    const int64_t count = wd_range_count(own_piece(r, s));
    const int ranks = r->options.comm->ranks;
    float *staged = (float *)s->bucket + own_begin(r, s);
    if (!r->options.by_round) {
        add_ranks(staged, s->arrived, count, ranks, true);
        return;
    }
    float *sum = r->sum + wd_pieces_packed(&r->options.pieces, s->number, r->options.comm->rank);
    add_ranks(sum, s->arrived, count, ranks, s->round & WD_ROUND_FIRST);
    if (s->round & WD_ROUND_LAST) memcpy(staged, sum, (size_t)count * sizeof *sum);
}

static bool is_gathered(const wd_reduce *r, const slot *s)
{
    return s->round & WD_ROUND_LAST && !r->options.scatter;
}

static void add_oldest(wd_reduce *r)
{
    slot *s = &r->slot[r->added++ % SLOTS];
    wd_comm *comm = r->options.comm;
    wd_comm_wait(comm, s->ticket);
    add_piece(r, s);
    if (is_gathered(r, s))
        s->ticket = wd_comm_gather_all(comm, WD_LANE_GRADIENTS, s->bucket, s->at, NULL);
}

static void place_oldest(wd_reduce *r)
{
    if (r->placed == r->added) add_oldest(r);
    slot *s = &r->slot[r->placed++ % SLOTS];
    if (!(s->round & WD_ROUND_LAST)) return;
    int64_t begin = 0, count = wd_range_count(wd_pieces_bucket(&r->options.pieces, s->number));
    if (is_gathered(r, s)) {
        wd_comm_wait(r->options.comm, s->ticket);
    } else {
        begin = own_begin(r, s);
        count = wd_range_count(own_piece(r, s));
    }
    wd_queue_copy(r->copies, s->data + begin, (float *)s->bucket + begin,
                  (size_t)count * sizeof(float));
}

static void post(wd_reduce *r, int64_t bucket)
{
    while (r->posted - r->placed >= SLOTS) place_oldest(r);
    slot *s = &r->slot[r->posted++ % SLOTS];
    const wd_range range = wd_pieces_bucket(&r->options.pieces, bucket);
    s->number = bucket;
    s->round = r->round;
    s->data = r->data + range.first;
    lay_out(s, r, sizeof(float));
    wd_event_record(r->ready, r->queue);
    wd_event_wait_on(r->copies, r->ready);
    wd_queue_copy(r->copies, s->bucket, s->data, (size_t)wd_range_count(range) * sizeof(float));
    wd_event_record(s->copied, r->copies);
    s->ticket = wd_comm_exchange(r->options.comm, WD_LANE_GRADIENTS, s->arrived, s->arrived_at,
                                 s->bucket, s->at, s->copied);
    while (r->posted - r->added > EXCHANGES) add_oldest(r);
}

/* ---- a round ---- */

void wd_reduce_begin(wd_reduce *r, float *data, unsigned round, wd_queue *queue)
{
    assert(r->next < 0 && (r->options.by_round || round == (WD_ROUND_FIRST | WD_ROUND_LAST)));
    r->data = data;
    r->round = round;
    r->queue = queue;
    r->next = wd_pieces_buckets(&r->options.pieces) - 1;
}

void wd_reduce_ready(wd_reduce *r, int64_t first)
{
    while (r->next >= 0 && wd_pieces_bucket(&r->options.pieces, r->next).first >= first)
        post(r, r->next--);
}

/* Later work of the queue comes after all copies so far. */
static void join(wd_reduce *r, wd_queue *queue)
{
    wd_event_record(r->done, r->copies);
    wd_event_wait_on(queue, r->done);
}

void wd_reduce_finish(wd_reduce *r)
{
    wd_reduce_ready(r, 0);
    if (r->round & WD_ROUND_LAST)
        while (r->placed < r->posted) place_oldest(r);
    join(r, r->queue);
}

void wd_reduce_close(wd_reduce *r)
{
    if (!r) return;
    wd_queue_close(r->copies);
    wd_event_close(r->ready);
    wd_event_close(r->done);
    if (r->placed < r->posted) return; /* others may still write what they were promised */
    for (int i = 0; i < SLOTS; i++) close_slot(&r->slot[i]);
    wd_free(r->sum);
    wd_free(r);
}

/* ---- gathering ---- */

static void post_gather(wd_reduce *r, slot *s, char *data, size_t element_bytes)
{
    const wd_range own = own_piece(r, s);
    const size_t begin = (size_t)own_begin(r, s) * element_bytes;
    lay_out(s, r, element_bytes);
    wd_queue_copy(r->copies, s->bucket + begin, data + (size_t)own.first * element_bytes,
                  (size_t)wd_range_count(own) * element_bytes);
    wd_event_record(s->copied, r->copies);
    s->ticket = wd_comm_gather_all(r->options.comm, WD_LANE_GRADIENTS, s->bucket, s->at, s->copied);
}

static void place_gathered(wd_reduce *r, slot *s, char *data, size_t element_bytes)
{
    const wd_range range = wd_pieces_bucket(&r->options.pieces, s->number);
    wd_comm_wait(r->options.comm, s->ticket);
    wd_queue_copy(r->copies, data + (size_t)range.first * element_bytes, s->bucket,
                  (size_t)wd_range_count(range) * element_bytes);
}

void wd_reduce_gather(wd_reduce *r, void *data, size_t element_bytes, wd_queue *queue)
{
    const int64_t buckets = wd_pieces_buckets(&r->options.pieces);
    assert(r->next < 0 && r->placed == r->posted && element_bytes <= sizeof(float));
    wd_event_record(r->ready, queue);
    wd_event_wait_on(r->copies, r->ready);
    for (int64_t b = 0; b < buckets + SLOTS; b++) {
        slot *s = &r->slot[b % SLOTS];
        if (b >= SLOTS) place_gathered(r, s, data, element_bytes);
        if (b >= buckets) continue;
        s->number = b;
        post_gather(r, s, data, element_bytes);
    }
    join(r, queue);
}
