/* AdamW or AdEMAMix with clipping and EMA over the flat parameters. One launch covers all
 * parameters that share a weight decay; elements between tensors take part and stay zero. */
#include "train/network/optimizer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/moments.h"
#include "dev/ops.h"
#include "train/network/optimizer_host.h"
#include "train/network/shard.h"

enum { SUM_SQUARES, NORM, FACTOR, LR, ALPHA, BETA3, SCALARS };
static_assert(SCALARS - LR == WD_OPTIMIZER_RATES, "the rates are the last scalars");
enum { STATE_BYTES = sizeof(int64_t) + SCALARS * sizeof(float) }; /* the steps, then the scalars */
enum { UNDER_WAY = 4 };                 /* more steps than are launched ahead of the device */
enum { LOOKED_AT = 64 * WD_SUM_CHUNK }; /* elements at a time: more would need more workspace */
enum { SCALES_AT_A_TIME = 8192 };       /* on the stack */

struct wd_optimizer {
    wd_optimizer_options options;
    wd_params *params; /* borrowed */
    int64_t *steps;    /* [1] device: taken so far; owned, and the scalars behind it */
    float *scalars;    /* [SCALARS] device: sum of squares, norm, factor, rates */
    float *host_rates; /* [UNDER_WAY, WD_OPTIMIZER_RATES] of steps that are under way */
    wd_event *rates_sent[UNDER_WAY]; /* from there */
    int64_t rates_next;
    wd_optimizer_host *host; /* steps what is in host memory; NULL: nothing is; owned */
};

wd_optimizer_options wd_optimizer_defaults(void)
{
    return (wd_optimizer_options){.beta1 = 0.9,
                                  .beta2 = 0.99,
                                  .eps = 1e-8,
                                  .decay = 0,
                                  .decay_scope = WD_DECAY_MATRICES,
                                  .grad_norm_max = 1,
                                  .ema_decay = 0.999};
}

const float *wd_optimizer_norm(const wd_optimizer *optimizer)
{
    return optimizer->scalars + NORM;
}

const float *wd__optimizer_factor(const wd_optimizer *optimizer)
{
    return optimizer->scalars + FACTOR;
}

void wd_optimizer_start_ema(wd_optimizer *optimizer, wd_queue *queue)
{
    const wd_params *params = optimizer->params;
    if (!params->buffer[WD_PARAMS_EMA]) return;
    wd__params_await(params, queue);
    if (params->shard)
        wd__shard_copy_weights(params->shard, WD_PARAMS_EMA, queue);
    else
        wd__params_copy_weights(params, params->buffer[WD_PARAMS_EMA],
                                wd_params_is_on_host(params, WD_PARAMS_EMA),
                                (wd_params_part){.count = params->count}, queue);
}

int64_t wd_optimizer_steps(const wd_optimizer *optimizer, wd_queue *queue)
{
    int64_t steps;
    wd_queue_copy_and_wait(queue, &steps, optimizer->steps, sizeof steps);
    return steps;
}

void wd_optimizer_set_steps(wd_optimizer *optimizer, int64_t steps, wd_queue *queue)
{
    wd_queue_copy_and_wait(queue, optimizer->steps, &steps, sizeof steps);
}

/* Elements that one launch steps. */
typedef struct element_run {
    int64_t first, count;
    int64_t packed; /* its first in packed buffers */
    double decay;
} element_run;

typedef void run_fn(void *context, const element_run *run);

