/* Host memory of a streamed residency, and the copy of a stage's block from there. */
#include "teacher/residency_streamed_impl.h"

wd_status wd_streamed_take_host(void **out, wd_streamed *r, size_t bytes, const char *what,
                                wd_err *err)
{
    r->base.host_bytes += bytes;
    if (!r->dry) return wd_host_alloc(out, r->device, bytes, what, err);
    *out = (void *)((uintptr_t)1 << 30);
    return WD_OK;
}

void wd_streamed_give_host(const wd_streamed *r, void *block)
{
    if (!r->dry) wd_host_free(r->device, block);
}

void wd_streamed_bring_block(wd_streamed *r, wd_slot *s)
{
    const wd_stage_layout *layout = &r->layout[s->turn.expert][s->turn.stage];
    wd_event_wait_on(r->copies, s->released);
    wd_stage_view(&s->view, layout, s->block);
    wd_queue_copy(r->copies, s->block, r->block[s->turn.expert][s->turn.stage],
                  layout->block_bytes);
    wd_event_record(s->arrived, r->copies);
}
