/* Gathered targets: see train/targets/gathers.h. */
#include "train/targets/gathers.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/memory.h"

/* A gather, and what it needs on its way. */
typedef struct transfer {
    wd_gather gather;
    float *staging; /* [states_max, state] host */
    size_t *bounds; /* [ranks + 1] bytes: what each rank sends */
    wd_ticket ticket;
    wd_event *copied;   /* what this rank sends is in the staging */
    wd_event *unpacked; /* what others have sent is out of it */
} transfer;

struct wd_gathers {
    wd_comm *comm;
    wd_queue *home, *carrier; /* carrier: home, where a processor does one thing at a time */
    size_t state_bytes;
    int64_t state_count, states_max, count;
    int64_t packed, posted, taken;
    transfer *ring; /* [count] */
};

static transfer *number(const wd_gathers *s, int64_t n)
{
    return &s->ring[n % s->count];
}

int64_t wd__gathers_posted(const wd_gathers *gathers)
{
    return gathers->posted;
}

int64_t wd__gathers_taken(const wd_gathers *gathers)
{
    return gathers->taken;
}

bool wd__gathers_is_full(const wd_gathers *gathers)
{
    return gathers->posted - gathers->taken == gathers->count;
}

wd_gather *wd__gathers_pack(wd_gathers *s, int64_t states)
{
    WD_REQUIRE(!wd__gathers_is_full(s) && s->packed == s->posted,
               "%" PRId64 " gathers of targets are under way, and there is room for %" PRId64,
               s->packed - s->taken, s->count);
    WD_REQUIRE(states <= s->states_max, "a gather of %" PRId64 " states has room for %" PRId64,
               states, s->states_max);
    transfer *next = number(s, s->packed++);
    wd_event_wait(next->unpacked);
    return &next->gather;
}

void wd__gathers_wait_on(wd_gathers *gathers, wd_event *event)
{
    wd_event_wait_on(gathers->carrier, event);
}

/* Copies the states [from, end) of a gather between staging and ring; neighbours go together. */
static void copy(const wd_gathers *s, const transfer *t, int64_t from, int64_t end, float *ring,
                 bool out)
{
    const int64_t *at = t->gather.place;
    for (int64_t i = from, n; i < end; i += n) {
        n = 1;
        while (i + n < end && at[i + n] == at[i] + n) n++;
        float *place = ring + at[i] * s->state_count;
        float *staging = t->staging + i * s->state_count;
        wd_queue_copy(out ? s->carrier : s->home, out ? staging : place, out ? place : staging,
                      (size_t)n * s->state_bytes);
    }
}

void wd__gathers_post(wd_gathers *s, float *ring)
{
    const int rank = s->comm->rank;
    WD_REQUIRE(s->packed == s->posted + 1, "a gather is posted that was not packed");
    transfer *next = number(s, s->posted++);
    const int64_t *first = next->gather.first;
    for (int r = 0; r <= s->comm->ranks; r++) next->bounds[r] = (size_t)first[r] * s->state_bytes;
    copy(s, next, first[rank], first[rank + 1], ring, true);
    wd_event_record(next->copied, s->carrier);
    next->ticket =
        wd_comm_gather_all(s->comm, WD_LANE_TARGETS, next->staging, next->bounds, next->copied);
}

const wd_gather *wd__gathers_await(wd_gathers *s)
{
    WD_REQUIRE(s->taken < s->posted, "a gather is awaited that was not posted");
    const transfer *oldest = number(s, s->taken);
    wd_comm_wait(s->comm, oldest->ticket);
    return &oldest->gather;
}

void wd__gathers_take(wd_gathers *s, float *ring, wd_queue *queue)
{
    const int rank = s->comm->rank;
    const transfer *oldest = number(s, s->taken++);
    const int64_t *first = oldest->gather.first;
    copy(s, oldest, 0, first[rank], ring, false);
    copy(s, oldest, first[rank + 1], first[s->comm->ranks], ring, false);
    wd_event_record(oldest->unpacked, s->home);
    wd_event_wait_on(queue, oldest->unpacked);
}

/* ---- open and close ---- */

static wd_status open_transfer(transfer *out, const wd_gathers *s, int64_t states_max, wd_err *err)
{
    const char *what = "targets on their way";
    const size_t states = (size_t)states_max, bounds = (size_t)s->comm->ranks + 1;
    wd_device *device = wd_queue_device(s->home);
    wd_gather *gather = &out->gather;
    WD_TRY(wd_alloc((void **)&gather->target, states, sizeof *gather->target, what, err));
    WD_TRY(wd_alloc((void **)&gather->place, states, sizeof *gather->place, what, err));
    WD_TRY(wd_alloc((void **)&gather->first, bounds, sizeof *gather->first, what, err));
    WD_TRY(wd_alloc((void **)&out->bounds, bounds, sizeof *out->bounds, what, err));
    WD_TRY(wd_host_alloc((void **)&out->staging, device, states * s->state_bytes, what, err));
    WD_TRY(wd_event_open(&out->copied, device, err));
    return wd_event_open(&out->unpacked, device, err);
}

wd_status wd__gathers_open(wd_gathers **out, wd_comm *comm, wd_queue *home, int64_t count,
                           int64_t states_max, int64_t state_count, wd_err *err)
{
    wd_status status;
    wd_gathers *s;
    wd_device *device = wd_queue_device(home);
    const char *what = "targets on their way";
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, what, err));
    *s = (wd_gathers){.comm = comm,
                      .home = home,
                      .state_bytes = (size_t)state_count * sizeof(float),
                      .state_count = state_count,
                      .states_max = states_max,
                      .count = count};
    WD_TRY_OUT(wd_alloc((void **)&s->ring, (size_t)count, sizeof *s->ring, what, err));
    for (int64_t i = 0; i < count; i++) WD_TRY_OUT(open_transfer(&s->ring[i], s, states_max, err));
    if (wd_device_traits(device)->synchronous)
        s->carrier = home;
    else
        WD_TRY_OUT(wd_queue_open(&s->carrier, device, err));
    *out = s;
out:
    if (status != WD_OK) wd__gathers_close(s);
    return status;
}

void wd__gathers_close(wd_gathers *s)
{
    if (!s) return;
    while (s->taken < s->posted) {
        wd__gathers_await(s);
        s->taken++;
    }
    wd_queue_wait(s->home);
    if (s->carrier != s->home) wd_queue_close(s->carrier);
    for (int64_t i = 0; s->ring && i < s->count; i++) {
        transfer *t = &s->ring[i];
        wd_free(t->gather.target);
        wd_free(t->gather.place);
        wd_free(t->gather.first);
        wd_free(t->bounds);
        wd_host_free(wd_queue_device(s->home), t->staging);
        wd_event_close(t->copied);
        wd_event_close(t->unpacked);
    }
    wd_free(s->ring);
    wd_free(s);
}
