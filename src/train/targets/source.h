/* Folder train/targets. What is learned from: trajectories of the teacher, their targets, batches.
 *
 * Sources: where a network's training batches come from.
 *
 * A source owns a stream of samples, numbered from 0: which latents, noise level, prompt and target
 * sample s has is a pure function of the seed and the source's options. How the targets are
 * computed (window, placement, when) is its own business. A kind of source is a file beside this
 * one, such as source_trajectory.c, which gives a vtable; a recipe names the vtable, and the
 * stepper (train/loop/stepper.h) knows nothing else of a source. */
#ifndef WD_TRAIN_TARGETS_SOURCE_H
#define WD_TRAIN_TARGETS_SOURCE_H

#include "train/network/optimizer.h"
#include "train/output/checkpoint.h"
#include "train/targets/rollouts.h"
#include "train/targets/target_store.h"
#include "train/targets/trajectory.h"

/* What a source is told of the run, or of one of its phases. */
typedef struct wd_source_options {
    wd_trajectory_options trajectory;
    wd_batches_options batches;
    int64_t reuse;        /* student samples per target, or per chord (trajectory.student_steps) */
    int64_t replay;       /* how many earlier ones are drawn from */
    int64_t step_samples; /* of one optimiser step */
    int64_t samples_end;  /* of all steps; 0: nobody knows. No weights are brought for later ones */
    int64_t window; /* states of one sweep, of all ranks' sweeps together: never changes a result */
    wd_comm *comm;  /* borrowed; NULL: there is one rank */
    wd_rollouts_options rollouts; /* of on-policy trajectories, where there are any */
    /* The folder to which targets are written as they are made; NULL: none. Needs one rank. */
    const wd_store_options *store_to;
    wd_target_store *stored; /* from which targets are read; NULL: they are made */
} wd_source_options;

typedef struct wd_source wd_source;

typedef struct wd_source_vtable {
    /* ---- before a source is open, from its options alone; rollouts.student may be NULL ---- */
    /* Checks whether a source with these options can continue from the state `saved` (the JSON
     * object that `save` gave). WD_MISMATCH names the option by which its samples would differ. */
    wd_status (*check_saved)(const wd_source_options *options, const json_t *saved, wd_err *err);
    /* How many targets the first `samples` samples of a phase need. */
    int64_t (*targets)(const wd_source_options *options, int64_t samples);
    /* How many targets a step of all ranks needs on average. */
    double (*step_targets)(const wd_source_options *options);
    /* Bytes that a step copies to a rank's student device to make these targets, without the
     * teacher's. */
    double (*step_bytes)(const wd_source_options *options);
    /* How many sweeps after one sweep a state has its next. */
    int64_t (*sweeps_apart)(const wd_source_options *options);
    /* *out = an open source. All is borrowed; the sweep's window_max is at least the window, or
     * this rank's share of it. With several ranks all of them do the same, in the same order:
     * targets go from rank to rank. `queue`: where batches are filled. `home`: where trajectories
     * move on, of the same device; where it is another queue, a sweep need not wait for the
     * student, nor the next one for the last of this one. */
    wd_status (*open)(wd_source **out, const wd_source_options *options, wd_sweep *sweep,
                      wd_queue *home, wd_queue *queue, wd_err *err);
    /* ---- of an open source ---- */
    /* Computes what samples [0, end) need and is not there yet. */
    wd_status (*prepare)(wd_source *self, int64_t end, wd_err *err);
    /* Step `step` of the phase begins, whose samples are prepared, and `progress`, 0 to 1, of the
     * phase is over: what the source takes of the networks' weights it takes here. All ranks. */
    wd_status (*begin_step)(wd_source *self, int64_t step, double progress, wd_err *err);
    /* The batch of samples [first, first + samples), prepared before, good until the next one. */
    void (*fill)(wd_source *self, wd_batch *out, int64_t first, int64_t samples);
    /* The state to save: a JSON object (new) and tensors; names and views live as long as self. */
    wd_status (*save)(wd_source *self, json_t **json, const wd_checkpoint_tensor **tensors,
                      int64_t *count, wd_err *err);
    /* *count of the tensors that `save` gives, as they are now. */
    const wd_checkpoint_tensor *(*saved)(const wd_source *self, int64_t *count);
    /* Takes up the state that was saved after `steps` steps of the phase: `json` first, so that
     * `tensors` then has the shapes to load into. WD_BAD_FORMAT: it cannot be the state of that
     * step. */
    wd_status (*restore)(wd_source *self, const json_t *json, int64_t steps, wd_err *err);
    /* Checks, after `save`, that the saved tensors are finite, with memory of `optimizer`.
     * WD_NOT_FINITE names the first that is not, in the order in which one makes the next not
     * finite. */
    wd_status (*check_finite)(const wd_source *self, const wd_optimizer *optimizer, wd_err *err);
    void (*close)(wd_source *self);
} wd_source_vtable;

struct wd_source {
    const wd_source_vtable *vtable;
    int64_t targets;         /* computed so far */
    double flops_per_sample; /* of making a sample, on the student's device, without the teacher */
    wd_params *snapshot;     /* weights that checkpoints keep beside the networks'; NULL: none */
};

/* The teacher's trajectories as a source: its guided velocity at states along its own trajectories,
 * or chords of these. Only prompts are needed, no pictures. See train/targets/trajectory.h for
 * which states these are. */
extern const wd_source_vtable wd_source_trajectory;

/* Targets of a store as a source: see source_stored.c. */
extern const wd_source_vtable wd_source_stored;

/* Checks that a student with these options, of which trajectory and stored are read, can learn from
 * the store. WD_INVALID_ARGUMENT names the option that does not fit. */
wd_status wd_source_stored_check(const wd_source_options *options, wd_err *err);

/* How many targets of the store samples can draw from, or chords where the student learns these.
 * Behind so many the source begins again, in another order. */
int64_t wd_source_stored_count(const wd_source_options *options);
/* How many targets, or chords, the first `samples` samples of the stream draw from. */
int64_t wd_source_drawn(const wd_source_options *options, int64_t samples);

wd_status wd_source_prepare(wd_source *source, int64_t end, wd_err *err);
wd_status wd_source_begin_step(wd_source *source, int64_t step, double progress, wd_err *err);
void wd_source_fill(wd_source *source, wd_batch *out, int64_t first, int64_t samples);
wd_status wd_source_save(wd_source *source, json_t **json, const wd_checkpoint_tensor **tensors,
                         int64_t *count, wd_err *err);
const wd_checkpoint_tensor *wd_source_saved(const wd_source *source, int64_t *count);
wd_status wd_source_restore(wd_source *source, const json_t *json, int64_t steps, wd_err *err);
wd_status wd_source_check_finite(const wd_source *source, const wd_optimizer *optimizer,
                                 wd_err *err);
void wd_source_close(wd_source *source); /* NULL is allowed */

#endif
