/* The plan of a strategy, and what it is made from. */
#ifndef WD_TEACHER_STRATEGY_PLAN_H
#define WD_TEACHER_STRATEGY_PLAN_H

#include "teacher/strategy.h"
#include "teacher/sweep.h"
#include "teacher/timeline.h"
#include "teacher/traffic.h"

typedef struct wd_planner_input {
    wd_teacher_size size;                     /* its FLOPs are found here */
    wd_cluster cluster;                       /* its needs and batches are found here */
    wd_device *target[WD_PLACED_DEVICES_MAX]; /* of the cluster, borrowed */
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
    /* The student's bytes that come to its device over the link in a step of one rank, and those
     * that leave it; then the bytes of gradients that come from other ranks, and leave for them. */
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
    bool other_bits; /* a device computes whose results differ in the last bits from the first's */
    size_t missing[WD_CLUSTER_DEVICES_MAX], host_missing; /* bytes; of bytes.devices */
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
    int rivals;      /* of auto's choice: plans that fit and give the same bits, this one too */
} wd_strategy_plan;

#endif
