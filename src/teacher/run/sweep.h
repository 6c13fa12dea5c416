/* Folder teacher/run. Sweeps over the teacher: weights come, micro-batches go through, velocities
 * are there.
 *
 * The sweep: one pass over the teacher's weights, for a window of states at once.
 *
 * Data flow: states (latents, timestep, prompt) -> sorted by expert, cut into micro-batches -> a
 * schedule (teacher/plan/sweep_schedule.h), entry by entry: acquire stages, run micro-batches'
 * conditional and unconditional streams through them, release -> guided velocity of every state.
 *
 * A block's weights are fetched once per sweep and expert, whatever the window; the next streamed
 * stage is asked for while this one is used. A stage is computed by the device that its placement
 * names; micro-batches go from device to device. The value of a velocity does not depend on what
 * else is in the window, nor on the micro-batch, nor on any of this. */
#ifndef WD_TEACHER_RUN_SWEEP_H
#define WD_TEACHER_RUN_SWEEP_H

#include "teacher/plan/placement.h"
#include "teacher/plan/sweep_schedule.h"
#include "teacher/run/residency.h"

/* ---- windows ---- */

/* Called before the states of a micro-batch are read. `states` [count]: their numbers in the
 * window; a state may come twice. May launch work on the window's queue that brings their latents.
 */
typedef void wd_window_begin_fn(void *context, const int64_t *states, int64_t count);

/* Called when this rank's part of a micro-batch is launched, in the same order on all ranks that
 * share the teacher. `states` [count] as above. Rank `rank` gets their velocities; there,
 * `delivered` says when. */
typedef void wd_window_end_fn(void *context, const int64_t *states, int64_t count, int rank);

/* Part `done` of the `total` parts of a window's work has been launched. */
typedef void wd_window_launched_fn(void *context, int64_t done, int64_t total);

/* The states of one sweep. Timesteps and prompts are in host memory, latents and velocities in
 * memory of the options' latents_device, whose queue `queue` is. */
typedef struct wd_window {
    int64_t count;             /* <= window_max */
    wd_queue *queue;           /* latents are there after its work so far, and what `begin` adds */
    const float *latents;      /* [count, C, F, H, W] */
    float *velocity;           /* [count, C, F, H, W], = */
    const float *timestep;     /* [count], host */
    const int64_t *prompt;     /* [count], host */
    wd_window_begin_fn *begin; /* or NULL */
    wd_window_end_fn *end;     /* or NULL */
    wd_window_launched_fn *launched; /* or NULL */
    void *context;
    wd_event **delivered; /* [count], =: when a velocity is there, good until the state's next sweep
                           * has been launched; NULL: `queue` waits for all of them */
} wd_window;

/* ---- sweeps ---- */

typedef struct wd_sweep wd_sweep;

/* Borrows `residency`, whose placement says which device computes what, and `queues`: a queue of
 * each of the rank's devices, in their order; those that the placement does not use may be NULL.
 * Allocates all device memory that sweeps need, as much as wd__placement_bytes says. */
wd_status wd_sweep_open(wd_sweep **out, const wd_sweep_options *options, wd_residency *residency,
                        wd_queue *const *queues, wd_err *err);
/* WD_DEVICE_FAULT: one of the sweep's devices has failed. */
wd_status wd_sweep_check_devices(const wd_sweep *sweep, wd_err *err);

void wd_sweep_close(wd_sweep *sweep); /* NULL is allowed */

/* A window before it is run: the timesteps of all ranks' states, of which this rank's sweep gets
 * [first, end). */
typedef struct wd_window_ahead {
    const float *timestep; /* [count], host */
    int64_t count, first, end;
} wd_window_ahead;

/* Announces the window of the next run, and the one after it (NULL: nobody knows it), so that their
 * stages come in time and none in vain. A rank that has no state of a window need not run it. Where
 * ranks share a reader of weights, all of them announce all windows. A run that was not announced
 * counts as the last one, with the same window on all ranks. */
void wd_sweep_announce(wd_sweep *sweep, const wd_window_ahead *window, const wd_window_ahead *next);

/* Another window than the next one that was announced will come: a rank may have states of other
 * experts in it. Waits for the stages that are coming for the window that does not come. Where
 * ranks share a reader, all of them call it, at the same place among their windows. */
void wd_sweep_forget_next(wd_sweep *sweep);

/* Whether all ranks share one teacher: then all of them run every sweep, with the same window, and
 * velocities come to the rank that has the head. */
bool wd_sweep_is_shared(const wd_sweep *sweep);

/* The sweep's options, with the micro-batch that it has. */
const wd_sweep_options *wd_sweep_options_of(const wd_sweep *sweep);

/* One sweep. Returns when everything is launched; the window's host arrays may then be reused. */
wd_status wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err);

/* The same of states of one timestep, and waits for their velocities. Where ranks share the
 * teacher, these come to the rank that has the head; here they come to all, by way of `host`
 * [count, C, F, H, W], which else is not used. All ranks that share it, with the same window. */
wd_status wd_sweep_run_for_all(wd_sweep *sweep, const wd_window *window, float *host, wd_err *err);

/* ---- the memory that a sweep needs ---- */

/* How a dry device is opened: wd_device_open_dry for a plan, wd_device_open_rehearsed for a sweep
 * that is about to run, so that the target makes its kernels for each shape now. */
typedef wd_status wd_sweep_open_dry_fn(wd_device **out, wd_device *target, wd_err *err);

/* *out = what a sweep needs on a device beside weights, found by running stages dry. The window
 * does not matter. */
wd_status wd_sweep_need_of(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                           wd_sweep_open_dry_fn *open_dry, wd_err *err);

/* The same on a device that wd_device_open_dry opens, as planners ask for it. */
wd_status wd_sweep_plan_need(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                             wd_err *err);

#endif
