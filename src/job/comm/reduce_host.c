/* Reduction by way of host memory: see job/comm/reduce.h.
 *
 * Buckets go through a ring of slots, and each through the same stages: posted (its copy is
 * launched, the first exchange waits for it), then for each tier exchanged and added, then for each
 * tier, from the last to the first, gathered, and at the end placed (the copy back is launched).
 * How many buckets have passed each stage is counted, and which is advanced next follows from these
 * counts alone, so operations are posted in one order on all ranks. A slot's next bucket need not
 * wait for the copy back: it is copied out by the same queue. */
#include <assert.h>
#include <string.h>

#include "core/memory.h"
#include "job/comm/reduce_impl.h"

enum {
    SLOTS = 4,
    BLOCK = 2048 /* elements that are summed at a time: they stay in the nearest cache */
};

typedef struct slot {
    char *bucket;       /* [pieces.bucket] staging: out, and with the sums back in; room for F32 */
    char *arrived;      /* [a tier's operations, its ranks, a piece] */
    size_t *at;         /* [ranks + 1] bytes */
    size_t *arrived_at; /* [a tier's operations, its ranks + 1] bytes */
    wd_event *copied;
    wd_ticket *ticket; /* [hosts] of the stage it is in */
    int tickets;
    int64_t number; /* of the bucket */
    unsigned round;
    char *data; /* its bucket on the device */
} slot;

typedef struct host_reduce {
    wd_reduce base;
    int64_t passed[WD_REDUCE_STAGES + 1]; /* buckets that were posted, and that have passed each
                                           * stage */
    float *sum;                           /* by_round: [share] of the rounds so far */
    slot slot[SLOTS];
} host_reduce;

int wd__reduce_most_in(int stages)
{
    return SLOTS / stages;
}

/* Whether others may still write to what is there. */
static bool is_between(const host_reduce *r)
{
    return r->passed[r->base.stages] < r->passed[0];
}

/* ---- a tier's part of a bucket ---- */

/* Where the own piece begins in the bucket. */
static int64_t own_begin(const wd_reduce *r, const slot *s)
{
    return wd__reduce_own(r, s->number).first -
           wd__pieces_bucket(&r->options.pieces, s->number).first;
}

static void exchange(wd_reduce *r, slot *s, const wd_reduce_tier *t, wd_event *after)
{
    size_t arrived = 0, *at = s->arrived_at;
    for (int op = 0; op < t->ops; op++, at += t->group.count + 1) {
        const wd_comm_parts parts = wd__reduce_parts(s->at, t, op);
        const size_t own = wd__comm_part_bytes(&parts, t->member);
        for (int i = 0; i <= t->group.count; i++) at[i] = arrived + (size_t)i * own;
        arrived = at[t->group.count];
        s->ticket[op] =
            wd__comm_exchange_within(r->options.comm, WD_LANE_GRADIENTS, t->group, s->arrived,
                                     (wd_comm_parts){at, 1}, s->bucket, parts, after);
    }
    s->tickets = t->ops;
}

static void gather(wd_reduce *r, slot *s, const wd_reduce_tier *t, wd_event *after)
{
    for (int op = 0; op < t->ops; op++)
        s->ticket[op] = wd__comm_gather_within(r->options.comm, WD_LANE_GRADIENTS, t->group,
                                               s->bucket, wd__reduce_parts(s->at, t, op), after);
    s->tickets = t->ops;
}

static void wait(const wd_reduce *r, slot *s)
{
    for (int i = 0; i < s->tickets; i++) wd_comm_wait(r->options.comm, s->ticket[i]);
    s->tickets = 0;
}

/* to [n] = or += from [n] type. */
static void add_part(float *restrict to, const void *from, wd_dtype type, int64_t n, bool first)
{
    const float *wide = from;
    const uint16_t *narrow = from;
    if (first && type == WD_F32)
        memcpy(to, wide, (size_t)n * sizeof *to);
    else if (type == WD_F32)
        for (int64_t i = 0; i < n; i++) to[i] += wide[i];
    else if (first)
        for (int64_t i = 0; i < n; i++) to[i] = wd_bf16_to_f32(narrow[i]);
    else
        for (int64_t i = 0; i < n; i++) to[i] += wd_bf16_to_f32(narrow[i]);
}

/* to [count] type = sum [count]. */
static void store(void *to, const float *restrict sum, wd_dtype type, int64_t count)
{
    uint16_t *narrow = to;
    if (type == WD_F32)
        memcpy(to, sum, (size_t)count * sizeof *sum);
    else
        for (int64_t i = 0; i < count; i++) narrow[i] = wd_f32_to_bf16(sum[i]);
}

