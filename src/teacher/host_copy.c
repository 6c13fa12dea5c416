/* One copy per host: see teacher/host_copy.h. */
#include "teacher/host_copy.h"

/* Gives every stage its place, and its filler: as many bytes for each rank as stages allow. */
static void lay_out(wd_host_copy *copy, const wd_placed_part *part, wd_stage_layout *const *layout)
{
    const int ranks = copy->comm->host_ranks;
    int n = 0;
    for (int e = 0, s = -1; wd_placed_part_next(part, &e, &s);) {
        copy->at[e][s] = copy->bytes;
        copy->filler[e][s] = n++ % ranks;
        copy->bytes += layout[e][s].block_bytes;
    }
    copy->share_bytes = (copy->bytes + (size_t)ranks - 1) / (size_t)ranks;
}

wd_status wd_host_copy_open(wd_host_copy *out, const wd_placed_part *part, wd_comm *sharers,
                            wd_stage_layout *const *layout, bool dry, wd_err *err)
{
    *out = (wd_host_copy){0};
    if (!sharers || sharers->ranks == 1) return WD_OK;
    out->comm = sharers;
    if (wd_host_copy_is_shared(out)) lay_out(out, part, layout);
    if (dry) return WD_OK;
    return wd_shared_open(&out->memory, out->comm, out->bytes, "teacher weights", err);
}

bool wd_host_copy_is_shared(const wd_host_copy *copy)
{
    return copy->comm && copy->comm->host_ranks > 1;
}

void *wd_host_copy_block(const wd_host_copy *copy, int expert, int stage)
{
    char *data = copy->memory ? wd_shared_data(copy->memory) : (char *)((uintptr_t)1 << 30);
    return data + copy->at[expert][stage];
}

bool wd_host_copy_fills(const wd_host_copy *copy, int expert, int stage)
{
    return !copy->memory || copy->filler[expert][stage] == copy->comm->host_rank;
}

void wd_host_copy_seal(wd_host_copy *copy)
{
    if (copy->comm) wd_shared_seal(copy->memory, copy->comm);
}

void wd_host_copy_close(wd_host_copy *copy)
{
    wd_shared_close(copy->memory);
    copy->memory = NULL;
}
