/* The stand-in driver's streams and events, and the order in which work runs.
 *
 * Work waits in the list of its stream until somebody waits for something. Then what that needs
 * runs, in the order of its stream; and before each piece a draw decides whether some other stream
 * comes forward first. How often it does is drawn anew for every wait: never (all other streams are
 * as late as can be), sometimes, or as far as they can go. So what a program orders by luck alone
 * goes wrong with some seed.
 *
 * A point is what an event stands for once it is recorded: it is passed when the work before it in
 * its stream is done.
 */
#include <stdlib.h>
#include <string.h>

#include "standin/impl.h"

typedef struct wd_standin_work work;

enum { STREAMS_MAX = 256, PENDING_MAX = 1024 };

struct CUstream_st {
    bool open;
    int device, pending;
    work *first, **end;
};

struct CUevent_st {
    struct CUevent_st *next; /* of those that are open */
    int device;
    int64_t point; /* 0: never recorded */
};

typedef struct point {
    bool passed;
    wd_cu_stream stream;
} point;

static wd_standin_state *const s = &wd_the_standin;
static struct CUstream_st streams[STREAMS_MAX];
static point *points; /* from number 1 */
static int64_t points_count, points_max, submitted;
static wd_cu_event events;

/* ---- running ---- */

/* Whether a piece of work must wait for what the other ends of an exchange do; a device that has
 * failed does nothing any more. */
static bool is_held(const struct CUstream_st *stream)
{
    const work *w = stream->first;
    return w && w->ready && !s->context[stream->device].fault && !w->ready(w->argument);
}

static bool is_ready(const struct CUstream_st *stream)
{
    return stream->first && (!stream->first->waits || points[stream->first->waits].passed) &&
           !is_held(stream);
}

static bool is_overtaking(const work *w)
{
    for (int i = 0; i < STREAMS_MAX; i++)
        if (streams[i].first && streams[i].first->number < w->number) return true;
    return false;
}

/* Does the first piece of work of a stream, which is ready. */
static void step(wd_cu_stream stream)
{
    work *w = stream->first;
    stream->first = w->next;
    stream->pending--;
    if (!stream->first) stream->end = &stream->first;
    struct CUctx_st *context = &s->context[stream->device];
    if (w->run && !context->fault) {
        s->counts.overtaken += is_overtaking(w);
        if (s->fail_work && !--s->fail_work) context->fault = s->work_result;
        wd_standin_reach(w->reach);
        if (!context->fault) w->run(w->argument, wd_standin_random(UINT64_MAX));
    }
    if (w->records) points[w->records].passed = true;
    free(w);
    wd_standin_tell_others();
}

/* Lets one stream that is ready come forward; false: none is. */
static bool step_any(void)
{
    int ready = 0;
    wd_cu_stream chosen = NULL;
    for (int i = 0; i < STREAMS_MAX; i++)
        if (is_ready(&streams[i]) && !wd_standin_random((uint64_t)++ready)) chosen = &streams[i];
    if (chosen) step(chosen);
    return chosen != NULL;
}

/* How many pieces of other work come before the next one that is needed. */
typedef enum eagerness { NEVER, SOMETIMES, FAR } eagerness;

static void let_others(eagerness others)
{
    if (others == NEVER) return;
    for (uint64_t n = wd_standin_random(others == FAR ? 64 : 3); n > 0 && step_any();) n--;
}

static void pass(int64_t number, eagerness others);

/* Does the first piece of work of the stream, after what it waits for. What the other end of an
 * exchange has yet to do is done first, or waited for where nobody has asked for it yet; meanwhile
 * another thread may do the work of the stream. */
static void advance(wd_cu_stream stream, eagerness others)
{
    if (stream->first->waits) pass(stream->first->waits, others);
    let_others(others);
    if (is_ready(stream))
        step(stream);
    else if (is_held(stream) && !step_any())
        wd_standin_wait_for_others();
}

static void pass(int64_t number, eagerness others)
{
    while (!points[number].passed) advance(points[number].stream, others);
}

static eagerness draw(void)
{
    return (eagerness)wd_standin_random(3);
}

static void drain_stream(wd_cu_stream stream)
{
    const eagerness others = draw();
    while (stream->first) advance(stream, others);
}

void wd_standin_drain(int device)
{
    for (int i = 0; i < STREAMS_MAX; i++)
        if (streams[i].open && (device < 0 || streams[i].device == device))
            drain_stream(&streams[i]);
    wd_standin_reach(0);
}

/* ---- submitting ---- */

static bool is_stream(wd_cu_stream stream)
{
    return stream >= streams && stream < streams + STREAMS_MAX && stream->open;
}

int wd_standin_stream_device(wd_cu_stream stream)
{
    return is_stream(stream) ? stream->device : -1;
}

