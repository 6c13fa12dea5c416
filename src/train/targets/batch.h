/* Batches: the samples of a micro-batch, on their way to the student's device.
 *
 * Data flow: wd__batches_begin, then for each sample wd__batches_put, which brings its state and
 * target into the batch on the device and its timestep, weight and text into host staging;
 * wd__batches_send copies the staging. Places of the staging go round, so the launch may be some
 * batches ahead of the device. */
#ifndef WD_TRAIN_TARGETS_BATCH_H
#define WD_TRAIN_TARGETS_BATCH_H

#include "teacher/run/sweep.h"

enum {
    WD_BATCHES_UNDER_WAY = 4
}; /* batches whose staging is being copied, or waits for its turn */

/* One micro-batch, in device memory. */
typedef struct wd_batch {
    int64_t samples;
    const float *latents;  /* [B, C, F, H, W] */
    const float *timestep; /* [B] */
    const float *target;   /* [B, C, F, H, W] */
    const float *weight;   /* [B] of the samples' losses, for their gradients */
    const void *text;      /* [B, S, text_dim] in the student's compute dtype */
} wd_batch;

typedef struct wd_batches_options {
    int64_t samples_max; /* of a batch */
    int64_t state_count; /* elements of one state's latents: C F H W */
    int64_t text_tokens, text_dim;
    wd_dtype text_dtype;
    wd_sweep_text_fn *text; /* gives a prompt's embedding */
    void *text_context;
} wd_batches_options;

/* One sample of a batch. */
typedef struct wd_batch_sample {
    const float *latents, *target; /* [state_count] device; target NULL: the batch has none */
    float dt; /* the sample's state is latents + dt target; 0 where there is no target */
    float timestep;
    float weight; /* of its loss: 1 on average over the samples of a trajectory */
    int64_t prompt;
} wd_batch_sample;

typedef struct wd_batches wd_batches;

/* All copies are launched on `queue` (borrowed). */
wd_status wd__batches_open(wd_batches **out, const wd_batches_options *options, wd_queue *queue,
                           wd_err *err);
void wd__batches_close(wd_batches *batches); /* the queue is done; NULL is allowed */

/* The next batch; the one before is used up by work that is launched. */
void wd__batches_begin(wd_batches *batches);
void wd__batches_put(wd_batches *batches, const wd_batch_sample *sample);
wd_batch wd__batches_send(wd_batches *batches);

#endif
