/* The sweep: one pass over the teacher's weights, for a window of states at once.
 *
 * Data flow: states (latents, timestep, prompt) -> sorted by expert, cut into micro-batches -> a
 * schedule (teacher/sweep_schedule.h), entry by entry: acquire stages, run micro-batches'
 * conditional and unconditional streams through them, release -> guided velocity of every state.
 *
 * A block's weights are fetched once per sweep and expert, whatever the window; the next streamed
 * stage is asked for while this one is used. A stage is computed by the device that its placement
 * names; micro-batches go from device to device. The value of a velocity does not depend on what
 * else is in the window, nor on the micro-batch, nor on any of this. */
#ifndef WD_TEACHER_SWEEP_H
#define WD_TEACHER_SWEEP_H

#include "teacher/placement.h"
#include "teacher/residency.h"
#include "teacher/sweep_need.h"

/* Called before the states [count] of a micro-batch are read, numbers of the window's; a state may
 * come twice. May launch on the window's queue what brings their latents. */
typedef void wd_window_begin_fn(void *context, const int64_t *states, int64_t count);

/* Called when the states [count] of a micro-batch are launched, as far as this rank has part in it,
 * in the same order on all ranks that share the teacher. `rank` will have their velocities; there,
 * `delivered` says when. */
typedef void wd_window_end_fn(void *context, const int64_t *states, int64_t count, int rank);

/* The states of one sweep. Expert and embedding are chosen on the host; latents and velocities are
 * in memory of `queue`'s device. */
typedef struct wd_window {
    int64_t count;             /* <= window_max */
    wd_queue *queue;           /* latents are there after its work so far, and what `begin` adds */
    const float *latents;      /* [count, C, F, H, W] */
    float *velocity;           /* [count, C, F, H, W], = */
    const float *timestep;     /* [count], host */
    const int64_t *prompt;     /* [count], host */
    wd_window_begin_fn *begin; /* or NULL */
    wd_window_end_fn *end;     /* or NULL */
    void *context;
    wd_event **delivered; /* [count], =: when a velocity is there, good until the state's next sweep
                           * has been launched; NULL: `queue` waits for all of them */
} wd_window;

typedef struct wd_sweep wd_sweep;

/* `residency` and `queues` are borrowed: one of each of the rank's devices, in their order; those
 * the placement does not use may be NULL. All device memory that sweeps need is allocated here,
 * what wd_placement_bytes says. `placement` NULL: all stays on queues[0]'s device. */
wd_status wd_sweep_open(wd_sweep **out, const wd_sweep_options *options, wd_residency *residency,
                        const wd_placement *placement, wd_queue *const *queues, wd_err *err);
/* WD_DEVICE_FAULT: a device of the sweep's has failed. */
wd_status wd_sweep_check_devices(const wd_sweep *sweep, wd_err *err);

void wd_sweep_close(wd_sweep *sweep); /* NULL is allowed */

/* What is known of a window before it is run: timesteps of all ranks, of which this rank's sweep
 * gets [first, end). */
typedef struct wd_window_ahead {
    const float *timestep; /* [count], host */
    int64_t count, first, end;
} wd_window_ahead;

/* The window of the next run, and the one after it, so that its first stages come in time and none
 * in vain; NULL: nobody knows of one. A rank that has none of a window need not run. What reads
 * weights for several ranks brings what any of them needs: all ranks call it for all windows.
 * Without it the window of the next run is taken to be that of every rank, and the last. */
void wd_sweep_announce(wd_sweep *sweep, const wd_window_ahead *window, const wd_window_ahead *next);

/* Windows will be those of `queue`: opens what the first of them would. */
wd_status wd_sweep_expect(wd_sweep *sweep, wd_queue *queue, wd_err *err);

/* Whether all ranks have one sweep together: then all of them run it, with windows that are alike;
 * velocities come to the rank that has the head. */
bool wd_sweep_is_shared(const wd_sweep *sweep);

/* States of a micro-batch, at most. */
int64_t wd_sweep_micro_batch_of(const wd_sweep *sweep);

/* States of one run, at most. */
int64_t wd_sweep_window_max(const wd_sweep *sweep);

/* One sweep. Returns when everything is launched; the window's host arrays may then be reused. */
wd_status wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err);

#endif
