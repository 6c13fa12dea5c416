/* Steps in host memory: see train/network/optimizer_host.h.
 *
 * Three things go on at the same time, each in the order of the chunks: `down` copies gradients to
 * staging places, the thread steps what is there, `up` copies new weights from there. A place is
 * used again when the chunk that was there has gone up. */
#include "train/network/optimizer_host.h"

#include <pthread.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/parallel.h"

enum { PLACES = 3 };

/* What one chunk's gradients come down to, and its new weights go up from. Of the EMA alone: what
 * weights come down to. */
typedef struct place {
    void *grad;          /* as many as the largest chunk has; room for them in F32 */
    void *weights;       /* as many, of the compute dtype; of the EMA alone: `grad` */
    wd_event *came_down; /* both, of `down` */
    wd_event *went_up;   /* the place is free: of `up`, or of who converts moments */
} place;

struct wd_optimizer_host {
    wd_params *params; /* borrowed */
    bool ema_alone;
    wd_host_scalars scalars;
    wd_host_chunk *chunk; /* [chunks]; owned */
    int64_t chunks;
    char *host_scalars; /* [scalars.bytes]; owned, as all below */
    char *staging;      /* of all places */
    int64_t most;       /* elements of a place */
    place place[PLACES];
    wd_queue *down, *up; /* of the params' device */
    wd_event *ready;     /* gradients are there */
    wd_event *scalars_came;
    wd_event *stepped; /* all new weights have gone up */
    wd_device *processor;
    wd_queue *queue; /* of the processor */
    /* the thread */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    enum { STARTING, IDLE, STEPPING, CLOSING, FAILED } state;
    int threads;  /* of the processor's loops */
    wd_err error; /* FAILED */
};

/* ---- a step, on the thread ---- */

