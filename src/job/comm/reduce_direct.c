/* Reduction from device to device: see job/comm/reduce.h.
 *
 * A bucket's stages follow one another on one queue: what a tier's ranks send one another, the sum
 * of what came, then what is gathered. All is in its place in the array itself, but what comes from
 * others to be added: for that there is room for one bucket. So nothing is waited for, and what
 * would be kept for each of several buckets under way is kept once; of them the network could move
 * only one at a time anyway. */
#include "core/memory.h"
#include "dev/ops.h"
#include "job/comm/reduce_impl.h"

enum { TERMS = 6 }; /* that one launch of combine adds */

typedef struct direct_reduce {
    wd_reduce base;
    char *arrived;       /* [a tier's operations, its ranks, a piece] device */
    float *partial;      /* BF16 but by_round: [a piece] device: a sum in F32 */
    float *sum;          /* by_round: [share] device, of the rounds so far */
    size_t *at;          /* [ranks + 1] bytes */
    wd_peer_move *moves; /* [2 * ranks] */
    int count;           /* of moves */
} direct_reduce;

/* ---- what goes and comes ---- */

static void send(direct_reduce *d, int rank, const char *from, size_t bytes)
{
    d->moves[d->count++] = (wd_peer_move){.peer = rank, .from = from, .bytes = bytes};
}

static void receive(direct_reduce *d, int rank, void *to, size_t bytes)
{
    d->moves[d->count++] = (wd_peer_move){.peer = rank, .to = to, .bytes = bytes};
}

/* Does all moves as one; they are counted as the communicator counts what it does. */
static void exchange_moves(direct_reduce *d, const wd_reduce_tier *t)
{
    wd_reduce *r = &d->base;
    int64_t sent = 0;
    for (int i = 0; i < d->count; i++) sent += d->moves[i].from ? (int64_t)d->moves[i].bytes : 0;
    wd__comm_count(r->options.comm, WD_LANE_GRADIENTS, t->ops, sent);
    if (d->count) wd_peers_exchange(r->options.comm->peers, r->own, d->moves, d->count);
    d->count = 0;
}

/* Each rank of the tier gets its pieces of `bucket` from the others, in the order of members and
 * operations; the place of its own stays empty. */
static void exchange(direct_reduce *d, const wd_reduce_tier *t, char *bucket)
{
    char *arrived = d->arrived;
    for (int op = 0; op < t->ops; op++) {
        const wd_comm_parts parts = wd__reduce_parts(d->at, t, op);
        const size_t own = wd__comm_part_bytes(&parts, t->member);
        for (int i = 0; i < t->group.count; i++, arrived += own) {
            if (i == t->member) continue;
            const int rank = wd__group_rank(&t->group, i);
            send(d, rank, bucket + wd__comm_part_begin(&parts, i), wd__comm_part_bytes(&parts, i));
            receive(d, rank, arrived, own);
        }
    }
    exchange_moves(d, t);
}

/* Each rank of the tier has its pieces of `bucket`, and gets the others'. */
static void gather(direct_reduce *d, const wd_reduce_tier *t, char *bucket)
{
    for (int op = 0; op < t->ops; op++) {
        const wd_comm_parts parts = wd__reduce_parts(d->at, t, op);
        for (int i = 0; i < t->group.count; i++) {
            if (i == t->member) continue;
            const int rank = wd__group_rank(&t->group, i);
            send(d, rank, bucket + wd__comm_part_begin(&parts, t->member),
                 wd__comm_part_bytes(&parts, t->member));
            receive(d, rank, bucket + wd__comm_part_begin(&parts, i),
                    wd__comm_part_bytes(&parts, i));
        }
    }
    exchange_moves(d, t);
}

/* ---- sums ---- */

