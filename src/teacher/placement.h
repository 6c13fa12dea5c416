/* Placement: where every stage of the teacher lives, and which device computes it.
 *
 * Data flow: sizes of the stages + what the machine has -> a strategy (teacher/strategy.h) -> a
 * placement -> bytes per device and host, and the time of a sweep (teacher/timeline.h). Everything
 * here is pure: no device is touched and no file read, so that a run is planned, and plans are
 * compared, before anything is loaded. */
#ifndef WD_TEACHER_PLACEMENT_H
#define WD_TEACHER_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WD_PLACED_EXPERTS_MAX = 2,
    WD_PLACED_STAGES_MAX = 128, /* embedding, blocks, head */
    WD_PLACED_DEVICES_MAX = 16,
    WD_PLACED_SLOTS = 2 /* stages that are on a device at a time where weights are streamed */
};

/* Where weights are between uses. */
typedef enum wd_home {
    WD_HOME_DEVICE, /* in the pool of the device that computes */
    WD_HOME_HOST,   /* in host memory: copied to the device for each sweep */
    WD_HOME_DISK    /* in the checkpoint's files: read for each sweep */
} wd_home;

typedef struct wd_place {
    wd_home home;
    int device; /* that computes the stage */
} wd_place;

typedef struct wd_placement {
    int experts, stages;
    wd_place place[WD_PLACED_EXPERTS_MAX][WD_PLACED_STAGES_MAX];
} wd_placement;

/* A stage of one expert in bytes. */
typedef struct wd_stage_size {
    size_t device;  /* in a device's pool, in the dtype the teacher is kept in */
    size_t host;    /* in host memory, or on a device that reads it: what is not used as mapped */
    size_t file;    /* in the checkpoint */
    size_t reading; /* in host memory while it is read from disk */
    size_t casting; /* on a device, for the largest tensor that is converted on its way there */
    size_t widened; /* on a device, in the dtype that is computed in; 0: as it is kept */
} wd_stage_size;

typedef struct wd_teacher_size {
    int experts, stages;
    wd_stage_size stage[WD_PLACED_EXPERTS_MAX][WD_PLACED_STAGES_MAX];
    double flops[WD_PLACED_STAGES_MAX]; /* of one target: both streams where guidance needs two */
} wd_teacher_size;

/* What there is for the teacher: the budgets less the student's and the sweep's own bytes. */
typedef struct wd_site_device {
    size_t bytes;
    double flops_per_s;
    double link_bytes_per_s; /* to and from host memory */
    bool reads_host;         /* the host's processor: weights are used where they are mapped */
} wd_site_device;

typedef struct wd_site {
    int devices;
    wd_site_device device[WD_PLACED_DEVICES_MAX];
    size_t host_bytes;
    double disk_bytes_per_s;
} wd_site;

/* Bytes of the teacher's weights by where they are. */
typedef struct wd_placed_bytes {
    size_t device[WD_PLACED_DEVICES_MAX]; /* resident stages, and slots of streamed ones */
    size_t host;
} wd_placed_bytes;

wd_placed_bytes wd_placement_bytes(const wd_placement *placement, const wd_teacher_size *size,
                                   const wd_site *site);

/* Whether every part fits where it is to be. */
bool wd_placement_fits(const wd_placement *placement, const wd_teacher_size *size,
                       const wd_site *site);

/* Stages [first, end) of an expert that one device computes without a break. */
typedef struct wd_segment {
    int first, end, device;
} wd_segment;

/* The segment that begins at stage `first`. */
wd_segment wd_placement_segment(const wd_placement *placement, int expert, int first);

#endif
