/* Rollouts: the student's own steps, at whose ends on-policy trajectories go on.
 *
 * A student of few steps begins each of its steps but the first where its own step before has led
 * it, which is not where the teacher would have been. An on-policy trajectory shows it such states:
 * at the end of each block (train/targets/chord.h) it goes on from
 *
 *     X_end = X + (sigma_end - sigma) u(X, sigma, prompt)
 *
 * with X the state where the block began and u the student's velocity there, and the teacher makes
 * the next chord from X_end. The chord of the block that has ended is the teacher's all the same.
 * A student that is to make several steps along a chord makes one over the whole block here: it
 * learns the same velocity at all of them.
 * u is computed with a snapshot, a copy of the student's weights that is made at defined steps, so
 * that states follow from seed, options and step alone (and from the time, where time ends the
 * run: after the share `on_policy_end` of it there is no snapshot). Source: imitation on the
 * student's own states (DAgger; for flow models pi-Flow, arXiv 2510.14974).
 *
 * Data flow: the student's weights -> (copied) the snapshot -> velocities at states that are put
 * here, some at a time -> where their blocks end. Its activations have memory of their own, so that
 * trajectories need not wait for the student's passes, nor these for trajectories. */
#ifndef WD_TRAIN_TARGETS_ROLLOUTS_H
#define WD_TRAIN_TARGETS_ROLLOUTS_H

#include "train/network/params.h"
#include "train/targets/batch.h"

typedef struct wd_rollouts_options {
    wd_params *student;         /* whose weights are copied; borrowed */
    wd_params_buffer buffer;    /* which of its weights: P or EMA */
    wd_batches_options batches; /* samples_max: how many states go through the student together */
    int64_t latent_height, latent_width, text_repeat; /* as in wd_dit_shape */
} wd_rollouts_options;

/* One state, and where it goes. */
typedef struct wd_rollout {
    const float *begin; /* [state_count] device */
    float *end;         /* [state_count] device, = */
    float timestep;     /* of `begin` */
    float dt;           /* sigma_end - sigma */
    int64_t prompt;
} wd_rollout;

typedef struct wd_rollouts wd_rollouts;

/* States are stepped on `home` (borrowed). Takes no snapshot. */
wd_status wd__rollouts_open(wd_rollouts **out, const wd_rollouts_options *options, wd_queue *home,
                            wd_err *err);
void wd__rollouts_close(wd_rollouts *rollouts); /* the queue is done; NULL is allowed */

/* Copies the student's weights as they are after the work on `queue` so far. Later rollouts use
 * them. All ranks; gradients are overwritten where ranks share the student. */
void wd__rollouts_take_snapshot(wd_rollouts *rollouts, wd_queue *queue);

/* The snapshot's parameters, for checkpoints. */
wd_params *wd__rollouts_snapshot(wd_rollouts *rollouts);

/* Adds a state. Where it goes is there, for `home`, after wd__rollouts_finish. */
void wd__rollouts_put(wd_rollouts *rollouts, const wd_rollout *rollout);
void wd__rollouts_finish(wd_rollouts *rollouts);

/* FLOPs of one state. */
double wd__rollouts_flops(const wd_rollouts *rollouts);

#endif