/* to [count] F32 = or += each of the ranks' [count] type, in their order. */
static void add_ranks(float *restrict to, const char *from, wd_dtype type, int64_t count, int ranks,
                      bool first)
{
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int64_t n = count - begin < BLOCK ? count - begin : BLOCK;
        for (int rank = 0; rank < ranks; rank++)
            add_part(to + begin, from + wd_dtype_size(type, rank * count + begin), type, n,
                     first && rank == 0);
    }
}

/* to [count] type = the sum of the ranks', in their order. */
static void sum_ranks(char *to, const char *from, wd_dtype type, int64_t count, int ranks)
{
    float sum[BLOCK];
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int64_t n = count - begin < BLOCK ? count - begin : BLOCK;
        for (int rank = 0; rank < ranks; rank++)
            add_part(sum, from + wd_dtype_size(type, rank * count + begin), type, n, rank == 0);
        store(to + wd_dtype_size(type, begin), sum, type, n);
    }
}

/* The sums of what a tier has exchanged, into their places in the staged bucket. */
static void add(const wd_reduce *r, slot *s, const wd_reduce_tier *t)
{
    const wd_dtype type = r->options.type;
    const char *arrived = s->arrived;
    for (int op = 0; op < t->ops; op++) {
        const wd_comm_parts parts = wd__reduce_parts(s->at, t, op);
        const size_t bytes = wd__comm_part_bytes(&parts, t->member);
        sum_ranks(s->bucket + wd__comm_part_begin(&parts, t->member), arrived, type,
                  (int64_t)(bytes / wd_dtype_bytes(type)), t->group.count);
        arrived += bytes * (size_t)t->group.count;
    }
}

/* by_round: to the sum of the own piece, which is staged where the round is the last. */
static void add_round(host_reduce *h, slot *s)
{
    const wd_reduce *r = &h->base;
    const int64_t count = wd_range_count(wd__reduce_own(r, s->number));
    const int rank = r->options.comm->rank;
    float *sum = h->sum + wd_pieces_packed(&r->options.pieces, s->number, rank);
    add_ranks(sum, s->arrived, r->options.type, count, r->options.comm->ranks,
              s->round & WD_ROUND_FIRST);
    if (s->round & WD_ROUND_LAST)
        store(s->bucket + wd__reduce_bytes(r, own_begin(r, s)), sum, r->options.type, count);
}

/* ---- the stages of a bucket ---- */

static void place(wd_reduce *r, const slot *s)
{
    int64_t begin = 0, count = wd_range_count(wd__pieces_bucket(&r->options.pieces, s->number));
    if (!(s->round & WD_ROUND_LAST)) return;
    if (!wd__reduce_gathers(r, s->round)) {
        begin = own_begin(r, s);
        count = wd_range_count(wd__reduce_own(r, s->number));
    }
    const size_t at = wd__reduce_bytes(r, begin);
    wd_queue_copy(r->own, s->data + at, s->bucket + at, wd__reduce_bytes(r, count));
}

/* The oldest bucket that is in this stage passes it. */
static void pass(host_reduce *h, int stage)
{
    wd_reduce *r = &h->base;
    if (h->passed[stage + 1] == h->passed[stage]) pass(h, stage - 1);
    slot *s = &h->slot[h->passed[stage + 1]++ % SLOTS];
    const int next = stage + 1;
    wait(r, s);
    if (stage < r->adds && r->options.by_round)
        add_round(h, s);
    else if (stage < r->adds)
        add(r, s, r->tier[stage]);
    if (next == r->stages)
        place(r, s);
    else if (next < r->adds)
        exchange(r, s, r->tier[next], NULL);
    else if (wd__reduce_gathers(r, s->round))
        gather(r, s, r->tier[next], NULL);
}

static void host_post(wd_reduce *r, int64_t bucket)
{
    host_reduce *h = (host_reduce *)r;
    const int last = r->stages - 1, most = wd__reduce_most_in(r->stages);
    while (h->passed[0] - h->passed[r->stages] >= SLOTS) pass(h, last);
    slot *s = &h->slot[h->passed[0]++ % SLOTS];
    const wd_range range = wd__pieces_bucket(&r->options.pieces, bucket);
    s->number = bucket;
    s->round = r->round;
    s->data = r->data + wd__reduce_bytes(r, range.first);
    wd__reduce_lay_out(s->at, &r->options.pieces, bucket, wd_dtype_bytes(r->options.type));
    wd_queue_copy(r->own, s->bucket, s->data, wd__reduce_bytes(r, wd_range_count(range)));
    wd_event_record(s->copied, r->own);
    exchange(r, s, r->tier[0], s->copied);
    for (int i = 0; i < last; i++)
        while (h->passed[i] - h->passed[i + 1] > most) pass(h, i);
}