static size_t weight_bytes(const wd_optimizer_host *h)
{
    return h->params->dtype == WD_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Weights that passes take from chunk c on, on the device. */
static void *weights_of(const wd_optimizer_host *h, const wd_host_chunk *c)
{
    const wd_params *p = h->params;
    return p->copy ? (void *)(p->copy + c->first) : p->buffer[WD_PARAMS_P] + c->first;
}

/* Copies what chunk number i needs to its place, once that is free. */
static void bring_down(wd_optimizer_host *h, int64_t i)
{
    const wd_host_chunk *c = &h->chunk[i];
    place *at = &h->place[i % PLACES];
    const size_t bytes = (size_t)c->args.count * sizeof(float);
    wd_event_wait_on(h->down, at->went_up);
    if (h->ema_alone && wd__params_is_split(h->params)) { /* the copy, then remainders */
        wd_queue_copy(h->down, at->weights, c->args.copy, bytes / 2);
        wd_queue_copy(h->down, (char *)at->weights + bytes / 2, c->args.remainder, bytes / 2);
    } else if (h->ema_alone) {
        wd_queue_copy(h->down, at->weights, c->args.p, bytes);
    } else {
        wd_queue_copy(h->down, at->grad, wd__params_grad(h->params, c->first),
                      wd_dtype_size(c->args.grad_type, c->args.count));
        if (!h->params->copy) wd_queue_copy(h->down, at->weights, weights_of(h, c), bytes);
    }
    wd_event_record(at->came_down, h->down);
}

/* The processor has stepped the chunk when it returns. */
static void step_ema(wd_optimizer_host *h, const wd_host_chunk *c, const place *at)
{
    const wd_adamw_args *a = &c->args;
    const uint16_t *copy = at->weights;
    wd_op_ema(h->queue, &(wd_ema_args){.ema = a->ema,
                                       .p = a->p ? at->weights : NULL,
                                       .copy = copy,
                                       .remainder = copy + a->count,
                                       .factor = a->factor,
                                       .step = a->step,
                                       .count = a->count,
                                       .ema_decay = a->ema_decay});
}

static void step_chunk(wd_optimizer_host *h, int64_t i)
{
    const wd_host_chunk *c = &h->chunk[i];
    place *at = &h->place[i % PLACES];
    wd_event_wait(at->came_down);
    if (h->ema_alone) {
        step_ema(h, c, at);
        return;
    }
    wd_op_adamw(h->queue, &c->args);
    wd_queue_copy(h->up, weights_of(h, c), at->weights, (size_t)c->args.count * weight_bytes(h));
    wd_event_record(at->went_up, h->up);
}

static void step_chunks(wd_optimizer_host *h)
{
    for (int64_t i = 0; i < h->chunks && i < PLACES; i++) bring_down(h, i);
    for (int64_t i = 0; i < h->chunks; i++) {
        step_chunk(h, i);
        if (i + PLACES < h->chunks) bring_down(h, i + PLACES);
    }
    if (!h->ema_alone && !h->params->pieces.ranks) /* ranks send those of a shared network */
        wd__params_copy_islands(h->params, h->params->buffer[WD_PARAMS_P], h->up);
}

static void step(wd_optimizer_host *h)
{
    wd_event_wait_on(h->down, h->ready);
    wd_queue_copy(h->down, h->host_scalars, h->scalars.device, h->scalars.bytes);
    wd_event_record(h->scalars_came, h->down);
    wd_event_wait(h->scalars_came);
    const bool dropped = *(const float *)(h->host_scalars + h->scalars.factor) == 0;
    if (!dropped) step_chunks(h); /* AdamW would leave the staging places as they are */
    wd_event_record(h->stepped, h->up);
}

static void *run(void *context)
{
    wd_optimizer_host *h = context;
    int started_threads; /* by which loops are divided, whatever was asked for */
    const wd_status started = wd_parallel_start(&started_threads, h->threads, &h->error);
    pthread_mutex_lock(&h->lock);
    h->state = started == WD_OK ? IDLE : FAILED;
    pthread_cond_broadcast(&h->changed);
    while (h->state != CLOSING && h->state != FAILED) {
        if (h->state == STEPPING) {
            pthread_mutex_unlock(&h->lock);
            step(h);
            pthread_mutex_lock(&h->lock);
            h->state = IDLE;
            pthread_cond_broadcast(&h->changed);
        } else {
            pthread_cond_wait(&h->changed, &h->lock);
        }
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- asked for by the thread that launches ---- */

/* Waits until no step is under way, or the thread has failed to start; the caller unlocks. */
static void lock_idle(wd_optimizer_host *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->has_thread && (h->state == STARTING || h->state == STEPPING))
        pthread_cond_wait(&h->changed, &h->lock);
}

void wd__optimizer_host_step(wd_optimizer_host *h, wd_queue *queue)
{
    if (!h->has_thread) return; /* a dry one */
    lock_idle(h);
    wd_event_record(h->ready, queue);
    h->state = STEPPING;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void wd__optimizer_host_await(wd_optimizer_host *h, wd_queue *queue)
{
    lock_idle(h);
    pthread_mutex_unlock(&h->lock);
    wd_event_wait_on(queue, h->stepped);
}

/* Values come and go by the staging places. */
void wd__optimizer_host_convert(wd_optimizer_host *h, const wd_params_range *range, wd_queue *queue)
{
    float *whole = range->at;
    if (!h->has_thread) return; /* a dry one */
    for (int64_t at = 0; at < range->count; at += h->most) {
        const place *to = &h->place[at / h->most % PLACES];
        const int64_t left = range->count - at, n = left < h->most ? left : h->most;
        const size_t bytes = (size_t)n * sizeof(float);
        const wd_moments_args args = {
            .values = to->grad,
            .codes = wd__params_moments(h->params, range->buffer, range->packed + at),
            .moment = wd__params_moment(range->buffer),
            .pack = range->take,
            .count = n};
        wd_event_wait(to->went_up);
        if (range->take) wd_queue_copy_and_wait(queue, to->grad, whole + at, bytes);
        wd_op_moments(h->queue, &args);
        if (!range->take) wd_queue_copy(queue, whole + at, to->grad, bytes);
        wd_event_record(to->went_up, queue);
    }
}

wd_queue *wd__optimizer_host_queue(wd_optimizer_host *h)
{
    return h->queue;
}

/* ---- open and close ---- */

static wd_status open_places(wd_optimizer_host *h, wd_err *err)
{
    static const char what[] = "gradients and weights on their way";
    wd_device *device = h->params->device;
    size_t most = 1;
    for (int64_t i = 0; i < h->chunks; i++)
        if ((size_t)h->chunk[i].args.count > most) most = (size_t)h->chunk[i].args.count;
    most = wd_round_up(most, WD_PARAMS_ALIGN);
    h->most = (int64_t)most;
    const size_t grad = most * sizeof(float), weights_at = h->ema_alone ? 0 : grad;
    const size_t each = h->ema_alone ? grad : grad + most * weight_bytes(h);
    WD_TRY(wd_host_alloc((void **)&h->host_scalars, device, h->scalars.bytes, what, err));
    WD_TRY(wd_host_alloc((void **)&h->staging, device, PLACES * each, what, err));
    for (int i = 0; i < PLACES; i++) {
        h->place[i].grad = h->staging + (size_t)i * each;
        h->place[i].weights = h->staging + (size_t)i * each + weights_at;
        WD_TRY(wd_event_open(&h->place[i].came_down, device, err));
        WD_TRY(wd_event_open(&h->place[i].went_up, device, err));
    }
    return WD_OK;
}

/* What each launch reads and writes is at the same address in each step. */
static void set_addresses(wd_optimizer_host *h)
{
    const wd_host_scalars *s = &h->scalars;
    for (int64_t i = 0; i < h->chunks; i++) {
        const place *at = &h->place[i % PLACES];
        wd_adamw_args *a = &h->chunk[i].args;
        a->grad = at->grad;
        if (!h->ema_alone && h->params->copy) a->copy = at->weights;
        if (!h->ema_alone && !h->params->copy) a->p = at->weights;
        a->step = (const int64_t *)(h->host_scalars + s->step);
        a->factor = (const float *)(h->host_scalars + s->factor);
        a->lr = (const float *)(h->host_scalars + s->lr);
        a->alpha = (const float *)(h->host_scalars + s->alpha);
        a->beta3 = (const float *)(h->host_scalars + s->beta3);
    }
}

/* Starts the thread, with a team of as many threads as the calling thread has. */
static wd_status start(wd_optimizer_host *h, wd_err *err)
{
    if (wd_device_is_dry(h->params->device)) return WD_OK;
    h->threads = wd_parallel_threads();
    if (pthread_create(&h->thread, NULL, run, h))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread for the optimizer in host memory");
    h->has_thread = true;
    lock_idle(h);
    const bool failed = h->state == FAILED;
    pthread_mutex_unlock(&h->lock);
    if (!failed) return WD_OK;
    if (err) *err = h->error;
    return h->error.status;
}

wd_status wd__optimizer_host_open(wd_optimizer_host **out, wd_params *params,
                                  const wd_host_scalars *scalars, wd_host_chunk *chunks,
                                  int64_t count, wd_err *err)
{
    wd_optimizer_host *h;
    wd_device *device = params->device;
    wd_status status = wd_alloc((void **)&h, 1, sizeof *h, "an optimizer in host memory", err);
    if (status != WD_OK) {
        wd_free(chunks);
        return status;
    }
    *h = (wd_optimizer_host){.params = params,
                             .ema_alone = !wd_params_is_on_host(params, WD_PARAMS_M),
                             .scalars = *scalars,
                             .chunk = chunks,
                             .chunks = count};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    WD_TRY_OUT(open_places(h, err));
    set_addresses(h);
    WD_TRY_OUT(wd_queue_open(&h->down, device, err));
    WD_TRY_OUT(wd_queue_open(&h->up, device, err));
    WD_TRY_OUT(wd_event_open(&h->ready, device, err));
    WD_TRY_OUT(wd_event_open(&h->scalars_came, device, err));
    WD_TRY_OUT(wd_event_open(&h->stepped, device, err));
    WD_TRY_OUT(wd_device_open_cpu(&h->processor, wd_parallel_threads(), err));
    WD_TRY_OUT(wd_queue_open(&h->queue, h->processor, err));
    WD_TRY_OUT(start(h, err));
    *out = h;
out:
    if (status != WD_OK) wd__optimizer_host_close(h);
    return status;
}

void wd__optimizer_host_close(wd_optimizer_host *h)
{
    if (!h) return;
    if (h->has_thread) {
        lock_idle(h);
        if (h->state != FAILED) h->state = CLOSING;
        pthread_cond_broadcast(&h->changed);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
    }
    wd_queue_close(h->down); /* both wait */
    wd_queue_close(h->up);
    wd_queue_close(h->queue);
    wd_device_close(h->processor);
    wd_event_close(h->stepped);
    wd_event_close(h->scalars_came);
    wd_event_close(h->ready);
    for (int i = 0; i < PLACES; i++) {
        wd_event_close(h->place[i].came_down);
        wd_event_close(h->place[i].went_up);
    }
    wd_host_free(h->params->device, h->staging);
    wd_host_free(h->params->device, h->host_scalars);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    wd_free(h->chunk);
    wd_free(h);
}
