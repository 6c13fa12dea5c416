/* Bytes of a placement: see teacher/placement.h. */
#include "teacher/placement.h"

static void most(size_t *most, size_t bytes)
{
    if (bytes > *most) *most = bytes;
}

/* Buffers that the streamed stages of a device share. */
static void add_streaming(wd_placed_bytes *bytes, const wd_placement *p,
                          const wd_teacher_size *size, const wd_site *site, int device)
{
    size_t slot = 0, casting = 0, reading = 0;
    bool in_host = site->device[device].reads_host;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            const wd_stage_size *stage = &size->stage[e][s];
            if (place->device != device || place->home == WD_HOME_DEVICE) continue;
            most(&slot, stage->device);
            if (place->home != WD_HOME_DISK) continue;
            most(&reading, stage->reading);
            if (!in_host) most(&casting, stage->casting);
        }
    bytes->device[device] += WD_PLACED_SLOTS * slot + casting;
    bytes->host += reading;
}

/* Two buffers for what a device widens before it computes. */
static size_t widening(const wd_placement *p, const wd_teacher_size *size, int device)
{
    size_t widened = 0;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++)
            if (p->place[e][s].device == device) most(&widened, size->stage[e][s].widened);
    return WD_PLACED_SLOTS * widened;
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
    for (int d = 0; d < site->devices; d++) {
        add_streaming(&bytes, placement, size, site, d);
        bytes.device[d] += widening(placement, size, d);
    }
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
