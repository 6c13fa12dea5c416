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
#include "teacher/placement.h"

enum { WD_TIMELINE_BATCHES_MAX = 1024 };

/* What one step of the student has to do, on the device of every rank where trajectories are. */
typedef struct wd_student_load {
    double targets; /* that it needs, of all ranks; 0: no student is played */
    double ahead;   /* how long before the first step that needs any of its targets states of a
                     * sweep may begin, in steps, 2 at most */
    double compute_seconds;
    /* from so long after it began, what it has on the link, what ranks tell one another */
    double after_seconds, link_seconds, network_seconds;
} wd_student_load;

/* What one sweep has to do. */
typedef struct wd_sweep_load {
    int batches[WD_PLACED_EXPERTS_MAX]; /* micro-batches of each expert, at most the above */
    double batch_targets[WD_PLACED_EXPERTS_MAX]; /* states of a micro-batch, on average */
    double batches_mean[WD_PLACED_EXPERTS_MAX];  /* where such sweeps differ: for bytes */
    int sweeps_apart;       /* from one that a state is in to its next; 0 is 1 */
    double hop_batch_bytes; /* of each micro-batch, where it goes from device to device */
    /* of each state: both streams, the same way; what a head reads of them; what comes
     * from host memory to the device of the embedding; latents from home there, velocity back */
    double hop_bytes, hop_head_bytes, text_bytes, latent_bytes;
    int home;      /* device of every rank where trajectories are */
    double window; /* targets from one sweep to the next: of all ranks */
    wd_student_load student;
} wd_sweep_load;

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
    double busy;                                 /* its share of the time */
    double compute_seconds[WD_CLUSTER_DEVICES_MAX]; /* of a sweep, on each device */
    double network_seconds; /* per sweep: of the rank that is longest about sending to others */
} wd_timeline;

/* `fn` (or NULL) sees every event but what is brought to the embedding and from the head, each
 * lane's in order. */
wd_status wd_timeline_play(wd_timeline *out, const wd_placement *placement,
                           const wd_teacher_size *size, const wd_cluster *cluster,
                           const wd_sweep_load *load, wd_timeline_fn *fn, void *context,
                           wd_err *err);

#endif
