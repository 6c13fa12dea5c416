/* A network that is trained: see train/network/network.h. */
#include "train/network/network.h"

#include "core/memory.h"
#include "job/comm/reduce.h"
#include "train/network/shard.h"

struct wd_network {
    wd_queue *queue;
    wd_params params;
    wd_optimizer *optimizer;
    wd_pass *pass;
    wd_reduce *reduce; /* NULL: gradients of one rank, added as they come */
    wd_shard *shard;   /* NULL: every rank has all of the network */
    bool by_round;
    bool reduces; /* the gradients of the round that has begun */
};

static wd_reduce_options reduce_options(int64_t weights, wd_comm *comm, bool by_round)
{
    return (wd_reduce_options){
        .comm = comm, .pieces = wd__params_cut(weights, comm->ranks), .by_round = by_round};
}

double wd_network_unsent_share(int64_t weights, wd_comm *comm, bool by_round)
{
    const wd_reduce_options options = reduce_options(weights, comm, by_round);
    return wd_reduce_unsent_share(&options);
}

static wd_status open_ranks(wd_network *n, const wd_network_options *o, wd_err *err)
{
    if (!o->comm || (o->comm->ranks == 1 && !o->by_round)) return WD_OK;
    wd_reduce_options reduce = reduce_options(n->params.count, o->comm, o->by_round);
    reduce.scatter = n->params.pieces.ranks > 0;
    reduce.type = o->gradients;
    WD_TRY(wd_reduce_open(&n->reduce, &reduce, n->params.device, err));
    if (!n->params.pieces.ranks) return WD_OK;
    return wd__shard_open(&n->shard, &n->params, n->reduce, o->comm, err);
}

wd_status wd_network_open(wd_network **out, const wd_network_options *o, wd_queue *queue,
                          wd_err *err)
{
    wd_status status;
    wd_network *n;
    wd_device *device = wd_queue_device(queue);
    const bool shared = o->shared && o->comm;
    const bool has_host = !wd_device_traits(device)->reads_host; /* apart from the device */
    const wd_params_options params = {
        .names = o->names,
        .config = o->config,
        .dtype = o->dtype,
        .kinds = WD_PARAMS_TRAINED | (o->ema ? WD_PARAMS_WITH_EMA : 0) |
                 (o->optimizer.alpha > 0 ? WD_PARAMS_WITH_SLOW : 0) |
                 (o->gradients == WD_BF16 ? WD_PARAMS_GRADIENTS_IN_BF16 : 0) |
                 (o->optimizer.moments_in_8_bits ? WD_PARAMS_MOMENTS_IN_8_BITS : 0) |
                 (has_host && o->place == WD_STATE_ON_HOST ? WD_PARAMS_STATE_ON_HOST : 0) |
                 (has_host && o->place == WD_STATE_EMA_ON_HOST ? WD_PARAMS_EMA_ON_HOST : 0),
        .rank = shared ? o->comm->rank : 0,
        .ranks = shared ? o->comm->ranks : 1,
    };
    WD_TRY(wd_alloc((void **)&n, 1, sizeof *n, "a network", err));
    *n = (wd_network){.queue = queue, .by_round = o->by_round};
    WD_TRY_OUT(wd_params_open_with(&n->params, &params, device, err));
    WD_TRY_OUT(wd_optimizer_open(&n->optimizer, &o->optimizer, &n->params, err));
    WD_TRY_OUT(wd_pass_open(&n->pass, &n->params, &o->shape, o->mode, queue, err));
    WD_TRY_OUT(open_ranks(n, o, err));
    *out = n;
out:
    if (status != WD_OK) wd_network_close(n);
    return status;
}

void wd_network_close(wd_network *n)
{
    if (!n) return;
    wd__shard_close(n->shard);
    wd_reduce_close(n->reduce);
    wd_pass_close(n->pass);
    wd_optimizer_close(n->optimizer);
    wd_params_close(&n->params);
    wd_free(n);
}

wd_params *wd_network_params(wd_network *network)
{
    return &network->params;
}

wd_optimizer *wd_network_optimizer(wd_network *network)
{
    return network->optimizer;
}

wd_pass *wd_network_pass(wd_network *network)
{
    return network->pass;
}

void wd_network_begin_round(wd_network *n, int64_t round, int64_t rounds)
{
    const bool each = n->reduce && n->by_round;
    const bool first = each || round == 0, last = round + 1 == rounds;
    n->reduces = n->reduce && (each || last);
    if (first) wd_params_zero_grads(&n->params, n->queue);
    if (!n->reduces) return;
    wd_reduce_begin(n->reduce, n->params.buffer[WD_PARAMS_G],
                    (!each || round == 0 ? WD_ROUND_FIRST : 0u) | (last ? WD_ROUND_LAST : 0u),
                    n->queue);
}

/* A stage's gradients are final: those from its first element on may leave. */
static void reduce_stage(void *context, int stage)
{
    wd_network *n = context;
    int64_t first, count;
    wd__params_stage_range(&first, &count, &n->params, stage);
    wd_reduce_ready(n->reduce, first);
}

void wd_network_backward(wd_network *n)
{
    wd_pass_backward(n->pass, n->reduces ? reduce_stage : NULL, n);
}

void wd_network_end_round(wd_network *n)
{
    if (n->reduces) wd_reduce_finish(n->reduce);
    n->reduces = false;
}

void wd_network_step(wd_network *n, double lr, double progress)
{
    wd_optimizer_step(n->optimizer, lr, progress, n->queue);
}
