/* The part that all kinds of communicator share: see job/comm/comm.h. */
#include "job/comm/comm.h"

#include "core/clock.h"
#include "core/error.h"

/* The number of this rank in the group. */
static int member_of(const wd_comm *comm, const wd_group *group)
{
    WD_REQUIRE(group->step > 0 && group->first >= 0 && group->count > 0 &&
                   wd__group_rank(group, group->count - 1) < comm->ranks,
               "%d ranks from rank %d in steps of %d are no group of %d ranks", group->count,
               group->first, group->step, comm->ranks);
    const int member = (comm->rank - group->first) / group->step;
    WD_REQUIRE(wd__group_rank(group, member) == comm->rank && member < group->count,
               "rank %d is not in the group of %d ranks from rank %d in steps of %d", comm->rank,
               group->count, group->first, group->step);
    return member;
}

static void require_ascending(const wd_comm_parts *parts, int count)
{
    for (int i = 0; i < count; i++)
        WD_REQUIRE(parts->at[i * parts->step] <= parts->at[i * parts->step + 1],
                   "part %d of an operation's memory begins at byte %zu and ends at byte %zu", i,
                   parts->at[i * parts->step], parts->at[i * parts->step + 1]);
}

static void require_other(const wd_comm *comm, int peer)
{
    WD_REQUIRE(peer >= 0 && peer < comm->ranks && peer != comm->rank,
               "rank %d of %d exchanges a message with rank %d", comm->rank, comm->ranks, peer);
}

wd_ticket wd__comm_exchange_within(wd_comm *comm, wd_lane lane, wd_group group, void *to,
                                   wd_comm_parts to_parts, const void *from,
                                   wd_comm_parts from_parts, wd_event *after)
{
    const int me = member_of(comm, &group);
    require_ascending(&to_parts, group.count);
    require_ascending(&from_parts, group.count);
    atomic_fetch_add(&comm->collectives, 1);
    for (int i = 0; i < group.count; i++)
        if (i != me) comm->sent[lane] += (int64_t)wd__comm_part_bytes(&from_parts, i);
    return comm->vtable->post(comm, &(wd_comm_op){.kind = WD_COMM_EXCHANGE,
                                                  .lane = lane,
                                                  .to = to,
                                                  .from = from,
                                                  .group = group,
                                                  .member = me,
                                                  .to_parts = to_parts,
                                                  .from_parts = from_parts,
                                                  .after = after});
}

wd_ticket wd__comm_gather_within(wd_comm *comm, wd_lane lane, wd_group group, void *data,
                                 wd_comm_parts parts, wd_event *after)
{
    const int me = member_of(comm, &group);
    require_ascending(&parts, group.count);
    atomic_fetch_add(&comm->collectives, 1);
    comm->sent[lane] += (int64_t)wd__comm_part_bytes(&parts, me) * (group.count - 1);
    return comm->vtable->post(comm, &(wd_comm_op){.kind = WD_COMM_GATHER_ALL,
                                                  .lane = lane,
                                                  .to = data,
                                                  .group = group,
                                                  .member = me,
                                                  .to_parts = parts,
                                                  .after = after});
}

wd_ticket wd__comm_exchange(wd_comm *comm, wd_lane lane, void *to, const size_t *to_at,
                            const void *from, const size_t *from_at, wd_event *after)
{
    return wd__comm_exchange_within(comm, lane, (wd_group){0, 1, comm->ranks}, to,
                                    (wd_comm_parts){to_at, 1}, from, (wd_comm_parts){from_at, 1},
                                    after);
}

wd_ticket wd_comm_gather_all(wd_comm *comm, wd_lane lane, void *data, const size_t *at,
                             wd_event *after)
{
    return wd__comm_gather_within(comm, lane, (wd_group){0, 1, comm->ranks}, data,
                                  (wd_comm_parts){at, 1}, after);
}

wd_ticket wd_comm_send(wd_comm *comm, wd_lane lane, const void *from, size_t bytes, int to,
                       wd_event *after)
{
    require_other(comm, to);
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
    require_other(comm, from);
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

void wd__comm_count(wd_comm *comm, wd_lane lane, int operations, int64_t bytes)
{
    atomic_fetch_add(&comm->collectives, operations);
    comm->sent[lane] += bytes;
}

void wd_comm_allgather_small(wd_comm *comm, void *all, size_t bytes)
{
    size_t at[comm->ranks + 1];
    for (int r = 0; r <= comm->ranks; r++) at[r] = (size_t)r * bytes;
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_CONTROL, all, at, NULL));
}

void wd_comm_barrier(wd_comm *comm)
{
    char byte[comm->ranks];
    byte[comm->rank] = 0;
    wd_comm_allgather_small(comm, byte, 1);
}

void wd_comm_close(wd_comm *comm)
{
    if (comm) comm->vtable->close(comm);
}
