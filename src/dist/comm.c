/* What all kinds of communicator share: see dist/comm.h. */
#include "dist/comm.h"

#include <assert.h>

#include "core/clock.h"

static size_t part_of(const size_t *at, int rank)
{
    return at[rank + 1] - at[rank];
}

wd_ticket wd_comm_exchange(wd_comm *comm, wd_lane lane, void *to, const size_t *to_at,
                           const void *from, const size_t *from_at, wd_event *after)
{
    atomic_fetch_add(&comm->collectives, 1);
    comm->sent[lane] += (int64_t)(from_at[comm->ranks] - from_at[0] - part_of(from_at, comm->rank));
    return comm->vtable->post(comm, &(wd_comm_op){.kind = WD_COMM_EXCHANGE,
                                                  .lane = lane,
                                                  .to = to,
                                                  .to_at = to_at,
                                                  .from = from,
                                                  .from_at = from_at,
                                                  .after = after});
}

wd_ticket wd_comm_gather_all(wd_comm *comm, wd_lane lane, void *data, const size_t *at,
                             wd_event *after)
{
    atomic_fetch_add(&comm->collectives, 1);
    comm->sent[lane] += (int64_t)part_of(at, comm->rank) * (comm->ranks - 1);
    return comm->vtable->post(
        comm,
        &(wd_comm_op){
            .kind = WD_COMM_GATHER_ALL, .lane = lane, .to = data, .to_at = at, .after = after});
}

wd_ticket wd_comm_send(wd_comm *comm, wd_lane lane, const void *from, size_t bytes, int to,
                       wd_event *after)
{
    assert(to >= 0 && to < comm->ranks && to != comm->rank);
    comm->sent[lane] += (int64_t)bytes;
    return comm->vtable->post(comm, &(wd_comm_op){.kind = WD_COMM_SEND,
                                                  .lane = lane,
                                                  .from = from,
                                                  .bytes = bytes,
                                                  .peer = to,
                                                  .after = after});
}

wd_ticket wd_comm_receive(wd_comm *comm, wd_lane lane, void *to, size_t bytes, int from)
{
    assert(from >= 0 && from < comm->ranks && from != comm->rank);
    return comm->vtable->post(
        comm, &(wd_comm_op){
                  .kind = WD_COMM_RECEIVE, .lane = lane, .to = to, .bytes = bytes, .peer = from});
}

void wd_comm_wait(wd_comm *comm, wd_ticket ticket)
{
    atomic_store(&comm->waits_since[ticket.lane], wd_clock_s());
    comm->vtable->wait(comm, ticket);
    atomic_store(&comm->waits_since[ticket.lane], 0);
}

void wd_comm_tell(wd_comm *comm, void *all, size_t bytes)
{
    size_t at[comm->ranks + 1];
    for (int r = 0; r <= comm->ranks; r++) at[r] = (size_t)r * bytes;
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_CONTROL, all, at, NULL));
}

void wd_comm_barrier(wd_comm *comm)
{
    char byte[comm->ranks];
    byte[comm->rank] = 0;
    wd_comm_tell(comm, byte, 1);
}

void wd_comm_close(wd_comm *comm)
{
    if (comm) comm->vtable->close(comm);
}