wd_cu_result wd_standin_submit(wd_cu_stream stream, const wd_standin_work *like,
                               const void *argument, size_t bytes)
{
    if (!is_stream(stream)) return WD_CU_INVALID_HANDLE;
    work *w = malloc(sizeof *w + bytes);
    if (!w) abort();
    *w = *like;
    w->next = NULL;
    w->number = ++submitted;
    if (bytes) memcpy(w->argument, argument, bytes);
    *stream->end = w;
    stream->end = &w->next;
    wd_standin_tell_others();
    if (++stream->pending > PENDING_MAX) { /* a driver's own queue has an end, too */
        advance(stream, NEVER);
        wd_standin_reach(0);
    }
    return WD_CU_SUCCESS;
}

/* ---- streams of the table ---- */

wd_cu_result wd_standin_stream_create(wd_cu_stream *stream, unsigned flags)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    int i = 0;
    while (i < STREAMS_MAX && streams[i].open) i++;
    if (i == STREAMS_MAX || flags != WD_CU_STREAM_NON_BLOCKING)
        return wd_standin_leave(WD_CU_INVALID_VALUE);
    streams[i] = (struct CUstream_st){.open = true, .device = wd_standin_current()->device};
    streams[i].end = &streams[i].first;
    *stream = &streams[i];
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_stream_destroy(wd_cu_stream stream)
{
    const wd_cu_result entered = wd_standin_enter(false);
    if (entered) return entered;
    if (!is_stream(stream)) return wd_standin_leave(WD_CU_INVALID_HANDLE);
    drain_stream(stream);
    wd_standin_reach(0);
    stream->open = false;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_stream_synchronize(wd_cu_stream stream)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    s->counts.host_waits++;
    if (!is_stream(stream)) return wd_standin_leave(WD_CU_INVALID_HANDLE);
    drain_stream(stream);
    wd_standin_reach(0);
    return wd_standin_leave(s->context[stream->device].fault);
}

wd_cu_result wd_standin_stream_wait_event(wd_cu_stream stream, wd_cu_event event, unsigned flags)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    if (!event || flags) return wd_standin_leave(WD_CU_INVALID_VALUE);
    const work w = {.waits = event->point};
    return wd_standin_leave(wd_standin_submit(stream, &w, NULL, 0));
}

/* ---- events of the table ---- */

wd_cu_result wd_standin_event_create(wd_cu_event *event, unsigned flags)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    if (flags != WD_CU_EVENT_DISABLE_TIMING) return wd_standin_leave(WD_CU_INVALID_VALUE);
    *event = calloc(1, sizeof **event);
    if (!*event) abort();
    **event = (struct CUevent_st){.next = events, .device = wd_standin_current()->device};
    events = *event;
    return wd_standin_leave(WD_CU_SUCCESS);
}

wd_cu_result wd_standin_event_destroy(wd_cu_event event)
{
    const wd_cu_result entered = wd_standin_enter(false);
    if (entered) return entered;
    wd_cu_event *at = &events;
    while (*at && *at != event) at = &(*at)->next;
    if (!*at) return wd_standin_leave(WD_CU_INVALID_HANDLE);
    *at = event->next;
    free(event);
    return wd_standin_leave(WD_CU_SUCCESS);
}

static int64_t new_point(wd_cu_stream stream)
{
    if (points_count + 1 >= points_max) {
        points_max = points_max ? 2 * points_max : 1024;
        points = realloc(points, (size_t)points_max * sizeof *points);
        if (!points) abort();
    }
    points[++points_count] = (point){.stream = stream};
    return points_count;
}

wd_cu_result wd_standin_event_record(wd_cu_event event, wd_cu_stream stream)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    if (!event || !is_stream(stream) || event->device != stream->device)
        return wd_standin_leave(WD_CU_INVALID_HANDLE);
    event->point = new_point(stream);
    const work w = {.records = event->point};
    return wd_standin_leave(wd_standin_submit(stream, &w, NULL, 0));
}

wd_cu_result wd_standin_event_synchronize(wd_cu_event event)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    s->counts.host_waits++;
    if (event->point) pass(event->point, draw());
    wd_standin_reach(0);
    return wd_standin_leave(s->context[event->device].fault);
}

/* Who asks again and again sees it happen: each time a piece of work is done. */
wd_cu_result wd_standin_event_query(wd_cu_event event)
{
    const wd_cu_result entered = wd_standin_enter(true);
    if (entered) return entered;
    if (!event->point || points[event->point].passed)
        return wd_standin_leave(s->context[event->device].fault);
    step_any();
    wd_standin_reach(0);
    return wd_standin_leave(WD_CU_NOT_READY);
}

int wd_standin_free_streams(void)
{
    int count = 0;
    for (; events; count++) {
        wd_cu_event next = events->next;
        free(events);
        events = next;
    }
    for (int i = 0; i < STREAMS_MAX; i++) {
        count += streams[i].open;
        while (streams[i].first) {
            work *next = streams[i].first->next;
            free(streams[i].first);
            streams[i].first = next;
        }
        streams[i] = (struct CUstream_st){0};
    }
    free(points);
    points = NULL;
    points_count = points_max = submitted = 0;
    return count;
}
