/* The slots of a streamed residency: where its stages are while they come and are used.
 *
 * Two or more for blocks: one is used while the next block comes. Embedding and head, which take
 * next to no time, have one each: from a block's slot they would keep the first block of the next
 * sweep away until the last one of this sweep is done.
 *
 * A slot is empty, then wanted: it was asked for; then filled: its coming is launched, or failed;
 * then in use, and empty again. From host memory it is brought at once; else a thread does. */
#include "core/memory.h"
#include "teacher/residency_streamed_impl.h"

/* ---- open and close ---- */

wd_status wd_slot_open(wd_streamed *r, wd_stage_kind kind, size_t bytes, wd_err *err)
{
    const char *what = "teacher weights on their way";
    wd_slot *s = &r->slot[r->slots++];
    s->kind = kind;
    WD_TRY(wd_event_open(&s->arrived, r->device, err));
    WD_TRY(wd_event_open(&s->released, r->device, err));
    wd_event_record(s->released, r->copies);
    if (r->reads_host) return wd_streamed_take_host(&s->block, r, bytes, what, err);
    return wd_device_alloc(&s->block, r->device, bytes, what, err);
}

void wd_slots_close(wd_streamed *r)
{
    for (int i = 0; i < r->slots; i++) {
        if (r->slot[i].released) wd_event_wait(r->slot[i].released);
        wd_event_close(r->slot[i].arrived);
        wd_event_close(r->slot[i].released);
        if (r->reads_host)
            wd_streamed_give_host(r, r->slot[i].block);
        else
            wd_device_free(r->device, r->slot[i].block);
    }
}

/* ---- asked for by who computes ---- */

void wd_slot_launch(wd_streamed *r, wd_slot *s, const wd_stage_layout *layout)
{
    wd_event_wait_on(r->copies, s->released);
    wd_stage_bring(&s->view, layout, s->block, r->casting, r->copies);
    wd_event_record(s->arrived, r->copies);
}

static wd_slot *find(wd_streamed *r, int expert, int stage)
{
    for (int i = 0; i < r->slots; i++) {
        wd_slot *s = &r->slot[i];
        if (s->state != WD_SLOT_EMPTY && s->expert == expert && s->stage == stage) return s;
    }
    return NULL;
}

/* A slot for a stage, that nobody uses and nothing comes to: an empty one, else, if it `must` be,
 * what was not asked for longest is given up: it came for a sweep that is not the next one. */
static wd_slot *find_free(wd_streamed *r, int stage, bool must)
{
    wd_slot *best = NULL;
    for (int i = 0; i < r->slots; i++) {
        wd_slot *s = &r->slot[i];
        if (s->kind != wd_stage_kind_of(stage, r->base.stages)) continue;
        if (s->in_use || s->state == WD_SLOT_WANTED) continue;
        if (s->state == WD_SLOT_EMPTY) return s;
        if (must && (!best || s->asked < best->asked)) best = s;
    }
    return best;
}

