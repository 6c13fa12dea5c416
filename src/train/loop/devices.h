/* The devices of a run, opened, with the queues on which it computes. */
#ifndef WD_TRAIN_LOOP_DEVICES_H
#define WD_TRAIN_LOOP_DEVICES_H

#include "dev/device_open.h"
#include "job/comm/comm.h"
#include "teacher/plan/placement.h"

/* In the order in which placements number them: those that --devices lists, then the processor, if
 * it is not among them. The student is on the first. */
typedef struct wd_devices {
    wd_device_list list;
    int count, processor;
    wd_device *device[WD_PLACED_DEVICES_MAX];
    char name[WD_PLACED_DEVICES_MAX][WD_DEVICE_SHORT_NAME]; /* "sim:0", "cpu" */
    wd_queue *teacher[WD_PLACED_DEVICES_MAX];               /* run the teacher's stages */
    wd_queue *student; /* trains the student, on the first device */
    wd_queue *home;    /* advances the trajectories, on the first device */
    wd_queue *host;    /* the processor's queue */
} wd_devices;

/* `list`: what --devices says. Where the GPUs that `auto` found cannot be used it warns and opens
 * the processor; a job of several ranks fails. A processor has one queue, for it does one thing
 * after the other; other devices have one for each purpose. */
wd_status wd_devices_open(wd_devices *out, const char *list, int64_t threads, wd_err *err);

/* As wd_devices_open, for a rank: the list names the devices of its host, and the rank opens its
 * share of them. `comm` is borrowed during the call. */
wd_status wd_devices_open_shared(wd_devices *out, const char *list, int64_t threads,
                                 const wd_comm *comm, wd_err *err);

/* Dry devices like those of `target`, for planning. `target` is borrowed. */
wd_status wd__devices_open_dry(wd_devices *out, const wd_devices *target, wd_err *err);
void wd_devices_close(wd_devices *devices); /* a zeroed one is fine */

#endif
