/* The plan of a strategy, and the input of the planner that makes it. */
#ifndef WD_TEACHER_PLAN_STRATEGY_PLAN_H
#define WD_TEACHER_PLAN_STRATEGY_PLAN_H

#include "teacher/plan/strategy.h"
#include "teacher/plan/sweep_schedule.h"
#include "teacher/plan/timeline.h"
#include "teacher/plan/traffic.h"

/* *out = what a sweep with these options needs on `target` beside weights: wd_sweep_plan_need. */
typedef wd_status wd_planner_need_fn(wd_sweep_need *out, const wd_sweep_options *options,
                                     wd_device *target, wd_err *err);

/* The devices of a rank, which are asked what sweeps need there; nothing runs on them. */
typedef struct wd_planner_devices {
    wd_planner_need_fn *need; /* asked once for each micro-batch and kind of device */
    wd_device *target[WD_PLACED_DEVICES_MAX]; /* borrowed */
} wd_planner_devices;

/* What the user asked of a placement. The window and the micro-batch that were asked for are those
 * of the input's sweep. */
typedef struct wd_planner_request {
    const wd_placement *custom; /* the placement of the user's map; NULL: there is no map */
    int teacher_rank;           /* see wd_strategy_place */
    int buffers;                /* 0: the least */
} wd_planner_request;

/* The targets that windows are cut from: a round has one of each trajectory. */
typedef struct wd_planner_rounds {
    int64_t trajectories;  /* the largest window, which is of all ranks together */
    int64_t count;         /* of rounds in `expert` */
    const uint8_t *expert; /* [count, trajectories], borrowed: the experts of targets, in order;
                            * NULL: there is one expert */
} wd_planner_rounds;

/* The memory that everything but the teacher takes of a rank's devices and its host. */
typedef struct wd_planner_taken {
    size_t taken[WD_PLACED_DEVICES_MAX],
        workspace[WD_PLACED_DEVICES_MAX]; /* as wd_cluster_device */
    size_t host_taken;                    /* as wd_cluster */
} wd_planner_taken;

/* Where sample sheets are decoded. The cluster counts their memory on the device that decodes them.
 * The processor may decode them instead, which takes `on_processor`: a strategy chooses that if
 * only then its plan fits, or if its steps are faster. */
typedef struct wd_planner_decoding {
    bool processor_may;
    wd_planner_taken on_processor;
} wd_planner_decoding;

/* A step of the student. */
typedef struct wd_planner_student {
    int device;          /* of every rank */
    double step_targets; /* targets that a step of all ranks needs */
    double steps_ahead;  /* see wd_stepper_steps_ahead */
    double step_flops;   /* of one rank */
    double step_bytes;   /* copied to the device over its link, of one rank */
    double back_bytes;   /* copied from it */
    /* A rank's update in host memory (train/network/optimizer_host.h); 0: the device makes it. */
    double update_weights; /* stepped by the processor */
    double update_bytes;   /* copied to the device and from it, among the bytes above */
    bool update_waits;     /* it begins when sweeps are over: see wd_stepper_update_waits */
    bool update_of_ema;    /* only of the EMA, for which nothing waits but the next one */
} wd_planner_student;

/* What the ranks exchange in a step: gradients, of which each rank adds up a share, and the results
 * of that (gradients or weights), which come to all ranks. */
typedef struct wd_planner_gradients {
    double reduced_bytes, gathered_bytes; /* of gradients and of results: of all shares */
    double in_bytes, out_bytes;           /* copied to a rank's device over its link, and from it */
    double final_share; /* of a step's FLOPs: those during which gradients become final */
    bool reduced_flat;  /* gradients are not added up host by host (job/comm/reduce.h) */
    bool gathered_flat; /* the results are not sent once for each host */
    bool direct;        /* ranks of a host send them from device to device, over the devices'
                         * links, not through host memory */
} wd_planner_gradients;

typedef struct wd_planner_input {
    wd_teacher_size size;   /* the planner finds its FLOPs */
    wd_sweep_options sweep; /* window_max, micro_batch: as the user asked; 0: the planner chooses */
    wd_cluster cluster;     /* the planner finds what sweeps need on its devices, and its batches */
    wd_planner_devices devices;
    wd_planner_request request;
    wd_planner_rounds rounds;
    wd_planner_decoding decoding;
    wd_planner_student student;
    wd_planner_gradients gradients;
} wd_planner_input;

typedef struct wd_strategy_plan {
    wd_strategy strategy;
    const char
        *objection; /* why the devices cannot serve it; the rest is then empty. NULL: they can */
    wd_placement placement;
    wd_placed_bytes bytes;
    bool decodes_on_processor; /* sample sheets: see wd_planner_decoding */
    bool fits;
    bool other_bits; /* a device computes whose results differ in the last bits from the first's */
    size_t missing[WD_CLUSTER_DEVICES_MAX]; /* [bytes.devices] bytes that the device lacks */
    size_t host_missing;
    int64_t window, micro_batch;
    double step_seconds;         /* predicted, of a step of all ranks */
    bool student_limits;         /* the student's device limits the step */
    bool network_limits;         /* messages between ranks do */
    bool update_limits;          /* the update in host memory does; if none, timeline.limit does */
    double step_bytes[WD_LINKS]; /* over all links of a kind, of all ranks */
    double step_bytes_sent;      /* by the rank that sends most to others */
    double reduce_seconds;       /* gradients are exchanged for so long in a step */
    double exposed_seconds;      /* the part of reduce_seconds in which nothing else is done */
    wd_timeline timeline;        /* of the kind of sweep that takes most of the time */
    wd_sweep_load load;          /* the load that `timeline` was played with */
    size_t cache_bytes;          /* host memory that is left to keep mapped weights in */
    bool uncached; /* that is too little: each sweep reads mapped weights from disk again */
    int rivals;    /* how many plans auto could choose from: they fit and give the
                    * same bits as this one, which is counted, too */
} wd_strategy_plan;

#endif
