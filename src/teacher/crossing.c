/* Crossings from rank to rank: see teacher/crossing.h. */
#include "teacher/crossing.h"

#include "core/memory.h"

wd_status wd_crossing_open(wd_crossing *out, wd_comm *comm, wd_station *station, wd_err *err)
{
    wd_status status;
    const int64_t most = station->options->micro_batch;
    *out = (wd_crossing){.comm = comm,
                         .queue = station->queue,
                         .bytes = wd_station_stream_bytes(station, most, WD_STAGE_BLOCK)};
    WD_TRY_OUT(wd_host_alloc((void **)&out->staging, station->device,
                             WD_CROSSINGS_UNDER_WAY * out->bytes, "activations on their way", err));
    for (int i = 0; i < WD_CROSSINGS_UNDER_WAY; i++)
        WD_TRY_OUT(wd_event_open(&out->copied[i], station->device, err));
out:
    if (status != WD_OK) wd_crossing_close(out);
    return status;
}

void wd_crossing_close(wd_crossing *crossing)
{
    if (crossing->queue) wd_queue_wait(crossing->queue);
    for (int i = 0; i < WD_CROSSINGS_UNDER_WAY; i++) {
        if (i < crossing->left) wd_comm_wait(crossing->comm, crossing->sent[i]);
        wd_event_close(crossing->copied[i]);
    }
    if (crossing->queue) wd_host_free(wd_queue_device(crossing->queue), crossing->staging);
    *crossing = (wd_crossing){0};
}

void wd_crossing_leave(wd_crossing *c, wd_station *from, wd_station_slot *slot, int64_t samples,
                       wd_stage_kind next, int to)
{
    const int i = (int)(c->left % WD_CROSSINGS_UNDER_WAY);
    char *staging = c->staging + (size_t)i * c->bytes;
    if (c->left++ >= WD_CROSSINGS_UNDER_WAY) wd_comm_wait(c->comm, c->sent[i]);
    wd_station_copy_out(from, staging, slot, samples, next);
    wd_event_record(c->copied[i], from->queue);
    wd_event_record(slot->left, from->queue);
    c->sent[i] = wd_comm_send(c->comm, WD_LANE_ACTIVATIONS, staging,
                              wd_station_stream_bytes(from, samples, next), to, c->copied[i]);
}

void wd_crossing_come(wd_crossing *c, wd_station *to, wd_station_slot *slot, int64_t samples,
                      wd_stage_kind next, int from)
{
    const int i = (int)(c->come++ % WD_CROSSINGS_UNDER_WAY);
    char *staging = c->staging + (size_t)i * c->bytes;
    wd_event_wait(c->copied[i]);
    wd_comm_wait(c->comm, wd_comm_receive(c->comm, WD_LANE_ACTIVATIONS, staging,
                                          wd_station_stream_bytes(to, samples, next), from));
    wd_station_copy_in(to, slot, staging, samples, next);
    wd_event_record(c->copied[i], to->queue);
}
