/* Timeline: how long sweeps take, found by playing their schedules entry by entry. Where each rank
 * has a teacher, the sweeps of one rank are played, since all are alike, else those of all ranks
 * together. Pure.
 *
 * Every device computes in order, every link copies in order, the disk reads in order. A stage's
 * weights come as soon as a buffer is free. A micro-batch goes on as soon as its weights are there
 * and its device is free, and to another device when there is a place for it. Sweeps follow one
 * another; a state's next sweep, which may be some sweeps later, begins when its velocity is there.
 *
 * Where a student trains, its steps are played, too: they follow one another, each begins when its
 * targets are there, and a sweep begins so many steps before the step that needs it, and no
 * earlier. While teacher and student both use a device, or its link, each gets half of it. */
#ifndef WD_TEACHER_PLAN_TIMELINE_H
#define WD_TEACHER_PLAN_TIMELINE_H

#include "core/error.h"
#include "teacher/plan/sweep_load.h"

typedef enum wd_resource {
    WD_RESOURCE_COMPUTE,
    WD_RESOURCE_LINK,
    WD_RESOURCE_NETWORK, /* messages from the rank of the device to others */
    WD_RESOURCE_DISK
} wd_resource;

/* A piece of work on a resource. `batch` is -1 where weights move, `stage` is -1 where a
 * micro-batch moves. `begin` and `end` are seconds since the first sweep began. */
typedef struct wd_timeline_event {
    wd_resource resource;
    int device; /* of the resource; -1: the disk */
    int sweep, expert, stage, batch;
    double begin, end;
} wd_timeline_event;

typedef void wd_timeline_fn(void *context, const wd_timeline_event *event);

typedef struct wd_timeline {
    double sweep_seconds; /* from one sweep to the next, once their times repeat */
    wd_resource limit;    /* the kind of the resource that is busiest */
    int limit_device;     /* its device; -1: it is the disk */
    double busy;          /* the share of the time in which that resource has work */
    double compute_seconds[WD_CLUSTER_DEVICES_MAX]; /* each device computes so long per sweep */
    double network_seconds; /* the rank that sends longest sends so long per sweep */
} wd_timeline;

/* Plays sweeps until their times repeat. `fn` (or NULL) sees every event, those of a resource in
 * order, but not the copies of states and velocities. */
wd_status wd__timeline_play(wd_timeline *out, const wd_sweep_setting *sweep, wd_timeline_fn *fn,
                            void *context, wd_err *err);

#endif
