/* The trajectory objective: the teacher's guided velocity at states along its own trajectories.
 *
 * Only prompts are needed, no pictures. See distill/trajectory.h for which states these are. */
#ifndef WD_DISTILL_OBJECTIVE_TRAJECTORY_H
#define WD_DISTILL_OBJECTIVE_TRAJECTORY_H

#include "distill/objective.h"
#include "distill/trajectory.h"
#include "teacher/sweep.h"

enum {
    WD_BATCHES_UNDER_WAY = 4, /* batches whose text and timesteps are being copied to the student's
                               * device, or wait for their turn: the launch is so many ahead */
    WD_WINDOWS_UNDER_WAY = 2  /* windows whose timesteps and noise are being copied likewise */
};

typedef struct wd_trajectory_objective_options {
    wd_trajectory_options trajectory;
    int64_t state_count; /* elements of one state's latents: C F H W */
    int64_t text_tokens, text_dim;
    int64_t reuse;        /* student samples per target */
    int64_t replay;       /* how many earlier targets are drawn from */
    int64_t samples_max;  /* of one fill */
    int64_t step_samples; /* of one optimiser step */
    int64_t samples_end;  /* of all steps; 0: nobody knows. No weights are brought for later ones */
    int64_t window; /* states of one sweep, of all ranks' sweeps together: never changes a result */
    wd_comm *comm;  /* borrowed; NULL: there is one rank */
    wd_dtype student_dtype;
    wd_sweep_text_fn *text; /* of the prompts, for the student's batches */
    void *text_context;
} wd_trajectory_objective_options;

/* All borrowed; the sweep's window_max is at least the window, or this rank's share of it. With
 * several ranks all of them do the same, in the same order: targets go from rank to rank. `queue`:
 * where batches are filled. `home`: where trajectories move on, of the same device; where it is
 * another queue, a sweep need not wait for the student, nor the next one for the last of this one.
 */
wd_status wd_objective_open_trajectory(wd_objective **out,
                                       const wd_trajectory_objective_options *options,
                                       wd_sweep *sweep, wd_queue *home, wd_queue *queue,
                                       wd_err *err);

/* Whether a run that saved this state (`json` of wd_objective_save) goes on with these options:
 * WD_MISMATCH where its samples would be others. Reads only `trajectory`, `reuse`, `replay` and
 * `step_samples`. */
wd_status wd_objective_check_trajectory(const wd_trajectory_objective_options *options,
                                        const json_t *saved, wd_err *err);

#endif
