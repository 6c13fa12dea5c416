/* The buffers that streamed stages are copied to and used in, and the thread that copies them.
 *
 * Two or more for blocks: one is used while the next block comes. Embedding and head, which take
 * next to no time, have one each: in a block's buffer they would delay the first block of the
 * next sweep until the last one of this sweep is done.
 *
 * A buffer is empty; then a stage is coming; then it is filled, which means that all copies that
 * fill it are launched, or failed; then it is in use, and empty again. Stages come, and are used,
 * in one order. */
#include "core/memory.h"
#include "teacher/run/residency_part.h"

/* ---- open and close ---- */

wd_status wd__stage_buffer_open(wd_residency_part *r, wd_stage_kind kind, size_t bytes, wd_err *err)
{
    const char *what = "teacher weights on their way";
    wd_stage_buffer *s = &r->buffer[r->buffers++];
    s->kind = kind;
    WD_TRY(wd_event_open(&s->arrived, r->device, err));
    WD_TRY(wd_event_open(&s->released, r->device, err));
    wd_event_record(s->released, r->copies);
    if (r->reads_host) return wd__residency_part_take_host(&s->block, r, bytes, what, err);
    return wd_device_alloc(&s->block, r->device, bytes, what, err);
}

void wd__stage_buffers_close(wd_residency_part *r)
{
    for (int i = 0; i < r->buffers; i++) {
        if (r->buffer[i].released) wd_event_wait(r->buffer[i].released);
        wd_event_close(r->buffer[i].arrived);
        wd_event_close(r->buffer[i].released);
        if (r->reads_host)
            wd__residency_part_give_host(r, r->buffer[i].block);
        else
            wd_device_free(r->device, r->buffer[i].block);
    }
}

/* ---- filled by the thread that brings ---- */

void wd__stage_buffer_launch(wd_residency_part *r, wd_stage_buffer *s,
                             const wd_stage_layout *layout)
{
    wd_event_wait_on(r->copies, s->released);
    wd_stage_bring(&s->view, layout, s->block, r->casting, r->copies);
    wd_event_record(s->arrived, r->copies);
}

/* An empty buffer for a stage, which is coming there from now on; of several empty buffers the one
 * that was used first, whose work is done first. Waits for it. NULL: the residency is closing. */
static wd_stage_buffer *await_empty(wd_residency_part *r, const wd_stage_turn *turn)
{
    const wd_stage_kind kind = wd_stage_kind_of(turn->stage, r->stages);
    wd_stage_buffer *empty = NULL;
    pthread_mutex_lock(&r->lock);
    while (!empty && !r->closing) {
        for (int i = 0; i < r->buffers; i++) {
            wd_stage_buffer *s = &r->buffer[i];
            if (s->state != WD_BUFFER_EMPTY || s->kind != kind) continue;
            if (!empty || s->turn.number < empty->turn.number) empty = s;
        }
        if (!empty) pthread_cond_wait(&r->changed, &r->lock);
    }
    if (empty) {
        empty->turn = *turn;
        empty->state = WD_BUFFER_COMING;
    }
    pthread_mutex_unlock(&r->lock);
    return empty;
}

