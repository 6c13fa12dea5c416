/* Reduction in buckets: see dist/reduce.h.
 *
 * Buckets go through a ring of slots, and each through the same stages: posted (its copy is
 * launched, the first exchange waits for it), then for each tier exchanged and added, then for each
 * tier, from the last to the first, gathered, and at the end placed (the copy back is launched).
 * How many buckets have passed each stage is counted, and which is advanced next follows from these
 * counts alone, so operations are posted in one order on all ranks. A slot's next bucket need not
 * wait for the copy back: it is copied out by the same queue.
 *
 * A tier is a group of ranks, and the pieces of the bucket that each of them is to have of the
 * group's. Flat, there is one: all ranks, and each has its own piece. By hosts the first are the
 * ranks of a host: the l-th has the l-th piece of every host's, which are not neighbours in the
 * bucket, so each host's pieces are an operation; the second are the l-th ranks of all hosts. */
#include "dist/reduce.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"

enum {
    SLOTS = 4,
    BLOCK = 2048, /* elements that are summed at a time: they stay in the nearest cache */
    TIERS = 2,
    STAGES = 2 * TIERS
};

/* Piece i of operation o is [at[o * op_step + first + i * step], ...) of a bucket's `at`. */
typedef struct tier {
    wd_group group;
    int ops, op_step, first, step, member;
} tier;

typedef struct slot {
    char *bucket;       /* [pieces.bucket] staging: out, and with the sums back in */
    float *arrived;     /* [a tier's operations, its ranks, a piece] */
    size_t *at;         /* [ranks + 1] bytes */
    size_t *arrived_at; /* [a tier's operations, its ranks + 1] bytes */
    wd_event *copied;
    wd_ticket *ticket; /* [hosts] of the stage it is in */
    int tickets;
    int64_t number; /* of the bucket */
    unsigned round;
    float *data; /* its bucket on the device */
} slot;

struct wd_reduce {
    wd_reduce_options options;
    wd_device *device; /* borrowed */
    wd_queue *copies;  /* owned */
    wd_event *ready, *done;
    wd_queue *queue; /* borrowed: of the round */
    float *data;
    unsigned round;
    int64_t next; /* the bucket that is posted next, from the last to the first; -1: all are */
    tier flat, by_host[TIERS];
    const tier *tier[STAGES]; /* of each stage: those that add, then those that gather */
    int adds, stages;
    int64_t passed[STAGES + 1]; /* buckets that were posted, and that have passed each stage */
    float *sum; /* by_round: [share] of the rounds so far */
    slot slot[SLOTS];
};

/* ---- opening ---- */

static wd_status open_slot(slot *s, const wd_reduce_options *o, wd_device *device, wd_err *err)
{
    static const char what[] = "gradients on their way";
    const size_t ranks = (size_t)o->comm->ranks, ends = ranks + 1;
    const size_t arrived = ranks * (size_t)wd_pieces_piece_max(&o->pieces);
    WD_TRY(wd_host_alloc((void **)&s->bucket, device, (size_t)o->pieces.bucket * sizeof(float),
                         what, err));
    WD_TRY(wd_alloc((void **)&s->arrived, arrived, sizeof(float), what, err));
    WD_TRY(wd_alloc((void **)&s->at, ends, sizeof *s->at, what, err));
    const size_t hosts = (size_t)o->comm->hosts;
    WD_TRY(wd_alloc((void **)&s->arrived_at, hosts + ends, sizeof *s->arrived_at, what, err));
    WD_TRY(wd_alloc((void **)&s->ticket, hosts, sizeof *s->ticket, what, err));
    return wd_event_open(&s->copied, device, err);
}

static void close_slot(slot *s, wd_device *device)
{
    wd_event_close(s->copied);
    wd_host_free(device, s->bucket);
    wd_free(s->arrived);
    wd_free(s->at);
    wd_free(s->arrived_at);
    wd_free(s->ticket);
}

/* By hosts, and then through two tiers, or flat. */
static int tiers_of(const wd_comm *c)
{
    return c->in_blocks && c->hosts > 1 && c->host_ranks > 1 ? TIERS : 1;
}

static int adds_of(const wd_reduce_options *o)
{
    return o->by_round ? 1 : tiers_of(o->comm);
}

/* Buckets that may be in one of so many stages. */
static int most_in(int stages)
{
    return SLOTS / stages;
}

double wd_reduce_left(const wd_reduce_options *o)
{
    const int most = most_in(adds_of(o) + tiers_of(o->comm));
    return fmin(1, (double)most / (double)wd_pieces_buckets(&o->pieces));
}

