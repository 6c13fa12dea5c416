/* Placement: where every stage of the teacher lives, and which device computes it.
 *
 * Data flow: sizes of the stages + what the machine has -> a strategy (teacher/plan/strategy.h) ->
 * a placement -> schedule (teacher/plan/sweep_schedule.h) -> bytes per device and host, time and
 * traffic. Everything here is pure: no device is touched and no file read, so that a run is
 * planned, and plans are compared, before anything is loaded. */
#ifndef WD_TEACHER_PLAN_PLACEMENT_H
#define WD_TEACHER_PLAN_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

enum {
    WD_PLACED_EXPERTS_MAX = 2,
    WD_PLACED_STAGES_MAX = 128,    /* embedding, blocks, head */
    WD_PLACED_DEVICES_MAX = 16,    /* of a rank */
    WD_CLUSTER_DEVICES_MAX = 1024, /* of all ranks */
    WD_STREAM_BUFFERS_MAX = 8,
    WD_PLACED_STAGINGS = 2, /* buffers in host memory for stages that are read for a device: one is
                             * sent while the other is read into */
    WD_TRANSFERS_UNDER_WAY = 3, /* buffers in host memory for micro-batches that go from rank to
                                 * rank: one is copied, one is sent, one waits */
    WD_SWEEP_UPLOADS = 3, /* micro-batches whose text and timesteps are on their way to a device, or
                           * wait there for their turn: a sweep is launched so many ahead */
    WD_PIPELINE_PLACES =
        3 /* places on a device to which other devices of its rank send micro-batches
           * one after another: one is computed, one comes, one leaves */
};

/* Where weights are between uses. */
typedef enum wd_home {
    WD_HOME_DEVICE, /* in the pool of the device that computes */
    WD_HOME_HOST,   /* in host memory: copied to the device for each sweep */
    WD_HOME_DISK,   /* in the checkpoint's files: read for each sweep */
    WD_HOMES
} wd_home;

typedef struct wd_stage_placement {
    wd_home home;
    int device; /* the one that computes the stage: see wd_placed_rank */
} wd_stage_placement;

typedef struct wd_placement {
    int experts, stages;
    int buffers;       /* streamed blocks that are on a device at a time: 2, or more to read further
                        * ahead. Embedding and head have a buffer of their own, so that the first
                        * block comes while the last one is computed. On every device, stages from
                        * host memory and stages from disk have buffers of their own */
    unsigned by_batch; /* bit d: stages that stay on device d of a rank compute one micro-batch at a
                        * time, not one stage for the whole window at a time */
    int ranks, devices; /* ranks of the job, and devices of each of them; 0: one rank */
    bool each; /* every rank has a whole teacher and evaluates its share of a window: places
                * name the devices of rank 0. Else all ranks share one teacher */
    wd_stage_placement place[WD_PLACED_EXPERTS_MAX][WD_PLACED_STAGES_MAX];
} wd_placement;

/* Devices of a job are numbered rank by rank: rank r's are r * devices ... (r + 1) * devices - 1,
 * in its own order. The rank that has a device: */
static inline int wd_placed_rank(const wd_placement *placement, int device)
{
    return placement->devices ? device / placement->devices : 0;
}

/* A device's number among those of its rank. */
static inline int wd_placed_local(const wd_placement *placement, int device)
{
    return placement->devices ? device % placement->devices : device;
}

/* Whether a rank has a device that a placement names. */
static inline bool wd_placed_here(const wd_placement *placement, int device, int rank)
{
    return placement->each || wd_placed_rank(placement, device) == rank;
}

/* Whether a device computes any stage. */
bool wd_placed_computes(const wd_placement *placement, int device);

/* The stages of a placement that have one home on one device. */
typedef struct wd_placed_stages {
    const wd_placement *placement; /* borrowed */
    wd_home home;
    int device;
} wd_placed_stages;

/* Goes to the part's next stage, from expert 0 and stage -1. Returns false after the last stage. */
static inline bool wd_placed_stages_next(const wd_placed_stages *part, int *expert, int *stage)
{
    for (++*stage; *expert < part->placement->experts; *stage = 0, ++*expert)
        for (; *stage < part->placement->stages; ++*stage) {
            const wd_stage_placement *place = &part->placement->place[*expert][*stage];
            if (place->home == part->home && place->device == part->device) return true;
        }
    return false;
}

/* How many of a window's states a rank's sweep has, at most. Where each rank has a teacher, it has
 * those from rank * window / ranks up to (rank + 1) * window / ranks. */
static inline int64_t wd_placed_window(const wd_placement *placement, int64_t window)
{
    const int64_t ranks = placement->each && placement->ranks > 1 ? placement->ranks : 1;
    return (window + ranks - 1) / ranks;
}

/* A stage of one expert in bytes. */
typedef struct wd_stage_size {
    size_t device;     /* in a device's pool, in the dtype the teacher is kept in; as much in host
                        * memory where it is copied to a device from there */
    size_t host;       /* on a processor: tensors that are not used where they are mapped */
    size_t file;       /* in the checkpoint */
    size_t reading;    /* in host memory while it is read from disk for another device */
    size_t converting; /* in host memory while tensors of another dtype are read from disk for the
                        * processor; it reads the others to where they are used */
    size_t casting;    /* on a device, for the largest tensor that is converted on its way there */
    size_t widened;    /* on a device, in the dtype that is computed in; 0: computed as kept */
} wd_stage_size;

