/* Activation buffers: a device's memory for the micro-batches of a sweep, one block of its pool. It
 * has the places of micro-batches that are on the device, and the scratch memory of the stage that
 * runs, with the buffers of an embedding or a head, which are filled and read in the order of the
 * queue. Private to src/teacher/run. */
#ifndef WD_TEACHER_RUN_ACTIVATIONS_H
#define WD_TEACHER_RUN_ACTIVATIONS_H

#include "job/comm/comm.h"
#include "teacher/plan/sweep_schedule.h"

/* The place of one micro-batch. */
typedef struct wd_activation_place {
    wd_dit_stream stream[2]; /* conditional, unconditional */
    wd_event *left;          /* on the device's queue: the micro-batch that was here has left */
} wd_activation_place;

typedef struct wd_activations {
    const wd_sweep_options *options; /* borrowed */
    wd_queue *queue;                 /* borrowed */
    wd_device *device;
    int streams; /* of a micro-batch: 2 with guidance, else 1 */
    wd_dit_rope rope;
    void *block;
    wd_arena arena;
    size_t mark;                /* of the arena: the scratch memory of a stage begins here */
    wd_activation_place *place; /* [places] */
    int places;
    void *text_negative; /* device: [1, S, text_dim] dtype, where guided; uploaded once */
    float *scale[2];     /* device: [1] of each expert, uploaded once */
    /* Host memory of an embedding, which copies read: places used in turn, each of which is free
     * again once its `uploaded` has happened. */
    float *host_timestep; /* [uploads, micro_batch] */
    char *host_text;      /* [uploads, micro_batch, S, text_dim] dtype */
    wd_event *uploaded[WD_SWEEP_UPLOADS];
    int uploads;     /* places */
    int64_t entered; /* micro-batches so far */
} wd_activations;

/* Device memory of a micro-batch, of fitted options. */
size_t wd__sweep_place_bytes(const wd_sweep_options *options);

/* *out must not be moved. `part`: what the device does in sweeps. `arena_bytes` 0: the arena only
 * measures, so that stages may run on a dry device alone. */
wd_status wd__activations_open(wd_activations *out, const wd_sweep_options *options,
                               const wd_sweep_device *part, size_t arena_bytes, wd_queue *queue,
                               wd_err *err);
void wd__activations_close(wd_activations *activations); /* a zeroed one is fine */

/* The memory that a micro-batch's embedding reads, which the caller fills: timesteps [B] and text
 * [B, S, text_dim] dtype in host memory, latents [B, C, F, H, W] in device memory, in the order of
 * the device's queue. */
typedef struct wd_activations_input {
    float *timestep;
    char *text;
    float *latents;
} wd_activations_input;

/* Begins to embed a micro-batch. Waits until the host memory is free again. */
wd_activations_input wd__activations_begin_enter(wd_activations *activations);

/* Embeds a micro-batch of `samples`, whose input is filled. */
void wd__activations_enter(wd_activations *activations, wd_activation_place *place,
                           const wd_activations_input *input, int64_t samples,
                           const wd_dit_stage *weights);

/* Runs a block for a micro-batch of `samples`. */
void wd__activations_run_block(wd_activations *activations, wd_activation_place *place,
                               int64_t samples, const wd_dit_stage *weights);

/* Runs an expert's head for a micro-batch of `samples`, which leaves its place. Returns the guided
 * velocities [B, C, F, H, W], which stay there until the next stage begins. */
float *wd__activations_leave(wd_activations *activations, wd_activation_place *place,
                             int64_t samples, int expert, const wd_dit_stage *weights);

/* Copies to another device what the next stage reads of a micro-batch of `samples`. */
void wd__activations_copy(wd_activations *to, wd_activation_place *to_place, wd_activations *from,
                          wd_activation_place *from_place, int64_t samples, wd_stage_kind next);

/* ---- micro-batches that go from one rank's device to another's ----
 *
 * Data flow: place on a device -> host staging -> (WD_LANE_ACTIVATIONS) -> the other rank's staging
 * -> place on its device. A few are on their way at a time. The sender goes on at once; the
 * receiver waits for what comes, while its device computes what came before.
 *
 * Why ranks that share a teacher never wait for one another for ever: all of them go through the
 * same schedules in the same order, each launching the entries of its own devices. At an entry a
 * rank may wait for the entry's sender, for a staging whose micro-batch was sent some entries
 * before, or for targets of an earlier sweep: always for others to do this entry or one before it.
 * Take, of all unfinished entries, the first. Everything before it is done, so its sender waits for
 * nobody, sends, and the receiver goes on. */

/* One direction of a device: to other ranks, or from them. */
typedef struct wd_activation_transfer {
    wd_comm *comm;                            /* borrowed; NULL: nothing goes that way */
    wd_queue *queue;                          /* of the device, borrowed */
    char *staging;                            /* [WD_TRANSFERS_UNDER_WAY, bytes] host */
    size_t bytes;                             /* of the largest micro-batch */
    wd_event *copied[WD_TRANSFERS_UNDER_WAY]; /* to the staging, or from it */
    wd_ticket sent[WD_TRANSFERS_UNDER_WAY];
    int64_t sends, receives; /* micro-batches so far */
} wd_activation_transfer;

/* In place. The buffers are borrowed. */
wd_status wd__activation_transfer_open(wd_activation_transfer *out, wd_comm *comm,
                                       wd_activations *activations, wd_err *err);
void wd__activation_transfer_close(wd_activation_transfer *transfer); /* a zeroed one is fine */

/* Sends to rank `to` what the next stage reads of a micro-batch of `samples`, which leaves its
 * place. */
void wd__activation_transfer_send(wd_activation_transfer *transfer, wd_activations *from,
                                  wd_activation_place *place, int64_t samples, wd_stage_kind next,
                                  int to);

/* Receives a micro-batch from rank `from`, to a place. */
void wd__activation_transfer_receive(wd_activation_transfer *transfer, wd_activations *to,
                                     wd_activation_place *place, int64_t samples,
                                     wd_stage_kind next, int from);

#endif
