/* The stepper of a distillation: everything that a training step uses, opened together.
 *
 * Data flow of a step: teacher (residency, sweep) -> source, which gives batches -> passes and
 * losses of the recipe's networks, micro-batch by micro-batch -> sums of all ranks' gradients ->
 * optimizers. What a step uses is allocated here. Opened on a dry device it is the memory plan: see
 * train/loop/memory_plan.h.
 *
 * All ranks open the same stepper and make the same steps. A step's micro-batches
 * m = 0 .. ranks * accumulation - 1 follow one another in the stream of samples; in round a rank r
 * makes m = a * ranks + r. So a step has the same samples for any number of ranks. */
#ifndef WD_TRAIN_LOOP_STEPPER_H
#define WD_TRAIN_LOOP_STEPPER_H

#include "teacher/run/residency.h"
#include "train/loop/phases.h"
#include "train/network/config.h"
#include "train/network/network.h"
#include "train/targets/target_store.h"

/* The share of a training pass's time that its backward pass takes, in which gradients become
 * final. */
#define WD_BACKWARD_SHARE (2.0 / 3)

/* What a run measures of its student on the way: see train/loop/validation.h. */
typedef struct wd_validation_options wd_validation_options;

struct wd_stepper_options {
    const wd_recipe *recipe;    /* of the run, or of each phase, where it has phases */
    const wd_pipeline *teacher; /* borrowed */
    const wd_pipeline *first; /* whose blocks a new student starts from, borrowed; NULL: teacher */
    const int64_t *blocks; /* [student.layers] which of its blocks, borrowed; NULL: spread evenly */
    wd_comm *comm;         /* borrowed; NULL: a run without ranks */
    wd_dit_config student;
    wd_dtype teacher_dtype; /* dtype of its weights: F32, F16, BF16 */
    wd_dtype student_dtype; /* compute: F32 or BF16 */
    wd_dtype gradients;     /* as in wd_network_options */
    int64_t latent_height, latent_width;
    int64_t text_tokens, text_repeat; /* as in wd_dit_shape, of teacher and student */
    wd_trajectory_options trajectory;
    int64_t reuse, replay;
    int64_t window;      /* states of a sweep over the teacher, of all ranks together */
    int64_t micro_batch; /* states that go through a stage of the teacher together */
    double guidance_scale[2];
    int64_t batch, accumulation; /* samples of a micro-batch; micro-batches of a step and rank */
    wd_phases phases;            /* the recipe and reuse of each; count 0: they are above */
    int phase;                   /* index of the phase that this stepper trains; 0 is the first */
    int64_t first_step;          /* steps of the run before this phase */
    int64_t steps;             /* the last step of this phase, or of the run; 0: it is not known */
    bool deterministic_reduce; /* gradients are added in the order of the micro-batches: the same
                                * bits for any number of ranks at equal step samples */
    bool shard_optimizer;      /* each rank has moments, EMA and master weights of its share */
    wd_state_place place;
    bool checkpointing, ema;
    wd_optimizer_options optimizer;
    const wd_store_options *store_to; /* where targets are stored, borrowed; NULL: nowhere */
    wd_target_store *stored; /* from which targets are read in the place of a teacher's, borrowed;
                              * NULL: they are made */
    const wd_validation_options *validation; /* for trainers and plans, borrowed; NULL: none */
    wd_sweep_text_fn *text;
    void *text_context;
};

/* Where the teacher's weights are, and which queues compute with them; all borrowed. */
typedef struct wd_stepper_teacher {
    wd_residency *residency; /* gives the weights of this rank's stages; NULL: there is none, and no
                              * step can be made, to plan what the rest needs */
    const wd_placement *placement; /* of all ranks; NULL: all stages are on queues[0]'s device */
    wd_queue *const *queues;       /* one for each of this rank's devices: see wd_sweep_open */
    wd_queue *home;                /* advances the trajectories, on the student's device */
} wd_stepper_teacher;

/* The options of a stepper that is in the phase which began there, and ends before step `last` (0:
 * nobody knows), made from those of the run. */
wd_stepper_options wd__stepper_of_phase(const wd_stepper_options *run, const wd_phase_begin *begin,
                                        int64_t last);

/* The options of the stepper in the phase that asks most of the teacher in a step. */
wd_stepper_options wd_stepper_in_phase_of_most_targets(const wd_stepper_options *run);

/* What a new student starts from. */
static inline const wd_pipeline *wd__stepper_first(const wd_stepper_options *options)
{
    return options->first ? options->first : options->teacher;
}

/* Networks train on `queue` (borrowed). Their weights are zero until wd_stepper_begin or
 * wd__stepper_load. `teacher` NULL: there is none, and trajectories move on on `queue`. */
wd_status wd_stepper_open(wd_stepper **out, const wd_stepper_options *options,
                          const wd_stepper_teacher *teacher, wd_queue *queue, wd_err *err);
void wd_stepper_close(wd_stepper *stepper); /* NULL is allowed */

/* Goes on with the next phase, whose options wd__stepper_of_phase gives. All results of the steps
 * before have been taken. All ranks. */
wd_status wd__stepper_enter_phase(wd_stepper *stepper, const wd_stepper_options *phase,
                                  wd_err *err);

/* The networks get the weights that a new run begins with. WD_INTERRUPTED: a stop was requested of
 * this rank, and they are not whole; other ranks may not know of it. */
wd_status wd_stepper_begin(wd_stepper *stepper, wd_err *err);

/* Its options, in the phase under way, and the queue on which networks train. */
const wd_stepper_options *wd__stepper_options_of(const wd_stepper *stepper);
wd_queue *wd__stepper_queue(const wd_stepper *stepper);