/* to [count] = all terms, in their order. `partial` [count]: room for sums of the first of them. */
static void add_terms(wd_queue *queue, float *to, const float *const *term, int terms,
                      float *partial, int64_t count)
{
    int done = 0;
    while (done < terms) {
        wd_combine_args args = {.count = count};
        if (done) args.x[args.terms++] = partial;
        while (done < terms && args.terms < TERMS) args.x[args.terms++] = term[done++];
        for (int i = 0; i < args.terms; i++) args.factor[i] = 1;
        args.y = done < terms ? partial : to;
        wd_op_combine(queue, &args);
    }
}

/* The members' pieces of one operation of a tier. */
typedef struct members {
    const wd_reduce_tier *tier;
    char *own;     /* this rank's, in the bucket */
    char *arrived; /* [members, count] the others'; the own place there is free */
    int64_t count;
} members;

static const void *member(const members *m, int i, size_t bytes)
{
    return i == m->tier->member ? m->own : m->arrived + (size_t)i * bytes;
}

/* to = `before` (NULL: nothing), and then the members' pieces in their order. Sums of the first
 * terms go to the free place. */
static void add_members(direct_reduce *d, const members *m, float *to, const float *before)
{
    const int count = m->tier->group.count;
    const size_t bytes = (size_t)m->count * sizeof *to;
    const float *term[count + 1];
    int terms = 0;
    if (before) term[terms++] = before;
    for (int i = 0; i < count; i++) term[terms++] = member(m, i, bytes);
    add_terms(d->base.own, to, term, terms,
              (float *)(void *)(m->arrived + (size_t)m->tier->member * bytes), m->count);
}

/* The same of pieces in BF16, one by one, with the same order of sums. */
static void widen_members(direct_reduce *d, const members *m, float *to, bool adds)
{
    for (int i = 0; i < m->tier->group.count; i++)
        wd_op_strided_copy(
            d->base.own,
            &(wd_strided_copy_args){.to = to,
                                    .from = member(m, i, (size_t)m->count * sizeof(uint16_t)),
                                    .to_type = WD_F32,
                                    .from_type = WD_BF16,
                                    .ndim = 1,
                                    .dim = {m->count},
                                    .to_stride = {1},
                                    .from_stride = {1},
                                    .alpha = 1,
                                    .beta = adds || i > 0 ? 1 : 0});
}

static void round_sum(direct_reduce *d, const members *m, const float *sum)
{
    wd_op_cast(
        d->base.own,
        &(wd_cast_args){
            .to = m->own, .from = sum, .to_type = WD_BF16, .from_type = WD_F32, .count = m->count});
}

/* The sums of what a tier has exchanged, in their places in the bucket. */
static void add(direct_reduce *d, const wd_reduce_tier *t, char *bucket)
{
    const wd_dtype type = d->base.options.type;
    members m = {.tier = t, .arrived = d->arrived};
    for (int op = 0; op < t->ops; op++) {
        const wd_comm_parts parts = wd__reduce_parts(d->at, t, op);
        const size_t bytes = wd__comm_part_bytes(&parts, t->member);
        m.count = (int64_t)(bytes / wd_dtype_bytes(type));
        m.own = bucket + wd__comm_part_begin(&parts, t->member);
        if (m.count && type == WD_F32) {
            add_members(d, &m, (float *)(void *)m.own, NULL);
        } else if (m.count) {
            widen_members(d, &m, d->partial, false);
            round_sum(d, &m, d->partial);
        }
        m.arrived += bytes * (size_t)t->group.count;
    }
}

/* by_round: to the sum of the own piece, which in the last round goes to its place. */
static void add_round(direct_reduce *d, int64_t bucket)
{
    const wd_reduce *r = &d->base;
    const wd_range range = wd__reduce_own(r, bucket);
    const bool first = r->round & WD_ROUND_FIRST, last = r->round & WD_ROUND_LAST;
    float *sum = d->sum + wd_pieces_packed(&r->options.pieces, bucket, r->options.comm->rank);
    const members m = {.tier = r->tier[0],
                       .own = r->data + wd__reduce_bytes(r, range.first),
                       .arrived = d->arrived,
                       .count = wd_range_count(range)};
    if (!m.count) return;
    if (r->options.type == WD_F32) {
        add_members(d, &m, last ? (float *)(void *)m.own : sum, first ? NULL : sum);
        return;
    }
    widen_members(d, &m, sum, !first);
    if (last) round_sum(d, &m, sum);
}

