/* The teacher's trajectories as a source: its guided velocity at states along its own trajectories.
 *
 * Only prompts are needed, no pictures. See distill/trajectory.h for which states these are. */
#ifndef WD_DISTILL_SOURCE_TRAJECTORY_H
#define WD_DISTILL_SOURCE_TRAJECTORY_H

#include "distill/chord.h"
#include "distill/rollouts.h"
#include "distill/source.h"

typedef struct wd_trajectory_source_options {
    wd_trajectory_options trajectory;
    wd_batches_options batches;
    int64_t reuse;        /* student samples per target, or per chord (trajectory.student_steps) */
    int64_t replay;       /* how many earlier ones are drawn from */
    int64_t step_samples; /* of one optimiser step */
    int64_t samples_end;  /* of all steps; 0: nobody knows. No weights are brought for later ones */
    int64_t window; /* states of one sweep, of all ranks' sweeps together: never changes a result */
    wd_comm *comm;  /* borrowed; NULL: there is one rank */
    wd_rollouts_options rollouts; /* of on-policy trajectories, where there are any */
} wd_trajectory_source_options;

/* This kind of source. A machine's options say how it is (trajectory, reuse, replay). */
extern const wd_source_vtable wd_source_trajectory;

/* Opens one without a machine. All borrowed; the sweep's window_max is at least the window, or this
 * rank's share of it. With several ranks all of them do the same, in the same order: targets go
 * from rank to rank. `queue`: where batches are filled. `home`: where trajectories move on, of the
 * same device; where it is another queue, a sweep need not wait for the student, nor the next one
 * for the last of this one.
 */
wd_status wd_source_open_trajectory(wd_source **out, const wd_trajectory_source_options *options,
                                    wd_sweep *sweep, wd_queue *home, wd_queue *queue, wd_err *err);

/* Whether a run that saved this state (`json` of wd_source_save) goes on with these options:
 * WD_MISMATCH where its samples would be others. Reads only `trajectory`, `reuse`, `replay` and
 * `step_samples`. */
wd_status wd_source_check_trajectory(const wd_trajectory_source_options *options,
                                     const json_t *saved, wd_err *err);

#endif