/* A step of `run`; on the device it leaves out an EMA in host memory. */
static wd_adamw_args adamw_of(const wd_optimizer *optimizer, const element_run *run, bool on_device)
{
    const wd_params *params = optimizer->params;
    const wd_optimizer_options *o = &optimizer->options;
    const bool apart = on_device && wd_params_is_on_host(params, WD_PARAMS_EMA);
    float *ema = apart ? NULL : params->buffer[WD_PARAMS_EMA];
    float *slow = o->alpha > 0 ? params->buffer[WD_PARAMS_SLOW] : NULL;
    const int64_t weight = wd__params_is_packed(params, WD_PARAMS_P) ? run->packed : run->first;
    const bool split = wd__params_is_split(params);
    wd_adamw_args args = {
        .p = split ? NULL : params->buffer[WD_PARAMS_P] + weight,
        .remainder = split ? wd__params_remainders(params, weight) : NULL,
        .slow = slow ? slow + run->packed : NULL,
        .grad = wd__params_grad(params, run->first),
        .copy = params->copy ? params->copy + run->first : NULL,
        .copy_type = WD_BF16,
        .grad_type = wd__params_grad_type(params),
        .ema = ema ? ema + run->packed : NULL,
        .factor = wd__optimizer_factor(optimizer),
        .step = optimizer->steps,
        .lr = optimizer->scalars + LR,
        .alpha = optimizer->scalars + ALPHA,
        .beta3 = optimizer->scalars + BETA3,
        .count = run->count,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .decay = (float)run->decay,
        .ema_decay = (float)o->ema_decay,
    };
    if (o->moments_in_8_bits) {
        args.m8 = wd__params_moments(params, WD_PARAMS_M, run->packed);
        args.v8 = wd__params_moments(params, WD_PARAMS_V, run->packed);
    } else {
        args.m = params->buffer[WD_PARAMS_M] + run->packed;
        args.v = params->buffer[WD_PARAMS_V] + run->packed;
    }
    return args;
}

/* Decay of one line of the table. [D] and [1, 6, D] tables count as vectors: what is one number per
 * channel is no matrix. */
static double decay_of(const wd_optimizer *optimizer, const wd_tensor_spec *spec)
{
    if (optimizer->options.decay_scope == WD_DECAY_ALL) return optimizer->options.decay;
    bool matrix = spec->ndim >= 2 && spec->dim[0] > 1;
    return matrix ? optimizer->options.decay : 0;
}

/* Calls `fn` for elements [begin, end), or for what of them is this rank's. */
static void each_piece(const wd_optimizer *optimizer, int64_t begin, int64_t end, double decay,
                       run_fn *fn, void *context)
{
    const wd_params *params = optimizer->params;
    const wd_pieces *pieces = &params->pieces;
    if (!pieces->ranks) {
        fn(context, &(element_run){begin, end - begin, begin, decay});
        return;
    }
    for (int64_t b = begin / pieces->bucket; b * pieces->bucket < end; b++) {
        const wd_range own = wd_pieces_piece(pieces, b, params->rank);
        const int64_t from = own.first > begin ? own.first : begin;
        const int64_t to = own.end < end ? own.end : end;
        const int64_t packed = wd_pieces_packed(pieces, b, params->rank) + from - own.first;
        if (from < to) fn(context, &(element_run){from, to - from, packed, decay});
    }
}

/* Calls `fn` for runs of neighbours with the same decay; just one without decay. */
static void each_run(const wd_optimizer *optimizer, run_fn *fn, void *context)
{
    const wd_params *params = optimizer->params;
    const wd_tensor_table *table = &params->table;
    int64_t begin = 0;
    for (int64_t i = 1; i <= table->count; i++) {
        double decay = decay_of(optimizer, &table->spec[i - 1]);
        bool last = i == table->count;
        if (!last && decay_of(optimizer, &table->spec[i]) == decay) continue;
        int64_t end = last ? params->count : params->offset[i];
        if (end > begin) each_piece(optimizer, begin, end, decay, fn, context);
        begin = end;
    }
}

/* ---- on the device ---- */

typedef struct launcher {
    const wd_optimizer *optimizer;
    wd_queue *queue;
} launcher;

static void launch_run(void *context, const element_run *run)
{
    const launcher *l = context;
    const wd_adamw_args args = adamw_of(l->optimizer, run, true);
    wd_op_adamw(l->queue, &args);
}

/* ---- in host memory ---- */

/* Runs, cut into chunks. */
typedef struct chunk_list {
    const wd_optimizer *optimizer;
    wd_host_chunk *chunk; /* NULL: they are only counted */
    int64_t count;
} chunk_list;

