/* Bytes of a placement: see teacher/placement.h. */
#include "teacher/placement.h"

/* The largest stage that is streamed to a device; 0: none is. */
static size_t largest_streamed(const wd_placement *p, const wd_teacher_size *size, int device)
{
    size_t most = 0;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            if (place->device != device || place->home == WD_HOME_DEVICE) continue;
            if (size->stage[e][s].device > most) most = size->stage[e][s].device;
        }
    return most;
}

wd_placed_bytes wd_placement_bytes(const wd_placement *placement, const wd_teacher_size *size,
                                   const wd_site *site)
{
    wd_placed_bytes bytes = {.host = 0};
    for (int e = 0; e < placement->experts; e++)
        for (int s = 0; s < placement->stages; s++) {
            const wd_place *place = &placement->place[e][s];
            const wd_stage_size *stage = &size->stage[e][s];
            bool in_host = site->device[place->device].reads_host;
            if (place->home == WD_HOME_DEVICE)
                bytes.device[place->device] += in_host ? stage->host : stage->device;
            else if (place->home == WD_HOME_HOST)
                bytes.host += stage->host;
        }
    for (int d = 0; d < site->devices; d++)
        bytes.device[d] += WD_PLACED_SLOTS * largest_streamed(placement, size, d);
    return bytes;
}

bool wd_placement_fits(const wd_placement *placement, const wd_teacher_size *size,
                       const wd_site *site)
{
    const wd_placed_bytes bytes = wd_placement_bytes(placement, size, site);
    for (int d = 0; d < site->devices; d++)
        if (bytes.device[d] > site->device[d].bytes) return false;
    return bytes.host <= site->host_bytes;
}

wd_segment wd_placement_segment(const wd_placement *placement, int expert, int first)
{
    const wd_place *place = placement->place[expert];
    wd_segment segment = {first, first + 1, place[first].device};
    while (segment.end < placement->stages && place[segment.end].device == segment.device)
        segment.end++;
    return segment;
}
