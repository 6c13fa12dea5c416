/* The thread of a streamed residency that brings stages to their slots, one after another. */
#include "core/memory.h"
#include "teacher/residency_streamed_impl.h"

static wd_status bring(wd_streamed *r, wd_slot *slot)
{
    if (r->host_reader) return wd_streamed_bring_read(r, slot);
    if (r->from_disk) return wd_streamed_bring_file(r, slot);
    wd_streamed_bring_block(r, slot);
    return WD_OK;
}

static void *bring_all(void *context)
{
    wd_streamed *r = context;
    wd_stage_turn turn;
    while (wd_stage_order_next(&turn, r->order, WD_FOLLOWER_BRINGS)) {
        if (turn.wanted) {
            wd_slot *slot = wd_slot_await_empty(r, &turn);
            if (!slot) break;
            const wd_status status = bring(r, slot);
            wd_slot_set(r, slot, status == WD_OK ? WD_SLOT_FILLED : WD_SLOT_FAILED);
            if (r->host_reader) wd_event_wait(r->sent[0]);
        }
        if (r->host_reader) wd_host_reader_done(r->host_reader, &turn);
    }
    return NULL;
}

wd_status wd_streamed_start(wd_streamed *r, wd_err *err)
{
    if (pthread_create(&r->thread, NULL, bring_all, r))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread to bring the teacher's weights");
    r->threaded = true;
    return WD_OK;
}

void wd_streamed_end(wd_streamed *r)
{
    if (!r->threaded) return;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    wd_stage_order_leave(r->order);
    if (r->host_reader) wd_host_reader_leave(r->host_reader);
    pthread_join(r->thread, NULL);
}
