/* Shipments of velocities: see distill/shipment.h. */
#include "distill/shipment.h"

#include <inttypes.h>

#include "core/memory.h"
#include "core/require.h"

struct wd_shipments {
    wd_comm *comm;
    wd_queue *home, *carrier; /* carrier: home, where a processor does one thing at a time */
    size_t state_bytes;
    int64_t state_count, states_max, count;
    int64_t packed, sent, taken;
    wd_shipment *ring; /* [count] */
};

static wd_shipment *number(const wd_shipments *s, int64_t n)
{
    return &s->ring[n % s->count];
}

int64_t wd_shipments_sent(const wd_shipments *shipments)
{
    return shipments->sent;
}

int64_t wd_shipments_taken(const wd_shipments *shipments)
{
    return shipments->taken;
}

bool wd_shipments_is_full(const wd_shipments *shipments)
{
    return shipments->sent - shipments->taken == shipments->count;
}

wd_shipment *wd_shipments_pack(wd_shipments *s, int64_t states)
{
    WD_REQUIRE(!wd_shipments_is_full(s) && s->packed == s->sent,
               "%" PRId64 " shipments are under way, and there is room for %" PRId64,
               s->packed - s->taken, s->count);
    WD_REQUIRE(states <= s->states_max, "a shipment of %" PRId64 " states has room for %" PRId64,
               states, s->states_max);
    wd_shipment *next = number(s, s->packed++);
    wd_event_wait(next->unpacked);
    return next;
}

void wd_shipments_wait_on(wd_shipments *shipments, wd_event *event)
{
    wd_event_wait_on(shipments->carrier, event);
}

/* The states [from, end) of a shipment between staging and ring; neighbours go together. */
static void copy(const wd_shipments *s, const wd_shipment *of, int64_t from, int64_t end,
                 float *ring, bool out)
{
    for (int64_t i = from, n; i < end; i += n) {
        n = 1;
        while (i + n < end && of->place[i + n] == of->place[i] + n) n++;
        float *place = ring + of->place[i] * s->state_count;
        float *staging = of->staging + i * s->state_count;
        wd_queue_copy(out ? s->carrier : s->home, out ? staging : place, out ? place : staging,
                      (size_t)n * s->state_bytes);
    }
}

void wd_shipments_send(wd_shipments *s, float *ring)
{
    const int rank = s->comm->rank;
    WD_REQUIRE(s->packed == s->sent + 1, "a shipment is sent that was not packed");
    wd_shipment *next = number(s, s->sent++);
    for (int r = 0; r <= s->comm->ranks; r++) next->at[r] = (size_t)next->first[r] * s->state_bytes;
    copy(s, next, next->first[rank], next->first[rank + 1], ring, true);
    wd_event_record(next->copied, s->carrier);
    next->ticket =
        wd_comm_gather_all(s->comm, WD_LANE_TARGETS, next->staging, next->at, next->copied);
}

const wd_shipment *wd_shipments_await(wd_shipments *s)
{
    WD_REQUIRE(s->taken < s->sent, "a shipment is awaited that was not sent");
    const wd_shipment *oldest = number(s, s->taken);
    wd_comm_wait(s->comm, oldest->ticket);
    return oldest;
}

void wd_shipments_take(wd_shipments *s, float *ring, wd_queue *queue)
{
    const int rank = s->comm->rank;
    const wd_shipment *oldest = number(s, s->taken++);
    copy(s, oldest, 0, oldest->first[rank], ring, false);
    copy(s, oldest, oldest->first[rank + 1], oldest->first[s->comm->ranks], ring, false);
    wd_event_record(oldest->unpacked, s->home);
    wd_event_wait_on(queue, oldest->unpacked);
}

/* ---- open and close ---- */

static wd_status open_shipment(wd_shipment *out, const wd_shipments *s, int64_t states_max,
                               wd_err *err)
{
    const char *what = "targets on their way";
    const size_t states = (size_t)states_max, bounds = (size_t)s->comm->ranks + 1;
    wd_device *device = wd_queue_device(s->home);
    WD_TRY(wd_alloc((void **)&out->target, states, sizeof *out->target, what, err));
    WD_TRY(wd_alloc((void **)&out->place, states, sizeof *out->place, what, err));
    WD_TRY(wd_alloc((void **)&out->first, bounds, sizeof *out->first, what, err));
    WD_TRY(wd_alloc((void **)&out->at, bounds, sizeof *out->at, what, err));
    WD_TRY(wd_host_alloc((void **)&out->staging, device, states * s->state_bytes, what, err));
    WD_TRY(wd_event_open(&out->copied, device, err));
    return wd_event_open(&out->unpacked, device, err);
}

wd_status wd_shipments_open(wd_shipments **out, wd_comm *comm, wd_queue *home, int64_t count,
                            int64_t states_max, int64_t state_count, wd_err *err)
{
    wd_status status;
    wd_shipments *s;
    wd_device *device = wd_queue_device(home);
    const char *what = "targets on their way";
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, what, err));
    *s = (wd_shipments){.comm = comm,
                        .home = home,
                        .state_bytes = (size_t)state_count * sizeof(float),
                        .state_count = state_count,
                        .states_max = states_max,
                        .count = count};
    WD_TRY_OUT(wd_alloc((void **)&s->ring, (size_t)count, sizeof *s->ring, what, err));
    for (int64_t i = 0; i < count; i++) WD_TRY_OUT(open_shipment(&s->ring[i], s, states_max, err));
    if (wd_device_traits(device)->synchronous)
        s->carrier = home;
    else
        WD_TRY_OUT(wd_queue_open(&s->carrier, device, err));
    *out = s;
out:
    if (status != WD_OK) wd_shipments_close(s);
    return status;
}

void wd_shipments_close(wd_shipments *s)
{
    if (!s) return;
    while (s->taken < s->sent) {
        wd_shipments_await(s);
        s->taken++;
    }
    wd_queue_wait(s->home);
    if (s->carrier != s->home) wd_queue_close(s->carrier);
    for (int64_t i = 0; s->ring && i < s->count; i++) {
        wd_shipment *of = &s->ring[i];
        wd_free(of->target);
        wd_free(of->place);
        wd_free(of->first);
        wd_free(of->at);
        wd_host_free(wd_queue_device(s->home), of->staging);
        wd_event_close(of->copied);
        wd_event_close(of->unpacked);
    }
    wd_free(s->ring);
    wd_free(s);
}
