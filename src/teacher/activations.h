/* Activation buffers: a device's memory for the micro-batches of a sweep, one block of its pool. It
 * has the places of micro-batches that are on the device, and the scratch memory of the stage that
 * runs, with the buffers of an embedding or a head, which are filled and read in the order of the
 * queue. Private to src/teacher. */
#ifndef WD_TEACHER_ACTIVATIONS_H
#define WD_TEACHER_ACTIVATIONS_H

#include "teacher/sweep_schedule.h"
#include "teacher/sweep_options.h"

/* The place of one micro-batch. */
typedef struct wd_activation_place {
    wd_dit_stream stream[2]; /* conditional, unconditional */
    wd_event *left;          /* on the device's queue: the micro-batch that was here has left */
} wd_activation_place;

typedef struct wd_activations {
    const wd_sweep_options *options; /* borrowed */
    wd_queue *queue;                 /* borrowed */
    wd_device *device;
    bool guided;
    int64_t state_count; /* elements of one state's latents */
    wd_dit_rope rope;
    void *block;
    wd_arena arena;
    size_t mark;                /* of the arena: the scratch memory of a stage begins here */
    wd_activation_place *place; /* [places] */
    int places;
    /* Device memory of an embedding. States are embedded one after another, since a long text may
     * take more memory than a stream. */
    void *text_negative; /* [1, S, text_dim] dtype, where guided; uploaded once */
    float *latents;      /* [1, C, F, H, W] */
    /* Host memory of an embedding, which copies read: places used in turn, each of which is free
     * again once its `uploaded` has happened. */
    float *host_timestep; /* [uploads, micro_batch] */
    char *host_text;      /* [uploads, micro_batch, S, text_dim] dtype */
    wd_event *uploaded[WD_SWEEP_UPLOADS];
    int uploads;     /* places */
    int64_t entered; /* micro-batches so far */
    /* Device memory of a head. */
    float *scale[2]; /* [1] of each expert, uploaded once */
    float *velocity; /* [1, C, F, H, W], guided; until the next stage begins */
} wd_activations;

/* Device memory of a micro-batch, of fitted options. */
size_t wd_sweep_place_bytes(const wd_sweep_options *options);

/* Bytes of activations that go from device to device. */
typedef struct wd_activation_bytes {
    size_t state; /* of each state */
    size_t batch; /* of each micro-batch, whose states have the unconditional text in common */
    size_t head;  /* of each state that goes to a head */
} wd_activation_bytes;

wd_activation_bytes wd_activation_bytes_of(const wd_sweep_options *options);

/* *out must not be moved. `part`: what the device does in sweeps. `arena_bytes` 0: the arena only
 * measures, so that stages may run on a dry device alone. */
wd_status wd_activations_open(wd_activations *out, const wd_sweep_options *options,
                              const wd_sweep_part *part, size_t arena_bytes, wd_queue *queue,
                              wd_err *err);
void wd_activations_close(wd_activations *activations); /* a zeroed one is fine */

/* Where the next micro-batch's timesteps and text go: [micro_batch], and [micro_batch, S, text_dim]
 * dtype. */
typedef struct wd_activations_host {
    float *timestep;
    char *text;
} wd_activations_host;

/* Waits until that memory is free again. */
wd_activations_host wd_activations_await_host(wd_activations *activations);

/* All copies from that memory are launched. */
void wd_activations_entered(wd_activations *activations);

/* Begins a micro-batch's turn at a stage, whose scratch memory, and buffers if it is an embedding,
 * take the place of the last stage's. */
void wd_activations_begin(wd_activations *activations, wd_stage_kind kind);

/* Embeds a micro-batch of `samples`, whose timesteps and text are in host memory: _enter what its
 * states have in common, then _enter_state each state, whose latents are in `activations->latents`.
 */
void wd_activations_enter(wd_activations *activations, wd_activation_place *place, int64_t samples,
                          const wd_dit_stage *weights);
void wd_activations_enter_state(wd_activations *activations, wd_activation_place *place,
                                int64_t state, const wd_dit_stage *weights);

/* Runs a block for a micro-batch of `samples`. */
void wd_activations_run_block(wd_activations *activations, wd_activation_place *place,
                              int64_t samples, const wd_dit_stage *weights);

/* Runs an expert's head for a state of the micro-batch: `activations->velocity` = its velocity,
 * which stays there until the next state's. */
void wd_activations_leave_state(wd_activations *activations, wd_activation_place *place,
                                int64_t state, int expert, const wd_dit_stage *weights);

/* Copies to another device what the next stage reads of a micro-batch of `samples`. */
void wd_activations_copy(wd_activations *to, wd_activation_place *to_place, wd_activations *from,
                         wd_activation_place *from_place, int64_t samples, wd_stage_kind next);

/* The bytes of that copy. */
size_t wd_activations_stream_bytes(const wd_activations *activations, int64_t samples,
                                   wd_stage_kind next);

/* Such a copy between a place and host memory. */
typedef enum wd_activations_way { WD_ACTIVATIONS_OUT, WD_ACTIVATIONS_IN } wd_activations_way;
void wd_activations_copy_host(wd_activations *activations, wd_activation_place *place, char *host,
                              int64_t samples, wd_stage_kind next, wd_activations_way way);

#endif
