/* Timeline: how long sweeps take under a placement, found by playing them through: those of one
 * rank, whose others do the same, where each has all of the teacher, else of all ranks together.
 *
 * Every device computes in order, every link copies in order, the disk reads in order; a stage's
 * weights may come as soon as a slot is free, a micro-batch goes on as soon as it has its weights
 * and its device, and where devices follow one another a place on the next one. Sweeps follow one
 * another: a micro-batch's next sweep, which may be some sweeps later, begins when its states have
 * moved on. Where the student is played, too, its steps follow one another, each when its targets
 * are there, and a sweep begins no earlier than so many steps before the one that needs it. While
 * both compute on a device, or both have something on its link, each gets half of it. Pure, like
 * the placement. */
#ifndef WD_TEACHER_TIMELINE_H
#define WD_TEACHER_TIMELINE_H

#include "core/error.h"
#include "teacher/sweep_load.h"

enum { WD_TIMELINE_BATCHES_MAX = 1024 }; /* micro-batches of an expert in a sweep */

typedef enum wd_lane_kind {
    WD_LANE_COMPUTE,
    WD_LANE_LINK,
    WD_LANE_NETWORK, /* from the rank of the device to others */
    WD_LANE_DISK
} wd_lane_kind;

/* A piece of work, in seconds from the first sweep's beginning. batch: -1 where weights move;
 * stage: -1 where a micro-batch hops. */
typedef struct wd_timeline_event {
    wd_lane_kind lane;
    int device; /* of the lane; the disk has none */
    int sweep, expert, stage, batch;
    double begin, end;
} wd_timeline_event;

typedef void wd_timeline_fn(void *context, const wd_timeline_event *event);

typedef struct wd_timeline {
    double sweep_seconds; /* from one sweep to the next, once they follow one another */
    wd_lane_kind limit;   /* the busiest lane */
    int limit_device;
    double busy;                                    /* its share of the time */
    double compute_seconds[WD_CLUSTER_DEVICES_MAX]; /* of a sweep, on each device */
    double network_seconds; /* per sweep: of the rank that is longest about sending to others */
} wd_timeline;

/* Plays a sweep until its times repeat. `fn` (or NULL) sees every event but what is brought to the
 * embedding and from the head, each lane's in order. */
wd_status wd_timeline_play(wd_timeline *out, const wd_sweep_setting *sweep, wd_timeline_fn *fn,
                           void *context, wd_err *err);

#endif