static void host_finish(wd_reduce *r)
{
    host_reduce *h = (host_reduce *)r;
    while (is_between(h)) pass(h, r->stages - 1);
}

/* ---- gathering ---- */

static void post_gather(wd_reduce *r, slot *s, char *data, size_t element_bytes)
{
    const wd_range own = wd__reduce_own(r, s->number);
    const size_t begin = (size_t)own_begin(r, s) * element_bytes;
    wd__reduce_lay_out(s->at, &r->options.pieces, s->number, element_bytes);
    wd_queue_copy(r->own, s->bucket + begin, data + (size_t)own.first * element_bytes,
                  (size_t)wd_range_count(own) * element_bytes);
    wd_event_record(s->copied, r->own);
    gather(r, s, r->tier[r->adds], s->copied);
}

static void place_gathered(wd_reduce *r, slot *s, char *data, size_t element_bytes)
{
    const wd_range range = wd__pieces_bucket(&r->options.pieces, s->number);
    wait(r, s);
    wd_queue_copy(r->own, data + (size_t)range.first * element_bytes, s->bucket,
                  (size_t)wd_range_count(range) * element_bytes);
}

/* By hosts a bucket is gathered by the second tier while it is half through the slots. */
static void host_gather(wd_reduce *r, void *data, size_t element_bytes)
{
    host_reduce *h = (host_reduce *)r;
    const int64_t buckets = wd_pieces_buckets(&r->options.pieces);
    assert(!is_between(h));
    for (int64_t b = 0; b < buckets + SLOTS; b++) {
        slot *s = &h->slot[b % SLOTS], *half = &h->slot[(b + SLOTS / 2) % SLOTS];
        if (b >= SLOTS) place_gathered(r, s, data, element_bytes);
        if (b < buckets) {
            s->number = b;
            post_gather(r, s, data, element_bytes);
        }
        if (r->stages - r->adds == 1 || b < SLOTS / 2 || b - SLOTS / 2 >= buckets) continue;
        wait(r, half);
        gather(r, half, r->tier[r->stages - 1], NULL);
    }
}

/* ---- open and close ---- */

static wd_status open_slot(slot *s, const wd_reduce_options *o, wd_device *device, wd_err *err)
{
    static const char what[] = "gradients on their way";
    const size_t ranks = (size_t)o->comm->ranks, ends = ranks + 1;
    const size_t arrived = ranks * (size_t)wd__pieces_piece_max(&o->pieces);
    WD_TRY(wd_host_alloc((void **)&s->bucket, device, (size_t)o->pieces.bucket * sizeof(float),
                         what, err));
    WD_TRY(wd_alloc((void **)&s->arrived, arrived, wd_dtype_bytes(o->type), what, err));
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

/* What others may still write to is left as it is. */
static void host_close(wd_reduce *base)
{
    host_reduce *r = (host_reduce *)base;
    if (is_between(r)) return;
    for (int i = 0; i < SLOTS; i++) close_slot(&r->slot[i], base->device);
    wd_free(r->sum);
    wd_free(r);
}

static const wd_reduce_kind host_kind = {
    .post = host_post, .finish = host_finish, .gather = host_gather, .close = host_close};

wd_status wd__reduce_open_host(wd_reduce **out, const wd_reduce_options *options, wd_device *device,
                               wd_err *err)
{
    host_reduce *h;
    wd_status status;
    WD_TRY(wd_alloc((void **)&h, 1, sizeof *h, "gradients on their way", err));
    h->base.kind = &host_kind;
    h->base.device = device;
    for (int i = 0; i < SLOTS; i++) WD_TRY_OUT(open_slot(&h->slot[i], options, device, err));
    if (options->by_round) {
        const int64_t share = wd_pieces_share(&options->pieces, options->comm->rank);
        WD_TRY_OUT(
            wd_alloc((void **)&h->sum, (size_t)share, sizeof(float), "sums of gradients", err));
    }
    *out = &h->base;
out:
    if (status != WD_OK) host_close(&h->base);
    return status;
}