/* Whose sums and pieces go by which ranks. */
static void choose_tiers(wd_reduce *r)
{
    const wd_comm *c = r->options.comm;
    const int near = c->host_ranks;
    r->flat = (tier){.group = {0, 1, c->ranks}, .ops = 1, .step = 1, .member = c->rank};
    r->by_host[0] = (tier){.group = {c->host * near, 1, near},
                           .ops = c->hosts,
                           .op_step = near,
                           .step = 1,
                           .member = c->host_rank};
    r->by_host[1] = (tier){.group = {c->host_rank, near, c->hosts},
                           .ops = 1,
                           .first = c->host_rank,
                           .step = near,
                           .member = c->host};
    const int tiers = tiers_of(c);
    const tier *all = tiers > 1 ? r->by_host : &r->flat;
    r->adds = adds_of(&r->options);
    r->stages = r->adds + tiers;
    for (int i = 0; i < r->adds; i++) r->tier[i] = r->options.by_round ? &r->flat : &all[i];
    for (int i = 0; i < tiers; i++) r->tier[r->adds + i] = &all[tiers - 1 - i];
}

wd_status wd_reduce_open(wd_reduce **out, const wd_reduce_options *options, wd_device *device,
                         wd_err *err)
{
    assert(options->pieces.ranks == options->comm->ranks);
    wd_reduce *r;
    wd_status status;
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "gradients on their way", err));
    r->options = *options;
    r->device = device;
    r->next = -1;
    choose_tiers(r);
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

/* ---- a tier's part of a bucket ---- */

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
    for (int rank = 0; rank <= p->ranks; rank++) {
        const int64_t begin = rank < p->ranks ? wd_pieces_piece(p, s->number, rank).first
                                              : wd_pieces_bucket(p, s->number).end;
        s->at[rank] = (size_t)(begin - first) * element_bytes;
    }
}

static wd_parts parts_of(const slot *s, const tier *t, int op)
{
    return (wd_parts){s->at + op * t->op_step + t->first, t->step};
}

static void exchange(wd_reduce *r, slot *s, const tier *t, wd_event *after)
{
    size_t arrived = 0, *at = s->arrived_at;
    for (int op = 0; op < t->ops; op++, at += t->group.count + 1) {
        const wd_parts parts = parts_of(s, t, op);
        const size_t own = wd_part_bytes(&parts, t->member);
        for (int i = 0; i <= t->group.count; i++) at[i] = arrived + (size_t)i * own;
        arrived = at[t->group.count];
        s->ticket[op] =
            wd_comm_exchange_within(r->options.comm, WD_LANE_GRADIENTS, t->group, s->arrived,
                                    (wd_parts){at, 1}, s->bucket, parts, after);
    }
    s->tickets = t->ops;
}

static void gather(wd_reduce *r, slot *s, const tier *t, wd_event *after)
{
    for (int op = 0; op < t->ops; op++)
        s->ticket[op] =
            wd_comm_gather_within(r->options.comm, WD_LANE_GRADIENTS, t->group, s->bucket,
                                  parts_of(s, t, op), after);
    s->tickets = t->ops;
}