/* Who reads needs `asked` as it was when a stage became wanted. */
wd_slot *wd_slot_ask(wd_streamed *r, int expert, int stage, bool must)
{
    pthread_mutex_lock(&r->lock);
    wd_slot *s = find(r, expert, stage);
    bool there = s;
    while (!s && !(s = find_free(r, stage, must)) && must) pthread_cond_wait(&r->changed, &r->lock);
    if (s && s->state != WD_SLOT_WANTED) s->asked = r->asked++;
    if (s && !there) {
        s->expert = expert;
        s->stage = stage;
        s->state = r->from_disk ? WD_SLOT_WANTED : WD_SLOT_FILLED;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    if (s && !there && !r->from_disk) wd_streamed_bring_block(r, s);
    return s;
}

/* The slot that has the stage for this sweep, once the host's reader has brought it: there may be
 * one for the next sweep, too. */
static wd_slot *await_brought(wd_streamed *r, int expert, int stage)
{
    wd_slot *first = NULL;
    bool waits = false;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        for (int i = 0; i < r->slots; i++) {
            wd_slot *s = &r->slot[i];
            if (s->in_use || (s->state != WD_SLOT_FILLED && s->state != WD_SLOT_FAILED)) continue;
            if (s->expert != expert || s->stage != stage) continue;
            if (!first || s->asked < first->asked) first = s;
        }
        if (first) break;
        if (!waits) wd_host_reader_wait(r->host_reader, true);
        waits = true;
        pthread_cond_wait(&r->changed, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    if (waits) wd_host_reader_wait(r->host_reader, false);
    return first;
}

wd_status wd_slot_take(wd_slot **out, wd_streamed *r, int expert, int stage, wd_err *err)
{
    wd_slot *s =
        r->host_reader ? await_brought(r, expert, stage) : wd_slot_ask(r, expert, stage, true);
    pthread_mutex_lock(&r->lock);
    while (s->state == WD_SLOT_WANTED) pthread_cond_wait(&r->changed, &r->lock);
    bool failed = s->state == WD_SLOT_FAILED;
    if (failed) s->state = WD_SLOT_EMPTY;
    s->in_use = !failed;
    pthread_mutex_unlock(&r->lock);
    if (failed) {
        if (err) *err = s->error;
        return s->error.status;
    }
    *out = s;
    return WD_OK;
}

void wd_slot_give_back(wd_streamed *r, int expert, int stage, wd_queue *queue)
{
    pthread_mutex_lock(&r->lock);
    wd_slot *s = r->slot;
    while (!s->in_use || s->expert != expert || s->stage != stage) s++;
    wd_event_record(s->released, queue);
    s->in_use = false;
    s->state = WD_SLOT_EMPTY; /* the next sweep brings it again */
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* ---- filled by who reads ---- */

/* The one that was asked for first. */
static wd_slot *next_wanted(wd_streamed *r)
{
    wd_slot *first = NULL;
    for (int i = 0; i < r->slots; i++) {
        wd_slot *s = &r->slot[i];
        if (s->state == WD_SLOT_WANTED && (!first || s->asked < first->asked)) first = s;
    }
    return first;
}

wd_slot *wd_slot_await_wanted(wd_streamed *r)
{
    wd_slot *wanted = NULL;
    pthread_mutex_lock(&r->lock);
    while (!r->closing && !(wanted = next_wanted(r))) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return wanted;
}

wd_slot *wd_slot_await_empty(wd_streamed *r, const wd_reading *reading)
{
    const wd_stage_kind kind = wd_stage_kind_of(reading->stage, r->base.stages);
    wd_slot *empty = NULL;
    pthread_mutex_lock(&r->lock);
    while (!empty && !r->closing) {
        for (int i = 0; i < r->slots; i++) {
            wd_slot *s = &r->slot[i];
            if (s->state != WD_SLOT_EMPTY || s->kind != kind) continue;
            if (!empty || s->asked < empty->asked) empty = s;
        }
        if (!empty) pthread_cond_wait(&r->changed, &r->lock);
    }
    if (empty) {
        empty->expert = reading->expert;
        empty->stage = reading->stage;
        empty->asked = reading->number;
        empty->state = WD_SLOT_WANTED;
    }
    pthread_mutex_unlock(&r->lock);
    return empty;
}

void wd_slot_set(wd_streamed *r, wd_slot *s, wd_slot_state state)
{
    pthread_mutex_lock(&r->lock);
    const bool wanted = !r->host_reader || wd_host_reader_wants(r->host_reader, s->asked);
    s->state = wanted ? state : WD_SLOT_EMPTY;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void wd_slots_drop_unwanted(wd_streamed *r)
{
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->slots; i++) {
        wd_slot *s = &r->slot[i];
        if (!s->in_use && (s->state == WD_SLOT_FILLED || s->state == WD_SLOT_FAILED) &&
            !wd_host_reader_wants(r->host_reader, s->asked))
            s->state = WD_SLOT_EMPTY;
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}
