/* Placements: see teacher/plan/placement.h. */
#include "teacher/plan/placement.h"

enum { BUFFERS_LEAST = 2 };

/* Whether stages that stay on a device compute one micro-batch at a time. On a processor they may
 * be read from a file, and widened stages share one buffer: these take a whole window. */
static bool goes_by_batch(const wd_teacher_size *size, const wd_cluster *cluster, int device)
{
    if (wd_cluster_at(cluster, device)->reads_host) return false;
    for (int e = 0; e < size->experts; e++)
        for (int s = 0; s < size->stages; s++)
            if (size->stage[e][s].widened) return false;
    return true;
}

wd_placement wd_placement_begin(const wd_teacher_size *size, const wd_cluster *cluster)
{
    wd_placement p = {.experts = size->experts,
                      .stages = size->stages,
                      .buffers = BUFFERS_LEAST,
                      .ranks = wd__cluster_ranks(cluster),
                      .devices = cluster->devices};
    for (int d = 0; d < cluster->devices; d++)
        if (goes_by_batch(size, cluster, d)) p.by_batch |= 1u << d;
    return p;
}

bool wd_placed_computes(const wd_placement *placement, int device)
{
    for (int e = 0; e < placement->experts; e++)
        for (int s = 0; s < placement->stages; s++)
            if (placement->place[e][s].device == device) return true;
    return false;
}

int wd_placed_buffers(const wd_placed_stages *part, wd_stage_kind kind)
{
    const int most = kind == WD_STAGE_BLOCK ? part->placement->buffers : 1;
    int buffers = 0;
    for (int e = 0, s = -1; buffers < most && wd_placed_stages_next(part, &e, &s);)
        buffers += wd_stage_kind_of(s, part->placement->stages) == kind;
    return buffers;
}
