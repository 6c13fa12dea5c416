/* The ring of targets: states that the teacher is asked about, and the velocities that it gives.
 * And where the trajectories under way are.
 *
 * A target's index in the ring follows from its number. Once all trajectories have begun, every
 * round (train/targets/trajectory.h) is contiguous in the ring. The ring has room for the oldest
 * target that a sample may draw. */
#ifndef WD_TRAIN_TARGETS_TARGETS_H
#define WD_TRAIN_TARGETS_TARGETS_H

#include "dev/device.h"
#include "train/targets/trajectory.h"

typedef struct wd_targets {
    wd_device *device;         /* borrowed */
    int64_t capacity;          /* of the ring: whole rounds */
    int64_t shift;             /* of a target's index in the ring from its number */
    int64_t state_count;       /* elements of one state's latents */
    float *latents, *velocity; /* [capacity, state_count] device; owned, as is all that follows */
    float *dt;                 /* [capacity] device: sigma steps that follow from targets */
    wd_event **arrival;        /* [capacity] when a velocity is there, borrowed; NULL: the
                                * velocity is there already, or another rank sends it */
    int64_t awaited;           /* targets that wd__targets_await has seen */
} wd_targets;

/* Room for `needed` targets at least. */
wd_status wd__targets_open(wd_targets *out, const wd_trajectory_options *options, int64_t needed,
                           int64_t state_count, wd_device *device, wd_err *err);
void wd__targets_close(wd_targets *targets); /* a zeroed one is fine */

/* The queue waits for the targets before `end`, and for no later ones: those are on their way while
 * the student computes. */
void wd__targets_await(wd_targets *targets, int64_t end, wd_queue *queue);

static inline int64_t wd__targets_ring_index(const wd_targets *targets, int64_t number)
{
    return (number + targets->shift) % targets->capacity;
}

/* ---- where trajectories are ----
 *
 * Their latents move on along the teacher's ODE.
 *
 * Data flow: noise or latents -> (copied) the ring of targets, where the teacher reads them ->
 * velocity -> an Euler step of the latents. The Euler step is made only when the trajectory's next
 * state is wanted, so nothing waits for a velocity earlier than that. */

/* A step of a trajectory whose velocity is on its way. */
typedef struct wd_pending_step {
    int64_t ring_index;  /* of its target; < 0: there is no step to make */
    wd_event *delivered; /* NULL: the velocity is there, for the queue's work */
} wd_pending_step;

typedef struct wd_trajectory_states {
    wd_targets *targets; /* borrowed */
    wd_queue *queue;     /* borrowed: where trajectories move on */
    int64_t slots;
    float *latents;           /* [slots, state_count] device: where each trajectory is; owned */
    wd_pending_step *pending; /* [slots]; owned */
} wd_trajectory_states;

wd_status wd__trajectory_states_open(wd_trajectory_states *out, int64_t slots, wd_targets *targets,
                                     wd_queue *queue, wd_err *err);
void wd__trajectory_states_close(wd_trajectory_states *states); /* a zeroed one is fine */

/* Copies states [count] into the ring. states[i] is the state of info[states[i]], and `ring_index`
 * is the index of info[0] in the ring. The noise of a trajectory's first state is in the ring
 * before. */
void wd__trajectory_states_begin(wd_trajectory_states *s, const wd_target_info *info,
                                 int64_t ring_index, const int64_t *states, int64_t count);

/* The slot's latents [state_count], which the caller now sets on the queue, to where its next state
 * is: the step of its last target is not made. */
static inline float *wd__trajectory_states_set(wd_trajectory_states *s, int64_t slot)
{
    s->pending[slot].ring_index = -1;
    return s->latents + slot * s->targets->state_count;
}

/* The velocity of the slot's latest state will be at that index of the ring. */
static inline void wd__trajectory_states_expect(wd_trajectory_states *s, int64_t slot,
                                                int64_t ring_index, wd_event *delivered)
{
    s->pending[slot] = (wd_pending_step){ring_index, delivered};
}

/* Makes all steps that are still to be made, and waits: where trajectories then are is saved. */
void wd__trajectory_states_finish(wd_trajectory_states *s);

#endif
