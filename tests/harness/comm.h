/* Tests for every kind of communicator: each rank calls them. */
#ifndef WD_TESTS_HARNESS_COMM_H
#define WD_TESTS_HARNESS_COMM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/comm/comm.h"

enum { HARNESS_RANKS_MAX = 8, HARNESS_PART = 1000 };

/* Ranks may be threads, where cmocka's assertions must not be used. */
#define HARNESS_CHECK(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Byte `i` that rank `from` sends to rank `to` in round `round`. */
static inline unsigned char harness_byte(int from, int to, int round, size_t i)
{
    return (unsigned char)(from * 31 + to * 7 + round * 3 + (int)i);
}

/* The size of the part that rank `from` sends to rank `to`: sizes differ, and some are 0. */
static inline size_t harness_part(int from, int to, int round)
{
    return (size_t)((from + 2 * to + round) % 4 * HARNESS_PART / 3);
}

static inline void harness_fill(unsigned char *data, int from, int to, int round, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) data[i] = harness_byte(from, to, round, i);
}

static inline void harness_see(const unsigned char *data, int from, int to, int round, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) HARNESS_CHECK(data[i] == harness_byte(from, to, round, i));
}

static inline void harness_exchange(wd_comm *comm, wd_lane lane, int round)
{
    size_t to_at[HARNESS_RANKS_MAX + 1] = {0}, from_at[HARNESS_RANKS_MAX + 1] = {0};
    unsigned char to[HARNESS_RANKS_MAX * HARNESS_PART], from[HARNESS_RANKS_MAX * HARNESS_PART];
    const int me = comm->rank;
    for (int r = 0; r < comm->ranks; r++) {
        to_at[r + 1] = to_at[r] + harness_part(r, me, round);
        from_at[r + 1] = from_at[r] + harness_part(me, r, round);
        harness_fill(from + from_at[r], me, r, round, from_at[r + 1] - from_at[r]);
    }
    wd_comm_wait(comm, wd__comm_exchange(comm, lane, to, to_at, from, from_at, NULL));
    for (int r = 0; r < comm->ranks; r++)
        harness_see(to + to_at[r], r, me, round, to_at[r + 1] - to_at[r]);
}

static inline void harness_gather_all(wd_comm *comm, wd_lane lane, int round)
{
    size_t at[HARNESS_RANKS_MAX + 1] = {0};
    unsigned char data[HARNESS_RANKS_MAX * HARNESS_PART] = {0};
    const int me = comm->rank;
    for (int r = 0; r < comm->ranks; r++) at[r + 1] = at[r] + harness_part(r, 0, round);
    harness_fill(data + at[me], me, 0, round, at[me + 1] - at[me]);
    wd_comm_wait(comm, wd_comm_gather_all(comm, lane, data, at, NULL));
    for (int r = 0; r < comm->ranks; r++) harness_see(data + at[r], r, 0, round, at[r + 1] - at[r]);
}

/* Exchanges among each half of the ranks, and then among ranks of the same place in both halves,
 * whose parts are not adjacent: the bytes of other ranks stay as they are. */
static inline void harness_within(wd_comm *comm, wd_lane lane, int round)
{
    size_t to_at[HARNESS_RANKS_MAX + 1] = {0}, from_at[HARNESS_RANKS_MAX + 1] = {0};
    unsigned char to[HARNESS_RANKS_MAX * HARNESS_PART] = {0};
    unsigned char from[HARNESS_RANKS_MAX * HARNESS_PART] = {0};
    const int me = comm->rank, half = comm->ranks / 2, alike = half ? me % half : 0;
    if (comm->ranks % 2) return;
    const wd_group near = {me - alike, 1, half}, far = {alike, half, 2};
    for (int i = 0; i < half; i++) {
        const int r = wd__group_rank(&near, i);
        to_at[i + 1] = to_at[i] + harness_part(r, me, round);
        from_at[i + 1] = from_at[i] + harness_part(me, r, round);
        harness_fill(from + from_at[i], me, r, round, from_at[i + 1] - from_at[i]);
    }
    wd_comm_wait(comm, wd__comm_exchange_within(comm, lane, near, to, (wd_comm_parts){to_at, 1},
                                                from, (wd_comm_parts){from_at, 1}, NULL));
    for (int i = 0; i < half; i++)
        harness_see(to + to_at[i], wd__group_rank(&near, i), me, round, to_at[i + 1] - to_at[i]);
    for (int r = 0; r < comm->ranks; r++) to_at[r + 1] = to_at[r] + harness_part(r, 0, round);
    memset(to, 0, sizeof to);
    harness_fill(to + to_at[me], me, 0, round, to_at[me + 1] - to_at[me]);
    wd_comm_wait(comm, wd__comm_gather_within(comm, lane, far, to,
                                              (wd_comm_parts){to_at + alike, half}, NULL));
    for (int r = 0; r < comm->ranks; r++) {
        if (r % half == alike) harness_see(to + to_at[r], r, 0, round, to_at[r + 1] - to_at[r]);
        for (size_t i = to_at[r]; r % half != alike && i < to_at[r + 1]; i++) HARNESS_CHECK(!to[i]);
    }
}