static void add_chunks(void *context, const element_run *whole)
{
    chunk_list *to = context;
    for (int64_t at = 0; at < whole->count; at += WD_HOST_CHUNK) {
        const int64_t left = whole->count - at;
        const element_run part = {.first = whole->first + at,
                                  .count = left < WD_HOST_CHUNK ? left : WD_HOST_CHUNK,
                                  .packed = whole->packed + at,
                                  .decay = whole->decay};
        if (to->chunk)
            to->chunk[to->count] =
                (wd_host_chunk){adamw_of(to->optimizer, &part, false), part.first};
        to->count++;
    }
}

/* So that wd_optimizer_buffer_is_finite allocates nothing. */
static wd_status reserve_for_sums(wd_queue *queue, wd_err *err)
{
    wd_queue *rehearsal;
    WD_TRY(wd_rehearsal_open(&rehearsal, queue, err));
    wd_op_sum_squares(rehearsal, &(wd_sum_squares_args){.count = LOOKED_AT});
    return wd_rehearsal_close(rehearsal, queue, err);
}

static bool ema_is_on_host(const wd_params *params)
{
    return params->buffer[WD_PARAMS_EMA] && wd_params_is_on_host(params, WD_PARAMS_EMA);
}

static wd_status open_host(wd_optimizer *o, wd_err *err)
{
    static const size_t scalars = sizeof(int64_t);
    const wd_host_scalars of_step = {.device = o->steps,
                                     .bytes = STATE_BYTES,
                                     .factor = scalars + FACTOR * sizeof(float),
                                     .lr = scalars + LR * sizeof(float),
                                     .alpha = scalars + ALPHA * sizeof(float),
                                     .beta3 = scalars + BETA3 * sizeof(float)};
    chunk_list list = {.optimizer = o};
    if (!wd_params_is_on_host(o->params, WD_PARAMS_M) && !ema_is_on_host(o->params)) return WD_OK;
    each_run(o, add_chunks, &list);
    WD_TRY(wd_alloc((void **)&list.chunk, (size_t)list.count + 1, sizeof *list.chunk,
                    "an optimizer in host memory", err));
    list.count = 0;
    each_run(o, add_chunks, &list);
    WD_TRY(wd__optimizer_host_open(&o->host, o->params, &of_step, list.chunk, list.count, err));
    WD_TRY(reserve_for_sums(wd__optimizer_host_queue(o->host), err));
    o->params->host = o->host;
    o->params->await = wd__optimizer_host_await;
    o->params->convert = wd__optimizer_host_convert;
    return WD_OK;
}

wd_optimizer_traffic wd_optimizer_host_traffic(wd_dtype dtype, wd_dtype gradients, double weights,
                                               double islands, double share, bool ema_alone)
{
    const double scalars = STATE_BYTES, of_gradient = (double)wd_dtype_bytes(gradients);
    if (ema_alone) return (wd_optimizer_traffic){.out = 4 * share + scalars};
    if (dtype == WD_F32) /* weights come and go */
        return (wd_optimizer_traffic){.in = 4 * share, .out = 8 * share + scalars};
    const bool sends_islands = share == weights; /* else they go from rank to rank */
    return (wd_optimizer_traffic){.in = 2 * share + (sends_islands ? 4 * islands : 0),
                                  .out = of_gradient * share + scalars};
}

/* ---- open and close ---- */

