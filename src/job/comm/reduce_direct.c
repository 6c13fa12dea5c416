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
    float *arrived;      /* [a tier's operations, its ranks, a piece] device */
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
    char *arrived = (char *)d->arrived;
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

/* to = `before` (NULL: nothing), and then the members' pieces in their order, of which `own` is
 * this rank's; `arrived` [members, count] has the others'. The place of the own one there is where
 * sums of the first terms go. */
static void add_members(direct_reduce *d, const wd_reduce_tier *t, float *to, const float *before,
                        const float *own, float *arrived, int64_t count)
{
    const float *term[t->group.count + 1];
    int terms = 0;
    if (!count) return;
    if (before) term[terms++] = before;
    for (int i = 0; i < t->group.count; i++)
        term[terms++] = i == t->member ? own : arrived + i * count;
    add_terms(d->base.own, to, term, terms, arrived + t->member * count, count);
}

/* The sums of what a tier has exchanged, in their places in the bucket. */
static void add(direct_reduce *d, const wd_reduce_tier *t, char *bucket)
{
    float *arrived = d->arrived;
    for (int op = 0; op < t->ops; op++) {
        const wd_comm_parts parts = wd__reduce_parts(d->at, t, op);
        const int64_t count = (int64_t)(wd__comm_part_bytes(&parts, t->member) / sizeof *arrived);
        float *own = (float *)(void *)(bucket + wd__comm_part_begin(&parts, t->member));
        add_members(d, t, own, NULL, own, arrived, count);
        arrived += count * t->group.count;
    }
}

/* by_round: to the sum of the own piece, which in the last round goes to its place. */
static void add_round(direct_reduce *d, int64_t bucket)
{
    const wd_reduce *r = &d->base;
    const wd_range range = wd__reduce_own(r, bucket);
    float *own = r->data + range.first;
    float *sum = d->sum + wd_pieces_packed(&r->options.pieces, bucket, r->options.comm->rank);
    add_members(d, r->tier[0], r->round & WD_ROUND_LAST ? own : sum,
                r->round & WD_ROUND_FIRST ? NULL : sum, own, d->arrived, wd_range_count(range));
}

/* ---- a bucket ---- */

static void direct_post(wd_reduce *r, int64_t bucket)
{
    direct_reduce *d = (direct_reduce *)r;
    char *data = (char *)(r->data + wd__pieces_bucket(&r->options.pieces, bucket).first);
    wd__reduce_lay_out(d->at, &r->options.pieces, bucket, sizeof(float));
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
    const size_t piece = (size_t)wd__pieces_piece_max(&o->pieces) * sizeof(float);
    WD_TRY(wd_alloc((void **)&d, 1, sizeof *d, what, err));
    d->base.kind = &direct_kind;
    d->base.device = device;
    WD_TRY_OUT(wd_alloc((void **)&d->at, ranks + 1, sizeof *d->at, what, err));
    WD_TRY_OUT(wd_alloc((void **)&d->moves, 2 * ranks, sizeof *d->moves, what, err));
    WD_TRY_OUT(wd_device_alloc((void **)&d->arrived, device, ranks * piece, what, err));
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
