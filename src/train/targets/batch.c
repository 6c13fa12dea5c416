/* Batches: see train/targets/batch.h. */
#include "train/targets/batch.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/ops.h"

struct wd_batches {
    wd_batches_options options;
    wd_queue *queue;
    size_t text_bytes; /* of one sample */
    /* [samples_max, ...] device */
    float *latents, *target, *timestep, *weight;
    void *text;
    /* [places, samples_max, ...] host, read by copies: not touched until the event says so */
    float *host_timestep, *host_weight;
    char *host_text;
    wd_event *sent[WD_BATCHES_UNDER_WAY];
    int places;
    int64_t begun;   /* batches */
    int64_t samples; /* of the batch that has begun */
};

static size_t state_bytes(const wd_batches *b)
{
    return (size_t)b->options.state_count * sizeof(float);
}

/* The first sample of the batch's place in the staging. */
static int64_t staged(const wd_batches *b)
{
    return (b->begun - 1) % b->places * b->options.samples_max;
}

void wd__batches_begin(wd_batches *b)
{
    b->begun++;
    b->samples = 0;
    wd_event_wait(b->sent[(b->begun - 1) % b->places]);
}

/* y = the sample's state. */
static void put_state(wd_batches *b, float *y, const wd_batch_sample *sample)
{
    WD_REQUIRE(sample->dt == 0 || sample->target, "a sample without a target has dt %g",
               (double)sample->dt);
    const wd_combine_args moved = {.y = y,
                                   .x = {sample->latents, sample->target},
                                   .factor = {1, sample->dt},
                                   .terms = 2,
                                   .count = b->options.state_count};
    if (sample->dt != 0)
        wd_op_combine(b->queue, &moved);
    else
        wd_queue_copy(b->queue, y, sample->latents, state_bytes(b));
}

void wd__batches_put(wd_batches *b, const wd_batch_sample *sample)
{
    const wd_batches_options *o = &b->options;
    const int64_t i = b->samples++, n = o->state_count;
    WD_REQUIRE(i < o->samples_max, "a batch of more than %" PRId64 " samples", o->samples_max);
    put_state(b, b->latents + i * n, sample);
    if (sample->target) wd_queue_copy(b->queue, b->target + i * n, sample->target, state_bytes(b));
    b->host_timestep[staged(b) + i] = sample->timestep;
    b->host_weight[staged(b) + i] = sample->weight;
    o->text(o->text_context, b->host_text + (size_t)(staged(b) + i) * b->text_bytes, sample->prompt,
            o->text_dtype);
}

wd_batch wd__batches_send(wd_batches *b)
{
    const size_t samples = (size_t)b->samples;
    wd_queue_copy(b->queue, b->timestep, b->host_timestep + staged(b), samples * sizeof(float));
    wd_queue_copy(b->queue, b->weight, b->host_weight + staged(b), samples * sizeof(float));
    wd_queue_copy(b->queue, b->text, b->host_text + (size_t)staged(b) * b->text_bytes,
                  samples * b->text_bytes);
    wd_event_record(b->sent[(b->begun - 1) % b->places], b->queue);
    return (wd_batch){.samples = b->samples,
                      .latents = b->latents,
                      .timestep = b->timestep,
                      .target = b->target,
                      .weight = b->weight,
                      .text = b->text};
}

wd_status wd__batches_open(wd_batches **out, const wd_batches_options *o, wd_queue *queue,
                           wd_err *err)
{
    wd_status status;
    wd_batches *b;
    wd_device *device = wd_queue_device(queue);
    const char *what = "staging of batches";
    const size_t batch = (size_t)o->samples_max;
    WD_TRY(wd_alloc((void **)&b, 1, sizeof *b, "batches", err));
    *b = (wd_batches){.options = *o,
                      .queue = queue,
                      .text_bytes =
                          (size_t)(o->text_tokens * o->text_dim) * wd_dtype_bytes(o->text_dtype),
                      .places = wd_device_places(device, WD_BATCHES_UNDER_WAY)};
    const size_t states = batch * state_bytes(b), staging = (size_t)b->places * batch;
    WD_TRY_OUT(wd_device_alloc((void **)&b->latents, device, states, "batch", err));
    WD_TRY_OUT(wd_device_alloc((void **)&b->target, device, states, "batch", err));
    WD_TRY_OUT(wd_device_alloc((void **)&b->timestep, device, batch * sizeof(float), "batch", err));
    WD_TRY_OUT(wd_device_alloc((void **)&b->weight, device, batch * sizeof(float), "batch", err));
    WD_TRY_OUT(wd_device_alloc(&b->text, device, batch * b->text_bytes, "batch", err));
    WD_TRY_OUT(
        wd_host_alloc((void **)&b->host_timestep, device, staging * sizeof(float), what, err));
    WD_TRY_OUT(wd_host_alloc((void **)&b->host_weight, device, staging * sizeof(float), what, err));
    WD_TRY_OUT(wd_host_alloc((void **)&b->host_text, device, staging * b->text_bytes, what, err));
    for (int i = 0; i < WD_BATCHES_UNDER_WAY; i++)
        WD_TRY_OUT(wd_event_open(&b->sent[i], device, err));
    *out = b;
out:
    if (status != WD_OK) wd__batches_close(b);
    return status;
}

void wd__batches_close(wd_batches *b)
{
    if (!b) return;
    wd_device *device = wd_queue_device(b->queue);
    void *blocks[] = {b->latents, b->target, b->timestep, b->weight, b->text};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) wd_device_free(device, blocks[i]);
    wd_host_free(device, b->host_timestep);
    wd_host_free(device, b->host_weight);
    wd_host_free(device, b->host_text);
    for (int i = 0; i < WD_BATCHES_UNDER_WAY; i++) wd_event_close(b->sent[i]);
    wd_free(b);
}