wd_status wd_optimizer_open(wd_optimizer **out, const wd_optimizer_options *options,
                            wd_params *params, wd_err *err)
{
    WD_REQUIRE(params->kinds & WD_PARAMS_TRAINED, "a network without moments is to be trained");
    WD_REQUIRE(!(options->alpha > 0) || params->buffer[WD_PARAMS_SLOW],
               "a network without slow moments is to be trained by AdEMAMix");
    WD_REQUIRE(options->moments_in_8_bits == wd_params_is_in_8_bits(params, WD_PARAMS_M) &&
                   !(options->moments_in_8_bits && options->alpha > 0),
               "a network's moments are not as its optimizer has them");
    wd_status status;
    wd_optimizer *o;
    wd_device *device = params->device;
    WD_TRY(wd_alloc((void **)&o, 1, sizeof *o, "an optimizer", err));
    *o = (wd_optimizer){.options = *options, .params = params};
    WD_TRY_OUT(wd_device_alloc((void **)&o->steps, device, STATE_BYTES, "gradient norm", err));
    o->scalars = (float *)(o->steps + 1);
    WD_TRY_OUT(wd_host_alloc((void **)&o->host_rates, device,
                             UNDER_WAY * WD_OPTIMIZER_RATES * sizeof(float), "learning rates",
                             err));
    for (int i = 0; i < UNDER_WAY; i++) WD_TRY_OUT(wd_event_open(&o->rates_sent[i], device, err));
    WD_TRY_OUT(open_host(o, err));
    *out = o;
out:
    if (status != WD_OK) wd_optimizer_close(o);
    return status;
}

void wd_optimizer_close(wd_optimizer *optimizer)
{
    if (!optimizer) return;
    wd__optimizer_host_close(optimizer->host);
    optimizer->params->host = NULL;
    optimizer->params->await = NULL;
    optimizer->params->convert = NULL;
    for (int i = 0; i < UNDER_WAY; i++) wd_event_close(optimizer->rates_sent[i]);
    if (optimizer->host_rates) wd_host_free(optimizer->params->device, optimizer->host_rates);
    if (optimizer->steps) wd_device_free(optimizer->params->device, optimizer->steps);
    wd_free(optimizer);
}

/* ---- a step ---- */

/* The copy's source goes round; what is launched reads one place on the device. */
static void send_rates(wd_optimizer *optimizer, double lr, double progress, wd_queue *queue)
{
    const int at = (int)(optimizer->rates_next++ % UNDER_WAY);
    const wd_slow_moments slow = wd__slow_moments_at(&optimizer->options, progress);
    const float rates[WD_OPTIMIZER_RATES] = {(float)lr, (float)slow.alpha, (float)slow.beta3};
    float *host = optimizer->host_rates + WD_OPTIMIZER_RATES * at;
    wd_event_wait(optimizer->rates_sent[at]);
    memcpy(host, rates, sizeof rates);
    wd_queue_copy(queue, optimizer->scalars + LR, host, sizeof rates);
    wd_event_record(optimizer->rates_sent[at], queue);
}

void wd_optimizer_step(wd_optimizer *optimizer, double lr, double progress, wd_queue *queue)
{
    const wd_params *params = optimizer->params;
    WD_REQUIRE(!params->is_kept, "a step is asked for while the copy of the weights is kept");
    wd__params_await(params, queue);
    if (params->shard)
        wd__shard_sum_squares(params->shard, optimizer->scalars + SUM_SQUARES, queue);
    else
        wd_op_sum_squares(queue, &(wd_sum_squares_args){.sum = optimizer->scalars + SUM_SQUARES,
                                                        .x = params->buffer[WD_PARAMS_G],
                                                        .count = params->count,
                                                        .type = wd__params_grad_type(params)});
    wd_op_clip_factor(queue,
                      &(wd_clip_factor_args){.norm = optimizer->scalars + NORM,
                                             .factor = optimizer->scalars + FACTOR,
                                             .steps = optimizer->steps,
                                             .sum = optimizer->scalars + SUM_SQUARES,
                                             .norm_max = (float)optimizer->options.grad_norm_max});
    send_rates(optimizer, lr, progress, queue);
    const bool on_host = wd_params_is_on_host(params, WD_PARAMS_M);
    if (on_host)
        wd__optimizer_host_step(optimizer->host, queue);
    else
        each_run(optimizer, launch_run, &(launcher){optimizer, queue});
    if (params->shard) {
        wd__params_await_weights(params, queue); /* the other ranks wait for these */
        wd__shard_publish(params->shard, queue); /* also writes the weights of this rank */
    } else if (wd__params_is_split(params)) {
        wd__params_refresh_islands(params, queue);
    }
    if (optimizer->host && !on_host) wd__optimizer_host_step(optimizer->host, queue); /* the EMA */
}

