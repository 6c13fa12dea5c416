/* The part of a teacher that a residency has, and what all kinds of residency share. */
#ifndef WD_TEACHER_RESIDENCY_PART_H
#define WD_TEACHER_RESIDENCY_PART_H

#include "core/progress.h"
#include "dist/comm.h"
#include "teacher/placement.h"
#include "teacher/residency.h"
#include "wan/pipeline.h"

/* The number of experts of a pipeline's teacher: 2 with a boundary and a second transformer,
 * else 1. */
int wd_teacher_experts(const wd_pipeline *pipeline);

/* The dtype that a teacher stored in `storage` computes in: F16 is a storage type, widened to F32
 * stage by stage; F32 and BF16 compute as they are. */
wd_dtype wd_teacher_compute_dtype(wd_dtype storage);

/* The stages that a residency has: those of one home on one device. NULL: all. */
typedef struct wd_residency_part {
    const wd_placement *placement; /* borrowed during the call */
    wd_home home;
    int device;
    wd_comm *sharers; /* the ranks that all open this part: those of a host share its host memory.
                       * Borrowed; NULL: there are no others */
} wd_residency_part;

bool wd_residency_part_has(const wd_residency_part *part, int expert, int stage);

/* Begins to report the progress of loading a part's stages. */
wd_progress_part wd_residency_loading(const wd_residency *residency, const wd_residency_part *part);

#endif