/* Sends to the next rank and receives from the one before, several messages at a time. */
static inline void harness_ring(wd_comm *comm, wd_lane lane, int round)
{
    enum { MESSAGES = 3 };
    unsigned char to[MESSAGES][HARNESS_PART], from[MESSAGES][HARNESS_PART];
    wd_ticket sent[MESSAGES], received[MESSAGES];
    const int me = comm->rank, next = (me + 1) % comm->ranks;
    const int previous = (me + comm->ranks - 1) % comm->ranks;
    if (comm->ranks == 1) return;
    for (int i = 0; i < MESSAGES; i++) {
        harness_fill(from[i], me, i, round, HARNESS_PART);
        sent[i] = wd_comm_send(comm, lane, from[i], HARNESS_PART, next, NULL);
        received[i] = wd_comm_receive(comm, lane, to[i], HARNESS_PART, previous);
    }
    for (int i = MESSAGES - 1; i >= 0; i--) {
        wd_comm_wait(comm, received[i]);
        wd_comm_wait(comm, sent[i]);
        harness_see(to[i], previous, i, round, HARNESS_PART);
    }
}

/* Posts more operations than a lane holds, and waits only for the last ones. */
static inline void harness_many(wd_comm *comm)
{
    size_t at[HARNESS_RANKS_MAX + 1] = {0};
    static _Thread_local int32_t value[2 * WD_LANE_DEPTH][HARNESS_RANKS_MAX];
    wd_ticket last = {0};
    for (int r = 0; r < comm->ranks; r++) at[r + 1] = at[r] + sizeof **value;
    for (int i = 0; i < 2 * WD_LANE_DEPTH; i++) {
        value[i][comm->rank] = i * 100 + comm->rank;
        last = wd_comm_gather_all(comm, WD_LANE_GRADIENTS, value[i], at, NULL);
    }
    wd_comm_wait(comm, last);
    wd_comm_barrier(comm);
    for (int i = 0; i < WD_LANE_DEPTH;
         i++) /* earlier ones were complete when their places were used again */
        for (int r = 0; r < comm->ranks; r++) HARNESS_CHECK(value[i][r] == i * 100 + r);
}

/* Posts on two lanes, in another order on every other rank. */
static inline void harness_lanes(wd_comm *comm)
{
    size_t at[HARNESS_RANKS_MAX + 1] = {0};
    int32_t value[2][HARNESS_RANKS_MAX];
    wd_ticket ticket[2];
    for (int r = 0; r < comm->ranks; r++) at[r + 1] = at[r] + sizeof **value;
    for (int i = 0; i < 2; i++) {
        const int lane = (i + comm->rank) % 2;
        value[lane][comm->rank] = lane * 100 + comm->rank;
        ticket[lane] = wd_comm_gather_all(comm, lane ? WD_LANE_TARGETS : WD_LANE_GRADIENTS,
                                          value[lane], at, NULL);
    }
    for (int lane = 0; lane < 2; lane++) {
        wd_comm_wait(comm, ticket[lane]);
        for (int r = 0; r < comm->ranks; r++) HARNESS_CHECK(value[lane][r] == lane * 100 + r);
    }
}

/* Bytes that a device copies to the host are sent once the copy is done. */
static inline void harness_after(wd_comm *comm, wd_device *device)
{
    wd_queue *queue;
    wd_event *copied;
    float *pool, data[HARNESS_RANKS_MAX][64] = {0}, own[64];
    size_t at[HARNESS_RANKS_MAX + 1] = {0};
    for (int r = 0; r < comm->ranks; r++) at[r + 1] = at[r] + sizeof *data;
    for (int i = 0; i < 64; i++) own[i] = (float)(comm->rank * 64 + i);
    HARNESS_CHECK(wd_queue_open(&queue, device, NULL) == WD_OK);
    HARNESS_CHECK(wd_event_open(&copied, device, NULL) == WD_OK);
    HARNESS_CHECK(wd_device_alloc((void **)&pool, device, sizeof own, "own", NULL) == WD_OK);
    HARNESS_CHECK(wd_host_register(device, data, sizeof data, "data", NULL) == WD_OK);
    wd_queue_copy_and_wait(queue, pool, own, sizeof own);
    wd_queue_copy(queue, data[comm->rank], pool, sizeof own);
    wd_event_record(copied, queue);
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_GRADIENTS, data, at, copied));
    for (int r = 0; r < comm->ranks; r++)
        for (int i = 0; i < 64; i++) HARNESS_CHECK(data[r][i] == (float)(r * 64 + i));
    wd_queue_close(queue);
    wd_event_close(copied);
    wd_host_unregister(device, data);
    wd_device_free(device, pool);
}

static inline void harness_all(wd_comm *comm, wd_device *device)
{
    for (int round = 0; round < 12; round++) {
        const wd_lane lane = (wd_lane)(round % WD_LANES);
        harness_exchange(comm, lane, round);
        harness_gather_all(comm, lane, round);
        harness_within(comm, lane, round);
        harness_ring(comm, lane, round);
    }
    harness_many(comm);
    harness_lanes(comm);
    harness_after(comm, device);
    wd_comm_barrier(comm);
}

#endif
