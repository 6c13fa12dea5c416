/* Chords: what a student of few steps learns from the teacher's trajectories.
 *
 * A trajectory of K steps is C blocks of L = K / C steps, and a student of S = C steps is to do a
 * block at once. Its target at the state X where a block begins is the slope of the straight line,
 * the chord, to the state where the block ends:
 *
 *     (X_end - X) / (sigma_end - sigma) = sum over the block of w_i v_i,
 *     w_i = (sigma_{i+1} - sigma_i) / (sigma_end - sigma),
 *
 * with v_i the teacher's guided velocities that moved the trajectory along (Euler). The student
 * then samples by X_end = X + (sigma_end - sigma) u, which is one Euler step on the coarse grid.
 * Source: trajectory consistency by averaged velocities, as in PDD (arXiv 2607.26004).
 *
 * A student of S = M C steps makes M of them along each chord: one begins at each of the states
 * X + (sigma_m - sigma) u, m < M, where sigma_m are the levels of its grid in the block. At all of
 * them u is the target, so that its flow is straight within a block, as in PeRFlow (arXiv
 * 2405.07510). The m of a sample is random, and follows from the number of the sample.
 *
 * A student that has not learnt all of this draws pictures that are closer to the mean picture of
 * their prompt than the teacher's are. options->diversity_gain (g) makes up for it: of the two
 * trajectories of a pair (train/targets/trajectory.h), which have the same prompt, each one's chord
 * leads away from the picture that the other one's leads to. With P = X - sigma u, where the chord
 * u leads if it goes on to sigma 0, and P' and X' of the other trajectory, the target is the chord
 * that leads to P + h (P - P'), with h = g (sigma^2 + sigma_end^2) / 2:
 *
 *     u + h ((u - u') - (X - X') / sigma).
 *
 * The two begin with opposite noise, so P' lies roughly as far from the prompt's mean as P does, on
 * the other side: P - P' is twice the way from the mean to P, and the student learns to go on. It
 * goes less far in later blocks, where the same diversity costs more exactness (docs/recipe.md).
 *
 * Chords are numbered in the order in which they become known: by the round in which a block's
 * last velocity is made, and in a round by slot. All of this follows from the number alone. */
#ifndef WD_TRAIN_TARGETS_CHORD_H
#define WD_TRAIN_TARGETS_CHORD_H

#include "train/targets/trajectory.h"

enum { WD_CHORD_STEPS_MAX = 64 }; /* L */

typedef struct wd_chord {
    int64_t round, slot;                /* of the block's last target */
    int64_t length;                     /* L */
    int64_t target[WD_CHORD_STEPS_MAX]; /* numbers of the block's targets, the first one first */
    float weight[WD_CHORD_STEPS_MAX];   /* w_i: their sum is 1 */
    float gain;                         /* h; 0: the twin is not needed */
    float sigma;                        /* where the block begins */
    int64_t twin[WD_CHORD_STEPS_MAX];   /* with a gain: those of the pair's other chord */
} wd_chord;

/* C, the number of a trajectory's chords; 0: the student learns velocities. */
static inline int64_t wd_chords(const wd_trajectory_options *options)
{
    return options->chords ? options->chords : options->student_steps;
}

/* L, the number of the teacher's steps that a chord replaces, where there are chords. */
static inline int64_t wd_chord_length(const wd_trajectory_options *options)
{
    return options->steps / wd_chords(options);
}

/* How many chords are known once all targets of the rounds before `round` are made, which is the
 * number of the first chord of `round`. */
int64_t wd__chord_first(const wd_trajectory_options *options, int64_t round);

/* The target at which the block of chord `number` begins: the state, noise level and prompt that
 * the student gets. */
wd_target_info wd__chord_begin(const wd_trajectory_options *options, int64_t number);

/* Where on its chord a sample lies. */
typedef struct wd_chord_point {
    float dt;       /* the state is X + dt u */
    float timestep; /* that the student is given */
} wd_chord_point;

/* Where the step number `step`, of those that the student makes along the chord whose block has
 * that `begin`, begins. */
wd_chord_point wd__chord_point_at(const wd_trajectory_options *options, const wd_target_info *begin,
                                  int64_t step);

/* Sample number `sample` of the student's stream trains on the chord whose block has that `begin`.
 */
wd_chord_point wd__chord_point_of(const wd_trajectory_options *options, const wd_target_info *begin,
                                  int64_t sample);

/* The weight in the student's loss of the chord whose block has that `begin`: its length in sigma,
 * over the mean of a trajectory's chords, 1 / C. An error of the velocity moves the state by so
 * much at the end of the block. All samples along a chord have that weight: the sizes of their own
 * steps made no better student (docs/recipe.md). */
float wd__chord_loss_weight(const wd_trajectory_options *options, const wd_target_info *begin);

/* Sets the weights, the gain and the noise level of a chord, whose length is set, from the noise
 * levels of its block: sigma [length + 1], the last one where it ends. */
void wd__chord_shape(wd_chord *chord, const float *sigma, double diversity_gain);

/* All about chord `number`. */
wd_chord wd__chord_at(const wd_trajectory_options *options, int64_t number);

/* How many targets samples [0, sample_end) of the stream need, each target, or chord where
 * options->student_steps is set, being used `reuse` times. With pairs these are whole groups of 2 K
 * slots of a round, in which all pairs are complete. */
int64_t wd__stream_targets(const wd_trajectory_options *options, int64_t sample_end, int64_t reuse);

/* Returns the mean number of targets that a sample needs. */
double wd__stream_targets_each(const wd_trajectory_options *options, int64_t reuse);

/* Returns the mean number of the student's own steps (train/targets/rollouts.h) that a sample
 * needs, over the whole training. The last block of a trajectory needs no rollout, because no block
 * follows it.
 */
double wd__stream_rollouts_each(const wd_trajectory_options *options, int64_t reuse);

#endif
