/* The bytes of a placement: weights, and what sweeps need beside them, on every device and host. */
#ifndef WD_TEACHER_PLAN_PLACEMENT_BYTES_H
#define WD_TEACHER_PLAN_PLACEMENT_BYTES_H

#include "teacher/plan/sweep_schedule.h"

typedef struct wd_placed_device {
    size_t weights;     /* of stages that stay */
    size_t streaming;   /* buffers of streamed stages, and the buffer in which they are converted */
    size_t widening;    /* buffers for stages that are widened before they are computed */
    size_t activations; /* tables, places and scratch of a sweep */
    size_t workspace;   /* of the queue, beyond what it has for other work */
    size_t opening; /* the peak while weights that stay are brought and converted, before anything
                     * else is there */
    size_t mapped;  /* of its stages, used where they are mapped: no memory of the device */
    size_t taken;   /* by the student, once the teacher is there: the cluster's */
} wd_placed_device;

/* The teacher's bytes in the memory of a host, for all its ranks. */
typedef struct wd_placed_host {
    size_t weights, reading; /* weights, and buffers that files are read into */
    size_t transfers;        /* buffers for micro-batches that go from rank to rank */
    size_t processors;       /* wd_placed_total of its processors */
} wd_placed_host;

typedef struct wd_placed_bytes {
    int devices; /* of all ranks; of one rank where each has a teacher, since all are alike */
    wd_placed_device device[WD_CLUSTER_DEVICES_MAX];
    wd_placed_host host; /* that takes the most */
    size_t host_taken;   /* by each rank's student: the cluster's */
    size_t mapped;       /* of all stages that processors use where they are mapped */
} wd_placed_bytes;

/* The stages of one home on one device: how many there are, the largest block of each kind, and the
 * most that one stage needs of the others. */
typedef struct wd_placed_sizes {
    int stages;
    size_t block[WD_STAGE_KINDS];
    size_t reading, converting, casting, widened; /* as of wd_stage_size */
} wd_placed_sizes;

void wd_placed_sizes_add(wd_placed_sizes *sizes, wd_stage_kind kind, const wd_stage_size *stage);

void wd__placement_bytes(wd_placed_bytes *out, const wd_placement *placement,
                         const wd_teacher_size *size, const wd_cluster *cluster);

/* The bytes that the teacher takes on a device while it is used. */
size_t wd_placed_total(const wd_placed_device *device);

/* The bytes that a device's part of a sweep takes in its pool, and in its queue's workspace beyond
 * what the queue has anyway. */
size_t wd_placed_activations(const wd_sweep_device *part, const wd_sweep_need *need);
size_t wd_placed_workspace(const wd_sweep_device *part, const wd_cluster_device *device);

/* The sum of a host's bytes. */
size_t wd__placed_host_total(const wd_placed_host *host);

/* The peaks of a device's pool and of host memory, the student's part included. */
size_t wd_placed_peak(const wd_placed_bytes *bytes, int device);
size_t wd_placed_host_peak(const wd_placed_bytes *bytes, const wd_cluster *cluster);

/* Whether a device has room for what the placement gives it. */
bool wd__placed_holds(const wd_placement *placement, const wd_teacher_size *size,
                      const wd_cluster *cluster, int device);

#endif