/* Whether the scales of moments in 8 bits are finite: codes are. */
static bool scales_are_finite(const wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    uint16_t some[SCALES_AT_A_TIME];
    const uint16_t *scales = wd__params_moments(params, buffer, 0).scales;
    const int64_t elements = wd_params_elements(params, buffer);
    const int64_t groups = (elements + WD_MOMENT_GROUP - 1) / WD_MOMENT_GROUP;
    for (int64_t at = 0; at < groups; at += SCALES_AT_A_TIME) {
        const int64_t n = groups - at < SCALES_AT_A_TIME ? groups - at : SCALES_AT_A_TIME;
        if (wd_params_is_on_host(params, buffer))
            memcpy(some, scales + at, (size_t)n * sizeof *some);
        else
            wd_queue_copy_and_wait(queue, some, scales + at, (size_t)n * sizeof *some);
        for (int64_t i = 0; i < n; i++)
            if (some[i] >= WD_MOMENT_NOT_FINITE) return false;
    }
    return true;
}

/* `sum` [1], of the queue's device, is overwritten. */
static bool finds_finite(wd_queue *queue, float *sum, const void *x, wd_dtype type, int64_t count)
{
    float found = 0;
    for (int64_t at = 0; at < count && isfinite(found); at += LOOKED_AT) {
        const int64_t n = count - at < LOOKED_AT ? count - at : LOOKED_AT;
        wd_op_sum_squares(queue,
                          &(wd_sum_squares_args){.sum = sum,
                                                 .x = (const char *)x + wd_dtype_size(type, at),
                                                 .type = type,
                                                 .count = n});
        wd_queue_copy_and_wait(queue, &found, sum, sizeof found);
    }
    return isfinite(found);
}

bool wd_optimizer_finds_finite(const wd_optimizer *optimizer, const float *x, int64_t count,
                               wd_queue *queue)
{
    return finds_finite(queue, optimizer->scalars + SUM_SQUARES, x, WD_F32, count);
}

bool wd_optimizer_buffer_is_finite(const wd_optimizer *optimizer, wd_params_buffer buffer,
                                   wd_queue *queue)
{
    float sum;
    const wd_params *params = optimizer->params;
    const float *x = params->buffer[buffer];
    const int64_t count = wd_params_elements(params, buffer);
    wd__params_await(params, queue);
    if (wd_params_is_on_host(params, buffer)) wd_queue_wait(queue); /* which may be filling it */
    if (wd_params_is_in_8_bits(params, buffer)) return scales_are_finite(params, buffer, queue);
    if (buffer == WD_PARAMS_P && wd__params_is_split(params)) /* finite where the copy is */
        return finds_finite(queue, optimizer->scalars + SUM_SQUARES, params->copy, WD_BF16,
                            params->count);
    if (wd_params_is_on_host(params, buffer))
        return finds_finite(wd__optimizer_host_queue(optimizer->host), &sum, x, WD_F32, count);
    return wd_optimizer_finds_finite(optimizer, x, count, queue);
}

wd_slow_moments wd__slow_moments_at(const wd_optimizer_options *options, double progress)
{
    if (!(options->alpha > 0)) return (wd_slow_moments){0};
    const double p = fmin(fmax(progress, 0), 1);
    const double first = -1 / log(options->beta1), last = -1 / log(options->beta3); /* steps */
    return (wd_slow_moments){.alpha = p * options->alpha,
                             .beta3 = exp(-1 / ((1 - p) * first + p * last))};
}

double wd_lr_at(const wd_lr_schedule *schedule, int64_t step, double progress)
{
    double lr = schedule->lr;
    if (schedule->shape == WD_LR_COSINE) {
        double p = fmin(fmax(progress, 0), 1);
        double wave = 0.5 * (1 + cos(M_PI * p));
        lr *= schedule->ratio_min + (1 - schedule->ratio_min) * wave;
    }
    if (step < schedule->warmup_steps) lr *= (double)(step + 1) / (double)schedule->warmup_steps;
    return lr;
}