/* The bytes of a stage that a processor uses where they are mapped: no memory of this process. */
static inline size_t wd_stage_mapped(const wd_stage_size *stage)
{
    return stage->device > stage->host ? stage->device - stage->host : 0;
}

typedef struct wd_teacher_size {
    int experts, stages;
    wd_stage_size stage[WD_PLACED_EXPERTS_MAX][WD_PLACED_STAGES_MAX];
    double flops[WD_PLACED_STAGES_MAX]; /* for one target: of both streams where it is guided */
} wd_teacher_size;

typedef enum wd_stage_kind {
    WD_STAGE_EMBED,
    WD_STAGE_BLOCK,
    WD_STAGE_HEAD,
    WD_STAGE_KINDS
} wd_stage_kind;

static inline wd_stage_kind wd_stage_kind_of(int stage, int stages)
{
    return stage == 0 ? WD_STAGE_EMBED : stage + 1 < stages ? WD_STAGE_BLOCK : WD_STAGE_HEAD;
}

/* How many stages of a kind are on the device at a time, of a part that is streamed. */
int wd_placed_buffers(const wd_placed_stages *part, wd_stage_kind kind);

/* *most = the larger of *most and `bytes`. */
static inline void wd_placed_most(size_t *most, size_t bytes)
{
    if (bytes > *most) *most = bytes;
}

/* What a sweep needs beside weights on a device that has a stage, whichever it is. */
typedef struct wd_sweep_need {
    size_t granule; /* of the device's pool (wd_traits): blocks of weights and of activations are
                     * multiples of it. 0: as 1 */
    size_t tables;
    size_t place;                 /* of a micro-batch */
    size_t scratch;               /* beside the places, while a stage of any kind runs */
    size_t workspace;             /* of the queue that runs it */
    double flops[WD_STAGE_KINDS]; /* of a stage for one state, of both streams where it is guided */
} wd_sweep_need;

/* A device, and the part of its memory that is not the teacher's. */
typedef struct wd_cluster_device {
    size_t bytes; /* of its pool, at most; a processor's pool is host memory */
    size_t taken; /* the part of them that the student has, once the teacher is there */
    double flops_per_s[WD_PRECISIONS]; /* 0: of a precision that the run has no use for */
    double student_flops;              /* of the student there, for each target of all ranks */
    double link_bytes_per_s;           /* to and from host memory */
    bool reads_host; /* the host's processor: weights are used where they are mapped */
    bool other_bits; /* its results differ in the last bits from the first device's */
    wd_sweep_need need;
    size_t workspace; /* that its queue has anyway, for other work */
} wd_cluster_device;

/* The devices, hosts and links of a job. All ranks are alike; each host has equally many of them,
 * in order. */
typedef struct wd_cluster {
    int ranks, hosts;              /* 0: 1 */
    int devices;                   /* of a rank */
    wd_precision teacher, student; /* what they compute in */
    wd_cluster_device device[WD_PLACED_DEVICES_MAX];
    size_t host_bytes; /* of a host, for all its ranks */
    size_t host_taken; /* the part of it that each rank has, with that of its processor */
    double disk_bytes_per_s;
    double memory_bytes_per_s; /* between ranks of a host, all of them together; 0: takes no time */
    double network_bytes_per_s; /* from a host to others; 0: takes no time */
    double adamw_weights_per_s; /* stepped by a rank's processor in host memory; 0: takes no time */
    double ema_weights_per_s;   /* whose EMA it updates there; 0: takes no time */
    bool uncached; /* more weights are used where they are mapped than the page cache can keep:
                    * every sweep reads them again */
    int batches;   /* micro-batches of an expert in a rank's sweep, at most */
} wd_cluster;

static inline int wd__cluster_ranks(const wd_cluster *cluster)
{
    return cluster->ranks > 1 ? cluster->ranks : 1;
}

static inline int wd_cluster_host_ranks(const wd_cluster *cluster)
{
    const int hosts = cluster->hosts > 1 ? cluster->hosts : 1;
    return (wd__cluster_ranks(cluster) + hosts - 1) / hosts;
}

/* The number of devices of all ranks. */
static inline int wd__cluster_devices(const wd_cluster *cluster)
{
    return wd__cluster_ranks(cluster) * cluster->devices;
}

static inline const wd_cluster_device *wd_cluster_at(const wd_cluster *cluster, int device)
{
    return &cluster->device[device % cluster->devices];
}

/* FLOP/s of a device's teacher, or of its student. */
static inline double wd__cluster_teacher_rate(const wd_cluster *cluster, int device)
{
    return wd_cluster_at(cluster, device)->flops_per_s[cluster->teacher];
}

static inline double wd_cluster_student_rate(const wd_cluster *cluster, int device)
{
    return wd_cluster_at(cluster, device)->flops_per_s[cluster->student];
}

/* The host that has a device. */
static inline int wd__cluster_host(const wd_cluster *cluster, int device)
{
    return device / cluster->devices / wd_cluster_host_ranks(cluster);
}

/* A placement of a teacher of `size` on `cluster`, without the places of its stages. */
wd_placement wd_placement_begin(const wd_teacher_size *size, const wd_cluster *cluster);

#endif
