/* The planner: for every strategy the plan it makes of a teacher and a machine, and which is best.
 *
 * Data flow: sizes of stages, budgets, sweeps' options -> per strategy: window and micro-batch ->
 * placement -> bytes per device and host, seconds per step. Nothing is loaded; what sweeps need is
 * found by running their stages dry, so devices are there, but untouched. */
#ifndef WD_TEACHER_PLANNER_H
#define WD_TEACHER_PLANNER_H

#include "teacher/strategy.h"
#include "teacher/sweep.h"
#include "teacher/timeline.h"
#include "teacher/traffic.h"

typedef struct wd_planner_input {
    wd_teacher_size size;                     /* its FLOPs are found here */
    wd_site site;                             /* its needs and batches are found here */
    wd_device *target[WD_PLACED_DEVICES_MAX]; /* of the site, borrowed */
    wd_sweep_options sweep; /* window_max, micro_batch: what the user asked for; 0: chosen here */
    int64_t trajectories;   /* the window's most; a window is of all ranks together */
    const uint8_t *expert;  /* [rounds, trajectories], borrowed: of targets as they follow one
                             * another; NULL: all are of expert 0 */
    int64_t rounds;
    const wd_placement *custom; /* what `custom` is; NULL: there is no map */
    int teacher_rank, slots;    /* of gpu0: see wd_strategy_place */
    /* the student */
    int student_device;        /* of every rank */
    double step_targets;       /* for all ranks */
    double steps_ahead;        /* see wd_machine_steps_ahead */
    double student_step_flops; /* of one rank */
    /* what comes over the link of its device beside the teacher's, and leaves over it, in a step of
     * one rank; then the same of gradients, on their way to other ranks */
    double student_step_bytes, student_back_bytes;
    double gradients_in_bytes, gradients_out_bytes;
    /* what ranks tell one another of it in a step: gradients, each adding up a share of them, and
     * what comes of that (gradients again, or weights), in bytes of all shares; and the share of a
     * step's FLOPs during which gradients become final */
    double reduced_bytes, gathered_bytes, final_share;
    bool reduced_flat;  /* gradients are not added up host by host (dist/reduce.h), */
    bool gathered_flat; /* and what comes back does not come once for each host */
} wd_planner_input;

/* What a strategy makes of it. */
typedef struct wd_strategy_plan {
    wd_strategy strategy;
    const char *objection; /* why it cannot be had at all; the rest is then empty. NULL: it can */
    wd_placement placement;
    wd_placed_bytes bytes;
    bool fits;
    size_t missing[WD_SITE_DEVICES_MAX], host_missing; /* bytes; of bytes.devices */
    int64_t window, micro_batch;
    double step_seconds;                    /* predicted, of all ranks' step */
    bool student_limits, network_limits;    /* what limits it is the student's device, or what ranks
                                             * tell one another; else what the timeline says */
    double step_bytes[WD_LINKS];            /* over all links of a kind, of all ranks */
    double step_bytes_sent;                 /* by the rank that sends most to others */
    double reduce_seconds, exposed_seconds; /* of gradients: on the way; of these what nothing else
                                             * is done in */
    wd_timeline timeline; /* of the kind of sweep that most of the time goes into */
    wd_sweep_load load;   /* that it was played with */
    size_t mapped_bytes,
        cache_bytes; /* of weights in files; of host memory that is left for them */
    int rivals;      /* of auto's choice: plans that fit, this one too */
} wd_strategy_plan;

typedef struct wd_planner wd_planner;

/* `input` is copied. */
wd_status wd_planner_open(wd_planner **out, const wd_planner_input *input, wd_err *err);
void wd_planner_close(wd_planner *planner); /* NULL is allowed */

/* Of one strategy other than auto. Where no window was asked for: the largest of all trajectories,
 * half of them, a quarter, ... that fits, unless a smaller one is faster. */
wd_status wd_planner_plan(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err);

/* The same, but what cannot be had is an error: WD_UNSUPPORTED, with the strategies that can. */
wd_status wd_planner_need(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err);

/* Whether weights that are used where they are mapped are more than the page cache can keep, so
 * that each sweep reads them from disk again. */
bool wd_planner_is_uncached(const wd_strategy_plan *plan);

/* What fits, then what is faster (by what three digits show), moves fewer bytes, takes fewer; of
 * what does not fit, what lacks less at its worst place, then at all together. */
bool wd_planner_is_better(const wd_strategy_plan *a, const wd_strategy_plan *b);

/* All strategies that placements can have, without auto: [WD_STRATEGY_auto], the planner's own. */
wd_status wd_planner_all(const wd_strategy_plan **out, wd_planner *planner, wd_err *err);

/* The best of all of them; of equally good ones the first by wd_strategy. */
wd_strategy_plan wd_planner_best(const wd_strategy_plan *all);

/* The same, planned for it. */
wd_status wd_planner_auto(wd_strategy_plan *out, wd_planner *planner, wd_err *err);

/* Over the links of devices: all that is copied to them, from them and between them. */
double wd_planner_copied(const wd_strategy_plan *plan);

/* What moves in a step of the plan, link by link; good until the planner is asked for something
 * else. */
const wd_traffic *wd_planner_traffic(wd_planner *planner, const wd_strategy_plan *plan);

/* *out = how long a rank's sweep over `states` states of one expert takes under the plan, of sweeps
 * that follow one another while no student trains: `states` is at most what of a window a rank's
 * sweep has (wd_placed_window). */
wd_status wd_planner_sweep_seconds(double *out, wd_planner *planner, const wd_strategy_plan *plan,
                                   int expert, int64_t states, wd_err *err);

/* Plays the plan's sweeps once more, for `fn` to see: see teacher/timeline.h. */
wd_status wd_planner_play(wd_planner *planner, const wd_strategy_plan *plan, wd_timeline_fn *fn,
                          void *context, wd_err *err);

#endif
