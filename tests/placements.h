/* Placements for tests. */
#ifndef WD_TESTS_PLACEMENTS_H
#define WD_TESTS_PLACEMENTS_H

#include "teacher/plan/placement_bytes.h"
#include "teacher/run/residency.h"

/* All stages of a teacher have one home, and its first device computes. */
static inline wd_placement wd_test_all_in(const wd_pipeline *pipeline, wd_home home)
{
    wd_placement p = {.experts = wd_teacher_experts(pipeline),
                      .stages = wd_dit_stages(&pipeline->dit),
                      .buffers = 2,
                      .devices = 1,
                      .each = true};
    for (int e = 0; e < p.experts; e++)
        for (int s = 0; s < p.stages; s++) p.place[e][s].home = home;
    return p;
}

/* Whether all devices and hosts have room for the placement. */
static inline bool wd_test_fits(const wd_placement *placement, const wd_teacher_size *size,
                                const wd_cluster *cluster)
{
    wd_placed_bytes bytes;
    wd__placement_bytes(&bytes, placement, size, cluster);
    for (int d = 0; d < bytes.devices; d++)
        if (wd_placed_peak(&bytes, d) > wd_cluster_at(cluster, d)->bytes) return false;
    return wd_placed_host_peak(&bytes, cluster) <= cluster->host_bytes;
}

#endif