/* The stage that was coming to the buffer is launched, or has failed with s->error. */
static void set_state(wd_residency_part *r, wd_stage_buffer *s, wd_stage_buffer_state state)
{
    pthread_mutex_lock(&r->lock);
    s->state = state;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static bool has_arrived(const wd_stage_buffer *s)
{
    return s->state == WD_BUFFER_FILLED || s->state == WD_BUFFER_FAILED;
}

/* ---- used by the thread that computes ---- */

/* The buffer to which a stage has come for this sweep; there may be one for the next sweep, too. */
static wd_stage_buffer *find_arrived(wd_residency_part *r, int expert, int stage)
{
    wd_stage_buffer *first = NULL;
    for (int i = 0; i < r->buffers; i++) {
        wd_stage_buffer *s = &r->buffer[i];
        if (!has_arrived(s) || s->turn.expert != expert || s->turn.stage != stage) continue;
        if (!first || s->turn.number < first->turn.number) first = s;
    }
    return first;
}

wd_status wd__stage_buffer_take(wd_stage_buffer **out, wd_residency_part *r, int expert, int stage,
                                wd_err *err)
{
    wd_stage_buffer *s;
    pthread_mutex_lock(&r->lock);
    while (!(s = find_arrived(r, expert, stage))) {
        if (!r->is_waiting) {
            r->is_waiting = true;
            wd__residency_part_note_wait(r);
        }
        pthread_cond_wait(&r->changed, &r->lock);
    }
    r->is_waiting = false;
    wd__residency_part_note_wait(r);
    const bool failed = s->state == WD_BUFFER_FAILED;
    s->state = failed ? WD_BUFFER_EMPTY : WD_BUFFER_IN_USE;
    pthread_mutex_unlock(&r->lock);
    *out = s;
    if (failed && err) *err = s->error;
    return failed ? s->error.status : WD_OK;
}

void wd__stage_buffer_give_back(wd_residency_part *r, int expert, int stage, wd_queue *queue)
{
    wd_stage_buffer *s = r->buffer;
    pthread_mutex_lock(&r->lock);
    while (s->state != WD_BUFFER_IN_USE || s->turn.expert != expert || s->turn.stage != stage) s++;
    wd_event_record(s->released, queue);
    s->state = WD_BUFFER_EMPTY; /* the next sweep brings it again */
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* ---- sweeps, as they are announced ---- */

/* The expected sweep does not take place: its first stages come in vain, and leave their buffers,
 * one after another. */
static void pass_over_expected(wd_residency_part *r)
{
    for (int64_t n = r->order.announced; n < r->order.end; n++) {
        const wd_stage_turn *turn = wd__stage_order_at(&r->order, n);
        wd_stage_buffer *buffer;
        if (turn->wanted &&
            wd__stage_buffer_take(&buffer, r, turn->expert, turn->stage, NULL) == WD_OK)
            wd__stage_buffer_give_back(r, turn->expert, turn->stage, r->copies);
    }
}

void wd__residency_part_begin(wd_residency_part *r, wd_sweep_experts sweep, wd_sweep_experts next)
{
    if (r->dry || r->home == WD_HOME_DEVICE) return;
    if (!r->ring) { /* which others need does not matter */
        sweep.all = sweep.own;
        next.all = next.own;
    }
    if (sweep.all != r->order.expected.all) pass_over_expected(r);
    r->announced = sweep.own;
    pthread_mutex_lock(&r->lock);
    while (!wd__stage_order_has_room(&r->order, r->next_brought) ||
           !wd__stage_order_has_room(&r->order, r->next_read))
        pthread_cond_wait(&r->changed, &r->lock);
    wd__stage_order_add(&r->order, sweep, next);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool wd__residency_part_next_turn(wd_stage_turn *out, wd_residency_part *r, int64_t *next)
{
    pthread_mutex_lock(&r->lock);
    while (*next == r->order.end && !r->closing) pthread_cond_wait(&r->changed, &r->lock);
    const bool goes_on = !r->closing;
    if (goes_on) *out = *wd__stage_order_at(&r->order, (*next)++);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return goes_on;
}

/* ---- the thread that brings stages, one after another ---- */

static wd_status bring(wd_residency_part *r, wd_stage_buffer *buffer)
{
    if (r->ring) return wd__residency_part_bring_read(r, buffer);
    if (r->home == WD_HOME_DISK) return wd__residency_part_bring_file(r, buffer);
    wd__residency_part_bring_block(r, buffer);
    return WD_OK;
}

static void *bring_all(void *context)
{
    wd_residency_part *r = context;
    wd_stage_turn turn;
    while (wd__residency_part_next_turn(&turn, r, &r->next_brought)) {
        if (turn.wanted) {
            wd_stage_buffer *buffer = await_empty(r, &turn);
            if (!buffer) break;
            const wd_status status = bring(r, buffer);
            set_state(r, buffer, status == WD_OK ? WD_BUFFER_FILLED : WD_BUFFER_FAILED);
        }
        if (r->ring) wd__residency_part_pass(r, &turn);
    }
    return NULL;
}

wd_status wd__residency_part_start(wd_residency_part *r, wd_err *err)
{
    if (pthread_create(&r->thread, NULL, bring_all, r))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread to bring the teacher's weights");
    r->threaded = true;
    return WD_OK;
}

void wd__residency_part_end(wd_residency_part *r)
{
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->ring) wd_ring_leave(r->ring);
    if (r->threaded) pthread_join(r->thread, NULL);
}
