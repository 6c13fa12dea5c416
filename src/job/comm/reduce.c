/* Reduction in buckets: see job/comm/reduce.h; what all ways have in common. */
#include <assert.h>
#include <math.h>

#include "job/comm/reduce_impl.h"

/* ---- who adds what ---- */

/* By hosts, and then through two tiers, or flat. */
static int tiers_of(const wd_comm *c)
{
    return c->in_blocks && c->hosts > 1 && c->host_ranks > 1 ? WD_REDUCE_TIERS : 1;
}

static int adds_of(const wd_reduce_options *o)
{
    return o->by_round ? 1 : tiers_of(o->comm);
}

double wd_reduce_unsent_share(const wd_reduce_options *o)
{
    if (o->comm->peers) return 1;
    const int most = wd__reduce_most_in(adds_of(o) + tiers_of(o->comm));
    return fmin(1, (double)most / (double)wd_pieces_buckets(&o->pieces));
}

/* Whose sums and pieces go by which ranks. */
static void choose_tiers(wd_reduce *r)
{
    const wd_comm *c = r->options.comm;
    const int near = c->host_ranks;
    r->flat = (wd_reduce_tier){.group = {0, 1, c->ranks}, .ops = 1, .step = 1, .member = c->rank};
    r->by_host[0] = (wd_reduce_tier){.group = {c->host * near, 1, near},
                                     .ops = c->hosts,
                                     .op_step = near,
                                     .step = 1,
                                     .member = c->host_rank};
    r->by_host[1] = (wd_reduce_tier){.group = {c->host_rank, near, c->hosts},
                                     .ops = 1,
                                     .first = c->host_rank,
                                     .step = near,
                                     .member = c->host};
    const int tiers = tiers_of(c);
    const wd_reduce_tier *all = tiers > 1 ? r->by_host : &r->flat;
    r->adds = adds_of(&r->options);
    r->stages = r->adds + tiers;
    for (int i = 0; i < r->adds; i++) r->tier[i] = r->options.by_round ? &r->flat : &all[i];
    for (int i = 0; i < tiers; i++) r->tier[r->adds + i] = &all[tiers - 1 - i];
}

void wd__reduce_lay_out(size_t *at, const wd_pieces *p, int64_t bucket, size_t element_bytes)
{
    const wd_range whole = wd__pieces_bucket(p, bucket);
    for (int rank = 0; rank <= p->ranks; rank++) {
        const int64_t begin = rank < p->ranks ? wd_pieces_piece(p, bucket, rank).first : whole.end;
        at[rank] = (size_t)(begin - whole.first) * element_bytes;
    }
}

wd_range wd__reduce_own(const wd_reduce *r, int64_t bucket)
{
    return wd_pieces_piece(&r->options.pieces, bucket, r->options.comm->rank);
}

/* ---- open and close ---- */

void wd_reduce_close(wd_reduce *r)
{
    if (!r) return;
    wd_queue_close(r->own);
    wd_event_close(r->ready);
    wd_event_close(r->done);
    r->kind->close(r);
}

wd_status wd_reduce_open(wd_reduce **out, const wd_reduce_options *options, wd_device *device,
                         wd_err *err)
{
    assert(options->pieces.ranks == options->comm->ranks);
    assert(options->type == WD_F32 || options->type == WD_BF16);
    wd_reduce *r;
    wd_status status;
    WD_TRY(options->comm->peers ? wd__reduce_open_direct(&r, options, device, err)
                                : wd__reduce_open_host(&r, options, device, err));
    r->options = *options;
    r->device = device;
    r->next = -1;
    choose_tiers(r);
    WD_TRY_OUT(wd_queue_open(&r->own, device, err));
    WD_TRY_OUT(wd_event_open(&r->ready, device, err));
    WD_TRY_OUT(wd_event_open(&r->done, device, err));
    *out = r;
out:
    if (status != WD_OK) wd_reduce_close(r);
    return status;
}

const wd_pieces *wd__reduce_pieces(const wd_reduce *reduce)
{
    return &reduce->options.pieces;
}

/* ---- a round ---- */

/* Later work of the reduction comes after all work of the queue so far. */
static void follow(wd_reduce *r, wd_queue *queue)
{
    wd_event_record(r->ready, queue);
    wd_event_wait_on(r->own, r->ready);
}

/* Later work of the queue comes after all work of the reduction so far. */
static void join(wd_reduce *r, wd_queue *queue)
{
    wd_event_record(r->done, r->own);
    wd_event_wait_on(queue, r->done);
}

void wd_reduce_begin(wd_reduce *r, void *data, unsigned round, wd_queue *queue)
{
    assert(r->next < 0 && (r->options.by_round || round == (WD_ROUND_FIRST | WD_ROUND_LAST)));
    r->data = data;
    r->round = round;
    r->queue = queue;
    r->next = wd_pieces_buckets(&r->options.pieces) - 1;
}

void wd_reduce_ready(wd_reduce *r, int64_t first)
{
    while (r->next >= 0 && wd__pieces_bucket(&r->options.pieces, r->next).first >= first) {
        follow(r, r->queue);
        r->kind->post(r, r->next--);
    }
}

void wd_reduce_finish(wd_reduce *r)
{
    wd_reduce_ready(r, 0);
    if (r->round & WD_ROUND_LAST) r->kind->finish(r);
    join(r, r->queue);
}

/* ---- gathering ---- */

void wd_reduce_gather(wd_reduce *r, void *data, size_t element_bytes, wd_queue *queue)
{
    assert(r->next < 0 && element_bytes <= sizeof(float));
    follow(r, queue);
    r->kind->gather(r, data, element_bytes);
    join(r, queue);
}
