/* Activation buffers: what a device has for the micro-batches of a sweep, in one block of its pool.
 * Places for those that are on it, and what the stage that runs has beside: its scratch, and the
 * buffers of the embedding or of the head, which are filled and read in the order of the queue.
 * Private to src/teacher. */
#ifndef WD_TEACHER_ACTIVATIONS_H
#define WD_TEACHER_ACTIVATIONS_H

#include "teacher/sweep_schedule.h"
#include "teacher/sweep_options.h"

/* The place of one micro-batch. */
typedef struct wd_activation_place {
    wd_dit_stream stream[2]; /* conditional, unconditional */
    wd_event *left;          /* on the device's queue: whoever was here is done or has gone on */
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
    size_t mark;                /* of the arena: what is for one stage at a time begins here */
    wd_activation_place *place; /* [places] */
    int places;
    /* of an embedding; device. States come one after another: a long text is more than many a
     * stream */
    void *text_negative; /* [1, S, text_dim] dtype, where guided; uploaded once */
    float *latents;      /* [1, C, F, H, W] */
    /* of an embedding; host, read by copies: places that go round, none touched until its
     * `uploaded` */
    float *host_timestep; /* [uploads, micro_batch] */
    char *host_text;      /* [uploads, micro_batch, S, text_dim] dtype */
    wd_event *uploaded[WD_SWEEP_UPLOADS];
    int uploads;     /* places */
    int64_t entered; /* micro-batches so far */
    /* of a head; device */
    float *scale[2]; /* [1] of each expert, uploaded once */
    float *velocity; /* [1, C, F, H, W], guided; until the next stage begins */
} wd_activations;

/* Device memory of a micro-batch, of fitted options. */
size_t wd_sweep_place_bytes(const wd_sweep_options *options);

/* Bytes of activations that go on from device to device: of each state, and of each micro-batch,
 * whose states have the unconditional text in common. */
typedef struct wd_activation_bytes {
    size_t state, batch;
    size_t head; /* of each state, all that a head reads */
} wd_activation_bytes;

wd_activation_bytes wd_activation_bytes_of(const wd_sweep_options *options);

/* In place: *out must not be moved. `part`: what the device does. `arena_bytes` 0: `out->arena`
 * measures, and nothing may run but on a dry device. */
wd_status wd_activations_open(wd_activations *out, const wd_sweep_options *options,
                              const wd_sweep_part *part, size_t arena_bytes, wd_queue *queue,
                              wd_err *err);
void wd_activations_close(wd_activations *activations); /* a zeroed one is fine */

/* Where the next micro-batch's timesteps and text go, [micro_batch] and [micro_batch, S, text_dim]
 * dtype, as soon as they may; and that all copies from there are launched. */
typedef struct wd_activations_host {
    float *timestep;
    char *text;
} wd_activations_host;

wd_activations_host wd_activations_await_host(wd_activations *activations);
void wd_activations_entered(wd_activations *activations);

/* Before a micro-batch's turn at a stage: its scratch memory, and the buffers of an embedding, are
 * where those of the last stage were. */
void wd_activations_begin(wd_activations *activations, wd_stage_kind kind);

/* The embedding of a micro-batch of `samples`, whose timesteps and text are in host memory: first
 * what its states have in common, then each of them, whose latents are in `activations->latents`.
 */
void wd_activations_enter(wd_activations *activations, wd_activation_place *place, int64_t samples,
                          const wd_dit_stage *weights);
void wd_activations_enter_state(wd_activations *activations, wd_activation_place *place,
                                int64_t state, const wd_dit_stage *weights);

/* Runs a block for a micro-batch of `samples`. */
void wd_activations_run_block(wd_activations *activations, wd_activation_place *place,
                              int64_t samples, const wd_dit_stage *weights);

/* Runs an expert's head for a state of the micro-batch: `activations->velocity` is the state's,
 * until the next one's. */
void wd_activations_leave_state(wd_activations *activations, wd_activation_place *place,
                                int64_t state, int expert, const wd_dit_stage *weights);

/* What the next stage reads of a micro-batch of `samples` goes to another device. */
void wd_activations_copy(wd_activations *to, wd_activation_place *to_place, wd_activations *from,
                         wd_activation_place *from_place, int64_t samples, wd_stage_kind next);

/* The bytes of it; and to host memory, from there. */
size_t wd_activations_stream_bytes(const wd_activations *activations, int64_t samples,
                                   wd_stage_kind next);
void wd_activations_copy_out(wd_activations *from, char *to, const wd_activation_place *place,
                             int64_t samples, wd_stage_kind next);
void wd_activations_copy_in(wd_activations *to, wd_activation_place *place, const char *from,
                            int64_t samples, wd_stage_kind next);

#endif
