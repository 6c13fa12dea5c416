/* The bytes of a placement: weights, and what sweeps need beside them, on every device and host. */
#ifndef WD_TEACHER_PLACEMENT_BYTES_H
#define WD_TEACHER_PLACEMENT_BYTES_H

#include "teacher/sweep_schedule.h"

typedef struct wd_placed_device {
    size_t weights;   /* that stay */
    size_t streaming; /* slots of those that come and go, and what is converted on its way */
    size_t widening;
    size_t activations; /* the sweep's tables, streams, scratch */
    size_t workspace;   /* beyond what the queue has for other work */
    size_t opening;     /* the most while weights that stay are brought and converted, before
                         * anything else is there */
} wd_placed_device;

typedef struct wd_placed_bytes {
    int devices; /* of all ranks; of one, whose others are alike, where each has all of it */
    wd_placed_device device[WD_CLUSTER_DEVICES_MAX];
    size_t host_weights, host_reading; /* of the fullest host, all its ranks together */
    size_t host_transfers; /* of that host: buffers of micro-batches sent from rank to rank */
    size_t host_devices;   /* of that host: wd_placed_total of its processors */
} wd_placed_bytes;

wd_placed_bytes wd_placement_bytes(const wd_placement *placement, const wd_teacher_size *size,
                                   const wd_cluster *cluster);

/* What of the pool a stage takes that stays on the device, and what, for a while, its tensors that
 * are converted on their way there. */
size_t wd_placed_kept(const wd_stage_size *stage, const wd_cluster_device *device);
size_t wd_placed_casting(const wd_stage_size *stage, const wd_cluster_device *device);

/* What the teacher has while it is used. */
size_t wd_placed_total(const wd_placed_device *device);

/* What a device's part of a sweep takes of its pool, and of the queue's workspace beyond what is
 * there. */
size_t wd_placed_activations(const wd_sweep_part *part, const wd_sweep_need *need);
size_t wd_placed_workspace(const wd_sweep_part *part, const wd_cluster_device *device);

/* In memory of the fullest host: homes there, and all of its processors'. */
size_t wd_placed_host(const wd_placed_bytes *bytes);

/* The most that a device's pool has, and host memory, with what others have of it. */
size_t wd_placed_peak(const wd_placed_bytes *bytes, const wd_cluster *cluster, int device);
size_t wd_placed_host_peak(const wd_placed_bytes *bytes, const wd_cluster *cluster);

/* Of all stages that are there. */
size_t wd_placement_mapped(const wd_placement *placement, const wd_teacher_size *size,
                           const wd_cluster *cluster);

/* Whether every part fits where it is to be. */
bool wd_placement_fits(const wd_placement *placement, const wd_teacher_size *size,
                       const wd_cluster *cluster);

#endif