/* The student, its parameters, the teacher's sweep (NULL: there is no teacher), and the number of
 * targets that were made so far; earlier phases count those that their samples needed, and none
 * that were made ahead. */
wd_network *wd__stepper_student(const wd_stepper *stepper);
wd_params *wd__stepper_params(const wd_stepper *stepper);
wd_sweep *wd__stepper_sweep(const wd_stepper *stepper);
int64_t wd__stepper_targets(const wd_stepper *stepper);

/* How many targets the samples of the run's steps before `step` need, in this phase and those
 * before it. */
int64_t wd__stepper_targets_until(const wd_stepper_options *options, int64_t step);

int wd_stepper_ranks(const wd_stepper_options *options);

/* Samples of an optimiser step: of all ranks. */
int64_t wd_stepper_step_samples(const wd_stepper_options *options);

/* Targets that a step of all ranks needs on average. */
double wd_stepper_step_targets(const wd_stepper_options *options);

/* Checks that the student can learn from the store that it is to learn from, if there is one. */
wd_status wd_stepper_check_stored(const wd_stepper_options *options, wd_err *err);

/* How many targets of that store, or chords where it learns these, the samples draw from before
 * they go round again, and how many the run's steps draw in all; 0 steps: nobody knows. */
int64_t wd_stepper_stored_count(const wd_stepper_options *options);
int64_t wd_stepper_stored_drawn(const wd_stepper_options *options, int64_t steps);

/* Elements of one state's latents. */
int64_t wd__stepper_state_count(const wd_stepper_options *options);

/* Checks whether a stepper with these options can continue from the state `saved` of a source.
 * WD_MISMATCH names the option by which its samples would differ. Opens nothing. */
wd_status wd__stepper_check_stream(const wd_stepper_options *options, const json_t *saved,
                                   wd_err *err);

/* Bytes that a step copies to a rank's student device, without the teacher's: text and timesteps of
 * batches and of rollouts, the noise of trajectories that begin, the sigma steps of all others and
 * of rollouts, the learning rate and what AdEMAMix needs beside it. */
double wd_stepper_step_bytes(const wd_stepper_options *options);

/* Bytes that a step copies back from that device: losses and the norm of gradients. */
double wd_stepper_back_bytes(const wd_stepper_options *options);

/* How many steps before a step of the student the teacher may begin to make its targets. They are
 * asked for while the step before is launched, after its first micro-batch; the launch is up to
 * WD_BATCHES_UNDER_WAY micro-batches, and a step, ahead of the device. Where the optimizer's state
 * is on the host, a step is launched when the one before is over. With several ranks the first
 * micro-batch whose gradients are exchanged blocks the launch until all but the last few buckets
 * have been exchanged. `weights`: elements of the student's parameters. */
double wd_stepper_steps_ahead(const wd_stepper_options *options, int64_t weights);

/* Whether a step of this stepper may have several micro-batches: gradients in BF16 are added up
 * only where they are reduced by rounds. */
bool wd_stepper_may_accumulate(const wd_stepper_options *options);

/* Whether the networks can be updated only after the source was asked for the last targets of the
 * next step, since gradients are exchanged until then. */
bool wd_stepper_update_waits(const wd_stepper_options *options);

/* The options of the sweeps that a stepper with these options runs. */
wd_sweep_options wd_stepper_sweep_options(const wd_stepper_options *options);

/* What a step depends on beside the stepper's options. The same on all ranks. */
typedef struct wd_step {
    int64_t number;  /* of the run, from 0 */
    double lr;       /* learning rate */
    double progress; /* share of the phase that is over */
    bool pauses; /* a checkpoint or the end follows: no targets of later steps are made, so that the
                  * checkpoint is the same for any number of ranks */
} wd_step;

/* One optimiser step: makes the targets it needs, runs its micro-batches in order, updates the
 * weights. All ranks. Its result is there a step later: wd_stepper_take_result. */
wd_status wd_stepper_step(wd_stepper *stepper, const wd_step *step, wd_err *err);

/* Returns WD_DEVICE_FAULT where a device that the stepper computes on has failed, whose results are
 * then wrong. Called once per step, when the step's result has arrived. */
wd_status wd__stepper_check_devices(const wd_stepper *stepper, wd_err *err);

/* The result of a step, once it has been copied back. */
typedef struct wd_step_result {
    int64_t step;
    double loss;      /* mean over its samples, of all ranks */
    double grad_norm; /* before clipping; the same on all ranks */
} wd_step_result;

/* Gives what a checkpoint keeps of the stepper: tensors, whose list is valid until the next call,
 * and *run = a new JSON object with the source's state ("stream") and the number of steps that each
 * optimizer has taken. All ranks. Waits for the stepper's queue. */
wd_status wd__stepper_save(wd_stepper *stepper, json_t **run, wd_checkpoint_tensors *tensors,
                           wd_err *err);

/* Continues from a checkpoint. All ranks. */
wd_status wd__stepper_load(wd_stepper *stepper, const wd_checkpoint *checkpoint, wd_err *err);

/* Checks that the tensors that wd__stepper_save has just given are finite. WD_NOT_FINITE names the
 * first that is not, in the order in which one makes the next not finite. All ranks; where they
 * share a network each checks its share. Waits for the stepper's queue. */
wd_status wd__stepper_check_finite(const wd_stepper *stepper, wd_err *err);

/* Results that were launched and not yet taken. */
int wd_stepper_results_pending(const wd_stepper *stepper);

/* Waits for the oldest result that was not yet taken. All ranks. */
wd_step_result wd_stepper_take_result(wd_stepper *stepper);

#endif
