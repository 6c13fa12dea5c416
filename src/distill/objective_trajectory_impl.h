/* Inside the trajectory objective: what its files share.
 *
 * Data flow: slot latents -> (copied) pool of states -> sweep -> pool of velocities = targets ->
 * Euler step of the slot's latents, made when they are wanted next; batches are gathered from the
 * pool. The pool is a ring by target number, as long as the stream can look back, plus the round
 * that is under way. Targets are made window by window, as batches need them, so that the student
 * works meanwhile; a round is made whole before it is saved, so that what is saved does not depend
 * on the window. */
#ifndef WD_DISTILL_OBJECTIVE_TRAJECTORY_IMPL_H
#define WD_DISTILL_OBJECTIVE_TRAJECTORY_IMPL_H

#include "distill/objective_trajectory.h"
#include "distill/shipment.h"

enum { WD_TRAJECTORY_SAVED = 3 }; /* tensors */

/* A step of a trajectory whose velocity is on its way: it is made when the state is wanted. */
typedef struct wd_pending_step {
    int64_t at;          /* of its target in the pool; < 0: none */
    wd_event *delivered; /* NULL: it is there, for home's work */
} wd_pending_step;

typedef struct wd_trajectory_objective {
    wd_objective base;
    wd_trajectory_objective_options options;
    wd_sweep *sweep;
    wd_queue *home, *queue;
    wd_device *device;
    int64_t round;    /* that base.targets, the next one to make, is of */
    int64_t capacity; /* of the pool: whole rounds, so that none lies around the ring's end */
    int64_t shift;    /* of a target's place from its number, for rounds to begin where they do */
    /* device */
    float *latents;                    /* [slots, state]: where each trajectory is now */
    float *pool_latents, *pool_target; /* [capacity, state] */
    float *dt;                         /* [capacity] sigma steps that follow from targets */
    float *batch_latents, *batch_target, *batch_timestep; /* [samples_max, ...] */
    void *batch_text;
    /* host, read by copies: not touched until the event says so */
    float *host_dt, *host_noise; /* [window_places, window], and [.., state] of each */
    float *host_timestep;        /* [window] */
    float *next_timestep;        /* [window] of the window after it */
    int64_t *host_prompt;
    wd_target_info *info;     /* [window] */
    int64_t first, at;        /* the window's first target, and its place in the pool */
    int64_t own;              /* the first state of the window that the sweep has */
    wd_event **delivered;     /* [window] */
    wd_event **arrival;       /* [capacity] of a target; NULL: it comes by shipment, or is there */
    int64_t awaited;          /* targets that the queue of batches has been told to wait for */
    wd_pending_step *pending; /* [slots] */
    float *host_batch_timestep; /* [batch_places, samples_max], and text of each */
    char *host_batch_text;
    wd_event *window_uploaded[WD_WINDOWS_UNDER_WAY], *batch_uploaded[WD_BATCHES_UNDER_WAY];
    int64_t windows, batches; /* so far: their places go round */
    int window_places, batch_places;
    wd_event *filled[2]; /* the batches of even steps, and of odd ones */
    int64_t end;         /* of the samples that are prepared */
    /* of several ranks; NULL: there is one */
    wd_shipments *shipments;
    bool *begun;               /* [capacity] its state is there, its velocity to come */
    int64_t *shipment;         /* [capacity] that a target comes with, from 1; 0: none */
    int64_t *slot_shipment;    /* [slots] that must be taken before the slot's next step */
    wd_target_info *come_info; /* [window]: of what is taken */
    int64_t *come_state;       /* [window]: of these, those that are still to be begun */
    wd_checkpoint_tensor saved[WD_TRAJECTORY_SAVED];
} wd_trajectory_objective;

static inline size_t wd_state_bytes(const wd_trajectory_objective *o)
{
    return (size_t)o->options.state_count * sizeof(float);
}

/* Where the staging of the window that is being made is. */
static inline int64_t wd_window_place(const wd_trajectory_objective *o)
{
    return o->windows % o->window_places;
}

/* Where a target is in the pool. */
static inline int64_t wd_target_place(const wd_trajectory_objective *o, int64_t number)
{
    return (number + o->shift) % o->capacity;
}

/* ---- where trajectories are: objective_trajectory_states.c ---- */

/* Noise, where the trajectory of info[state] begins, comes into the pool. */
void wd_states_noise(wd_trajectory_objective *o, int64_t state);

/* Brings states into the pool, where they are now; what begins is there. states[i] is that of
 * info[states[i]], and `at` the place of info[0]. */
void wd_states_begin(wd_trajectory_objective *o, const wd_target_info *info, int64_t at,
                     const int64_t *states, int64_t count);

/* Makes all steps that are still to be made: where trajectories then are is what is saved. */
void wd_states_settle(wd_trajectory_objective *o);

/* ---- targets: objective_trajectory_round.c ---- */

/* The next window. A round is all slots that have begun; no window has targets of two. */
wd_status wd_targets_window(wd_trajectory_objective *o, wd_err *err);

/* The queue of batches waits for the targets before `end`, and for no later ones: those are on
 * their way while the student computes. */
void wd_targets_await(wd_trajectory_objective *o, int64_t end);

/* What is left of a round that has begun. */
wd_status wd_targets_complete(wd_trajectory_objective *o, wd_err *err);

/* ---- targets of several ranks: objective_trajectory_ranks.c ---- */

/* Takes what has been shipped, up to that shipment. */
void wd_targets_take_until(wd_trajectory_objective *o, int64_t shipment);

/* Where every rank has a teacher: the window's first `count` targets are sent as a whole. */
void wd_targets_send_window(wd_trajectory_objective *o, int64_t count);

/* Where ranks share one: a micro-batch, when this rank has done its part (a wd_window's `end`). */
void wd_targets_send_batch(void *context, const int64_t *states, int64_t count, int rank);

/* ---- checkpoints: objective_trajectory_saved.c ---- */

wd_status wd_trajectory_save(wd_objective *self, json_t **json,
                             const wd_checkpoint_tensor **tensors, int64_t *count, wd_err *err);
wd_status wd_trajectory_restore(wd_objective *self, const json_t *json, wd_err *err);

#endif