/* ---- a bucket ---- */

static void direct_post(wd_reduce *r, int64_t bucket)
{
    direct_reduce *d = (direct_reduce *)r;
    const int64_t begin = wd__pieces_bucket(&r->options.pieces, bucket).first;
    char *data = r->data + wd__reduce_bytes(r, begin);
    wd__reduce_lay_out(d->at, &r->options.pieces, bucket, wd_dtype_bytes(r->options.type));
    for (int i = 0; i < r->adds; i++) {
        exchange(d, r->tier[i], data);
        if (r->options.by_round)
            add_round(d, bucket);
        else
            add(d, r->tier[i], data);
    }
    for (int i = r->adds; i < r->stages && wd__reduce_gathers(r, r->round); i++)
        gather(d, r->tier[i], data);
}

/* Nothing to wait for: all work is on the queue, which keeps its order. */
static void direct_finish(wd_reduce *r)
{
    (void)r;
}

static void direct_gather(wd_reduce *r, void *data, size_t element_bytes)
{
    direct_reduce *d = (direct_reduce *)r;
    const wd_pieces *p = &r->options.pieces;
    for (int64_t b = 0; b < wd_pieces_buckets(p); b++) {
        wd__reduce_lay_out(d->at, p, b, element_bytes);
        for (int i = r->adds; i < r->stages; i++)
            gather(d, r->tier[i],
                   (char *)data + (size_t)wd__pieces_bucket(p, b).first * element_bytes);
    }
}

/* ---- open and close ---- */

static void direct_close(wd_reduce *r)
{
    direct_reduce *d = (direct_reduce *)r;
    wd_device_free(r->device, d->arrived);
    wd_device_free(r->device, d->partial);
    wd_device_free(r->device, d->sum);
    wd_free(d->at);
    wd_free(d->moves);
    wd_free(d);
}

static const wd_reduce_kind direct_kind = {
    .post = direct_post, .finish = direct_finish, .gather = direct_gather, .close = direct_close};

wd_status wd__reduce_open_direct(wd_reduce **out, const wd_reduce_options *o, wd_device *device,
                                 wd_err *err)
{
    static const char what[] = "gradients on their way";
    direct_reduce *d;
    wd_status status;
    const size_t ranks = (size_t)o->comm->ranks;
    const int64_t piece = wd__pieces_piece_max(&o->pieces);
    WD_TRY(wd_alloc((void **)&d, 1, sizeof *d, what, err));
    d->base.kind = &direct_kind;
    d->base.device = device;
    WD_TRY_OUT(wd_alloc((void **)&d->at, ranks + 1, sizeof *d->at, what, err));
    WD_TRY_OUT(wd_alloc((void **)&d->moves, 2 * ranks, sizeof *d->moves, what, err));
    WD_TRY_OUT(wd_device_alloc((void **)&d->arrived, device, ranks * wd_dtype_size(o->type, piece),
                               what, err));
    if (o->type == WD_BF16 && !o->by_round)
        WD_TRY_OUT(wd_device_alloc((void **)&d->partial, device, (size_t)piece * sizeof(float),
                                   what, err));
    if (o->by_round) {
        const size_t share = (size_t)wd_pieces_share(&o->pieces, o->comm->rank);
        WD_TRY_OUT(wd_device_alloc((void **)&d->sum, device, share * sizeof(float),
                                   "sums of gradients", err));
    }
    *out = &d->base;
out:
    if (status != WD_OK) direct_close(&d->base);
    return status;
}