static void wait(const wd_reduce *r, slot *s)
{
    for (int i = 0; i < s->tickets; i++) wd_comm_wait(r->options.comm, s->ticket[i]);
    s->tickets = 0;
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

/* The sums of what a tier has exchanged, into their places in the staged bucket. */
static void add(slot *s, const tier *t)
{
    const float *arrived = s->arrived;
    for (int op = 0; op < t->ops; op++) {
        const wd_parts parts = parts_of(s, t, op);
        const int64_t count = (int64_t)(wd_part_bytes(&parts, t->member) / sizeof *arrived);
        float *staged = (float *)(s->bucket + wd_part_begin(&parts, t->member));
        add_ranks(staged, arrived, count, t->group.count, true);
        arrived += count * t->group.count;
    }
}

/* by_round: to the sum of the own piece, which is staged where the round is the last. */
static void add_round(wd_reduce *r, slot *s)
{
    const int64_t count = wd_range_count(own_piece(r, s));
    const int rank = r->options.comm->rank;
    float *sum = r->sum + wd_pieces_packed(&r->options.pieces, s->number, rank);
    add_ranks(sum, s->arrived, count, r->options.comm->ranks, s->round & WD_ROUND_FIRST);
    if (s->round & WD_ROUND_LAST)
        memcpy((float *)s->bucket + own_begin(r, s), sum, (size_t)count * sizeof *sum);
}

/* ---- the stages of a bucket ---- */

static bool is_gathered(const wd_reduce *r, const slot *s)
{
    return s->round & WD_ROUND_LAST && !r->options.scatter;
}

static void place(wd_reduce *r, const slot *s)
{
    int64_t begin = 0, count = wd_range_count(wd_pieces_bucket(&r->options.pieces, s->number));
    if (!(s->round & WD_ROUND_LAST)) return;
    if (!is_gathered(r, s)) {
        begin = own_begin(r, s);
        count = wd_range_count(own_piece(r, s));
    }
    wd_queue_copy(r->copies, s->data + begin, (float *)s->bucket + begin,
                  (size_t)count * sizeof(float));
}

/* The oldest bucket that is in this stage passes it. */
static void pass(wd_reduce *r, int stage)
{
    if (r->passed[stage + 1] == r->passed[stage]) pass(r, stage - 1);
    slot *s = &r->slot[r->passed[stage + 1]++ % SLOTS];
    const int next = stage + 1;
    wait(r, s);
    if (stage < r->adds && r->options.by_round)
        add_round(r, s);
    else if (stage < r->adds)
        add(s, r->tier[stage]);
    if (next == r->stages)
        place(r, s);
    else if (next < r->adds)
        exchange(r, s, r->tier[next], NULL);
    else if (is_gathered(r, s))
        gather(r, s, r->tier[next], NULL);
}

static void post(wd_reduce *r, int64_t bucket)
{
    const int last = r->stages - 1, most = most_in(r->stages);
    while (r->passed[0] - r->passed[r->stages] >= SLOTS) pass(r, last);
    slot *s = &r->slot[r->passed[0]++ % SLOTS];
    const wd_range range = wd_pieces_bucket(&r->options.pieces, bucket);
    s->number = bucket;
    s->round = r->round;
    s->data = r->data + range.first;
    lay_out(s, r, sizeof(float));
    wd_event_record(r->ready, r->queue);
    wd_event_wait_on(r->copies, r->ready);
    wd_queue_copy(r->copies, s->bucket, s->data, (size_t)wd_range_count(range) * sizeof(float));
    wd_event_record(s->copied, r->copies);
    exchange(r, s, r->tier[0], s->copied);
    for (int i = 0; i < last; i++)
        while (r->passed[i] - r->passed[i + 1] > most) pass(r, i);
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
        while (r->passed[r->stages] < r->passed[0]) pass(r, r->stages - 1);
    join(r, r->queue);
}

void wd_reduce_close(wd_reduce *r)
{
    if (!r) return;
    wd_queue_close(r->copies);
    wd_event_close(r->ready);
    wd_event_close(r->done);
    if (r->passed[r->stages] < r->passed[0]) return; /* others may still write to what is there */
    for (int i = 0; i < SLOTS; i++) close_slot(&r->slot[i], r->device);
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
    gather(r, s, r->tier[r->adds], s->copied);
}

static void place_gathered(wd_reduce *r, slot *s, char *data, size_t element_bytes)
{
    const wd_range range = wd_pieces_bucket(&r->options.pieces, s->number);
    wait(r, s);
    wd_queue_copy(r->copies, data + (size_t)range.first * element_bytes, s->bucket,
                  (size_t)wd_range_count(range) * element_bytes);
}

/* By hosts a bucket is gathered by the second tier while it is half through the slots. */
void wd_reduce_gather(wd_reduce *r, void *data, size_t element_bytes, wd_queue *queue)
{
    const int64_t buckets = wd_pieces_buckets(&r->options.pieces);
    assert(r->next < 0 && r->passed[r->stages] == r->passed[0] && element_bytes <= sizeof(float));
    wd_event_record(r->ready, queue);
    wd_event_wait_on(r->copies, r->ready);
    for (int64_t b = 0; b < buckets + SLOTS; b++) {
        slot *s = &r->slot[b % SLOTS], *half = &r->slot[(b + SLOTS / 2) % SLOTS];
        if (b >= SLOTS) place_gathered(r, s, data, element_bytes);
        if (b < buckets) {
            s->number = b;
            post_gather(r, s, data, element_bytes);
        }
        if (r->stages - r->adds == 1 || b < SLOTS / 2 || b - SLOTS / 2 >= buckets) continue;
        wait(r, half);
        gather(r, half, r->tier[r->stages - 1], NULL);
    }
    join(r, queue);
}
