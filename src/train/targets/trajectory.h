/* Trajectories: which states the teacher is asked about, as a pure function of seed and options.
 *
 * N slots each follow one trajectory after another, from noise (u = 1) to a picture (u = 0) in K
 * steps on a grid of their own, jittered around even spacing. Slot j begins at round j mod K, so
 * that from round K - 1 on the slots hold all noise levels at any time. In every round each slot
 * that has begun gives one target. A target is known by its number: round by round, slot by slot.
 * Everything about it but its latents follows from that number; latents are the only state. */
#ifndef WD_TRAIN_TARGETS_TRAJECTORY_H
#define WD_TRAIN_TARGETS_TRAJECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/random.h"

enum { WD_TRAJECTORY_SIGMAS_MAX = 64 };

typedef struct wd_trajectory_options {
    uint64_t seed;
    int64_t slots;           /* N */
    int64_t steps;           /* K */
    int64_t student_steps;   /* S; 0: velocities are learnt, on grids that are jittered */
    int64_t chords;          /* C, of a trajectory (chord.h), which divides S and K; 0: S */
    double on_policy_share;  /* of trajectories, which go on from the student's own steps
                              * (rollouts.h); 0 where there are fewer than 2 chords */
    double on_policy_end;    /* the part of a phase after which none does; 1: the whole phase */
    int64_t on_policy_every; /* steps after which weights are copied for the student's own steps */
    /* above 0: trajectories are in pairs (wd__trajectory_twin), whose chords lead away from each
     * other (chord.h); N must be a multiple of 2 K. 0 where student_steps is 0, whose grids
     * differ */
    double diversity_gain;
    int64_t serial_first; /* number of the first trajectory, and of the first pair */
    int64_t prompts; /* of the data set; each is used once per epoch of trajectories, or pairs */
    double flow_shift;
    int64_t num_train_timesteps;           /* 1000 */
    bool integer_timesteps;                /* UniPC truncates 1000 sigma; Euler does not */
    float sigma[WD_TRAJECTORY_SIGMAS_MAX]; /* [steps] falling from 1: the teacher is asked at
                                            * exactly these states; sigma[0] = 0: by flow_shift */
} wd_trajectory_options;

/* Where a target lies in its trajectory, and which state of which prompt it is for. */
typedef struct wd_target_info {
    int64_t round, slot;
    int64_t serial; /* number of the trajectory */
    int64_t pair;   /* number of its pair, or its own where there are no pairs: its prompt and its
                     * noise follow from this number */
    bool second;    /* of its pair: its noise is negated */
    int64_t step;   /* within it: 0 is pure noise */
    int64_t prompt;
    float sigma;      /* noise level of the state */
    float sigma_next; /* where the trajectory goes from there: 0 at its end */
    float timestep;   /* of the state, as the teacher is given it */
} wd_target_info;

/* The timestep that a network is given at noise level `sigma`. */
float wd__trajectory_timestep(const wd_trajectory_options *options, float sigma);

/* Number of the first target of a round. */
int64_t wd_trajectory_first_target(const wd_trajectory_options *options, int64_t round);

/* Number of the target that a slot, which has begun by then, has in a round. */
int64_t wd__trajectory_number(const wd_trajectory_options *options, int64_t round, int64_t slot);

/* All about target number `target`. */
wd_target_info wd__trajectory_target(const wd_trajectory_options *options, int64_t target);

/* The slot of the other trajectory of a pair, where options->diversity_gain is set. Both have the
 * same prompt and the same noise levels at the same time. The second one's noise is the negative of
 * the first one's (antithetic variates), so each one alone begins with normal noise. */
int64_t wd__trajectory_twin(const wd_trajectory_options *options, int64_t slot);

/* Whether the trajectories of that pair are of the share that is on-policy. */
bool wd__trajectory_is_on_policy(const wd_trajectory_options *options, int64_t pair);

/* Which expert targets are for, 1 below the boundary: *out is a new array [rounds, slots], to be
 * freed with wd_free, of some rounds in which all slots have begun; they stand for all. */
wd_status wd_trajectory_experts(uint8_t **out, int64_t *rounds,
                                const wd_trajectory_options *options, double boundary_timestep,
                                wd_err *err);

/* Prompt of the trajectories of a pair: a new order of all prompts in every epoch. */
int64_t wd__trajectory_prompt(const wd_trajectory_options *options, int64_t pair);

/* Where i goes in a permutation of [0, count), of the many that a key can name; it costs no memory.
 */
int64_t wd_permute(int64_t i, int64_t count, wd_random key);

/* Which target (or chord, where student_steps is set: train/targets/chord.h) sample number `sample`
 * of the student's stream trains on, each being used `reuse` times on average: every reuse-th
 * sample is the next new one, the others are drawn from the `replay` before it. */
int64_t wd__stream_target(const wd_trajectory_options *options, int64_t sample, int64_t reuse,
                          int64_t replay);

/* More samples than any run sees: numbers of their targets stay far within int64_t. */
#define WD_STREAM_SAMPLES_MAX (INT64_C(1) << 44)

/* The highest number of a target (or chord) that samples [0, sample_end) may ask for. */
static inline int64_t wd__stream_target_last(int64_t sample_end, int64_t reuse)
{
    return (sample_end - 1) / reuse;
}

#endif
