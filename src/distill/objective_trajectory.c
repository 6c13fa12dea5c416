/* The trajectory objective: see distill/objective_trajectory.h.
 *
 * Data flow: slot latents -> (copied) pool of states -> sweep -> pool of velocities = targets ->
 * Euler step of the slot's latents, made when they are wanted next; batches are gathered from the
 * pool. The pool is a ring by target number, as long as the stream can look back, plus the round
 * that is under way. Targets are made in whole rounds, so a saved state does not depend on the
 * window.
 *
 * Several ranks have the same trajectories and the same pool. Each evaluates its share of a window,
 * or, where they share a teacher, they evaluate it together; what a rank has not evaluated comes by
 * shipment (distill/shipment.h). A state that this rank has no part in is begun when its velocity
 * is taken, so that it keeps nobody waiting. */
#include "distill/objective_trajectory.h"

#include <assert.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "dev/ops.h"
#include "distill/shipment.h"

enum { SAVED_TENSORS = 3 };

/* A step of a trajectory whose velocity is on its way: it is made when the state is wanted. */
typedef struct pending_step {
    int64_t at; /* of its target in the pool; < 0: none */
    wd_event *delivered; /* NULL: it is there, for home's work */
} pending_step;

typedef struct trajectory_objective {
    wd_objective base;
    wd_trajectory_objective_options options;
    wd_sweep *sweep;
    wd_queue *home, *queue;
    wd_device *device;
    int64_t round;    /* the next one; base.targets is its first target */
    int64_t capacity; /* of the pool: whole rounds, so that none lies around the ring's end */
    int64_t shift;    /* of a target's place from its number, for rounds to begin where they do */
    /* device */
    float *latents;                    /* [slots, state]: where each trajectory is now */
    float *pool_latents, *pool_target; /* [capacity, state] */
    float *dt;                         /* [capacity] sigma steps that follow from targets */
    float *batch_latents, *batch_target, *batch_timestep; /* [samples_max, ...] */
    void *batch_text;
    /* host, read by copies: not touched until the event says so */
    float *host_dt, *host_timestep, *host_noise; /* [window], [window], [window, state] */
    int64_t *host_prompt;
    wd_target_info *info;  /* [window] */
    int64_t first, at;     /* the window's first target, and its place in the pool */
    int64_t own;           /* the first state of the window that the sweep has */
    wd_event **delivered;  /* [window] */
    pending_step *pending; /* [slots] */
    float *host_batch_timestep;
    void *host_batch_text;
    wd_event *window_uploaded, *batch_uploaded;
    wd_event *filled[2]; /* the batches of this step, and of the one before */
    int64_t prepared;    /* steps */
    int64_t end;         /* of the samples that are prepared */
    /* of several ranks; NULL: there is one */
    wd_shipments *shipments;
    bool *begun;               /* [capacity] its state is there, its velocity to come */
    int64_t *shipment;         /* [capacity] that a target comes with, from 1; 0: none */
    int64_t *slot_shipment;    /* [slots] that must be taken before the slot's next step */
    wd_target_info *come_info; /* [window]: of what is taken */
    int64_t *come_state;       /* [window]: of these, those that are still to be begun */
    wd_checkpoint_tensor saved[SAVED_TENSORS];
} trajectory_objective;

static size_t state_bytes(const trajectory_objective *o)
{
    return (size_t)o->options.state_count * sizeof(float);
}

/* Where a target is in the pool. */
static int64_t place_of(const trajectory_objective *o, int64_t number)
{
    return (number + o->shift) % o->capacity;
}

/* Moves `count` trajectories from slot `first` on one step along their ODE, whose targets follow
 * one another in the pool. */
static void step_slots(trajectory_objective *o, int64_t first, int64_t count)
{
    int64_t n = o->options.state_count, at = o->pending[first].at;
    for (int64_t slot = first; slot < first + count; slot++) {
        if (o->pending[slot].delivered) wd_event_wait_on(o->home, o->pending[slot].delivered);
        o->pending[slot].at = -1;
    }
    wd_op_step_samples(o->home, &(wd_step_samples_args){.x = o->latents + first * n,
                                                        .v = o->pool_target + at * n,
                                                        .dt = o->dt + at,
                                                        .samples = count,
                                                        .width = n});
}

/* The step of a slot, together with those of up to `most` slots behind it that can go with it;
 * returns how many these are. */
static int64_t make_steps(trajectory_objective *o, int64_t slot, int64_t most)
{
    int64_t count = 1;
    while (count < most && o->pending[slot + count].at == o->pending[slot].at + count) count++;
    step_slots(o, slot, count);
    return count;
}

/* Trajectories that follow one another in window and slots from states[0] on, all of which have a
 * step to make. */
static int64_t together(const wd_target_info *info, const int64_t *states, int64_t count)
{
    int64_t n = 1;
    while (n < count && states[n] == states[0] + n &&
           info[states[n]].slot == info[states[0]].slot + n && info[states[n]].step > 0)
        n++;
    return n;
}

/* Noise, where a trajectory begins, comes into the pool. */
static void make_noise(trajectory_objective *o, int64_t state)
{
    int64_t n = o->options.state_count;
    const wd_random key = {.seed = o->options.trajectory.seed,
                           .stream = WD_RANDOM_TRAJECTORY,
                           .index = (uint64_t)o->info[state].serial};
    float *noise = o->host_noise + state * n;
    wd_random_normal(noise, n, key, 0);
    wd_queue_copy(o->home, o->pool_latents + (o->at + state) * n, noise, state_bytes(o));
}

/* Brings states into the pool, where they are now; what begins is there. states[i] is that of
 * info[states[i]], and `at` the place of info[0]. */
static void begin(trajectory_objective *o, const wd_target_info *info, int64_t at,
                  const int64_t *states, int64_t count)
{
    int64_t n = o->options.state_count;
    for (int64_t i = 0; i < count; i++) {
        const wd_target_info *t = &info[states[i]];
        float *now = o->latents + t->slot * n, *to = o->pool_latents + (at + states[i]) * n;
        if (t->step == 0) {
            wd_queue_copy(o->home, now, to, state_bytes(o));
            o->pending[t->slot].at = -1; /* the last step of the one before leads nowhere */
            continue;
        }
        if (o->pending[t->slot].at >= 0)
            make_steps(o, t->slot, together(info, states + i, count - i));
        wd_queue_copy(o->home, to, now, state_bytes(o));
    }
}
/* ---- ranks ---- */

/* The oldest shipment: its states that were not begun here are, its velocities come. */
static void take_oldest(trajectory_objective *o)
{
    const wd_shipment *of = wd_shipments_await(o->shipments);
    const int rank = o->options.comm->rank;
    const int64_t count = of->first[o->options.comm->ranks];
    for (int64_t i = 0, n; i < count; i += n) { /* neighbours that are to be begun go together */
        n = 0;
        while (i + n < count && !o->begun[of->place[i + n]] &&
               of->place[i + n] == of->place[i] + n) {
            o->come_info[n] = wd_trajectory_target(&o->options.trajectory, of->target[i + n]);
            o->come_state[n] = n;
            n++;
        }
        begin(o, o->come_info, of->place[i], o->come_state, n);
        for (int64_t k = i; k < i + n; k++)
            o->pending[o->come_info[k - i].slot] = (pending_step){of->place[k], NULL};
        if (n) continue;
        const bool mine = i >= of->first[rank] && i < of->first[rank + 1];
        if (!mine)
            o->pending[wd_trajectory_target(&o->options.trajectory, of->target[i]).slot] =
                (pending_step){of->place[i], NULL};
        o->begun[of->place[i]] = false;
        n = 1;
    }
    wd_shipments_take(o->shipments, o->pool_target, o->queue);
}

static void take_until(trajectory_objective *o, int64_t shipment)
{
    while (wd_shipments_taken(o->shipments) < shipment) take_oldest(o);
}

/* Those states of the window, each of which may come more than once in a row, will be sent. */
static wd_shipment *pack(trajectory_objective *o, const int64_t *states, int64_t count,
                         int64_t *packed)
{
    if (wd_shipments_is_full(o->shipments)) take_oldest(o);
    wd_shipment *to = wd_shipments_pack(o->shipments);
    *packed = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t state = states ? states[i] : i;
        if (i && states && state == states[i - 1]) continue;
        to->target[*packed] = o->first + state;
        to->place[(*packed)++] = o->at + state;
    }
    return to;
}

/* Steps that follow from what this rank has begun and evaluated need not wait for the shipment. */
static void send(trajectory_objective *o, const wd_shipment *packed)
{
    const int rank = o->options.comm->rank;
    const wd_event *last = NULL;
    for (int64_t i = packed->first[rank]; i < packed->first[rank + 1]; i++) {
        wd_event *delivered = o->delivered[packed->target[i] - o->first];
        if (delivered != last) wd_shipments_wait_on(o->shipments, delivered);
        last = delivered;
    }
    wd_shipments_send(o->shipments, o->pool_target);
    const int64_t number = wd_shipments_sent(o->shipments);
    for (int64_t i = 0; i < packed->first[o->options.comm->ranks]; i++) {
        const int64_t state = packed->target[i] - o->first, place = packed->place[i];
        const int64_t slot = o->info[state].slot;
        const bool mine = i >= packed->first[rank] && i < packed->first[rank + 1];
        o->shipment[place] = number;
        if (mine && o->begun[place])
            o->pending[slot] = (pending_step){place, o->delivered[state]};
        else
            o->slot_shipment[slot] = number;
    }
}

/* Where every rank has a teacher: the window is sent as a whole. */
static void send_window(trajectory_objective *o, int64_t count)
{
    const int ranks = o->options.comm->ranks;
    int64_t packed;
    wd_shipment *to = pack(o, NULL, count, &packed);
    for (int r = 0; r <= ranks; r++) to->first[r] = count * r / ranks;
    send(o, to);
}

/* Where ranks share one: a micro-batch, when this rank has done its part. */
static void send_batch(void *context, const int64_t *states, int64_t count, int rank)
{
    trajectory_objective *o = context;
    int64_t packed;
    wd_shipment *to = pack(o, states, count, &packed);
    for (int r = 0; r <= o->options.comm->ranks; r++) to->first[r] = r <= rank ? 0 : packed;
    send(o, to);
}

/* ---- rounds ---- */

/* What a micro-batch begins with: see wd_window_begin_fn. */
static void begin_states(void *context, const int64_t *states, int64_t count)
{
    trajectory_objective *o = context;
    const wd_target_info *info = o->info + o->own;
    const int64_t at = o->at + o->own;
    for (int64_t i = 0; i < count; i++) {
        const int64_t state = states[i];
        if (o->shipments) {
            take_until(o, o->slot_shipment[info[state].slot]);
            o->begun[at + state] = true;
        } else if (info[state].step == 0) {
            make_noise(o, state);
        }
    }
    begin(o, info, at, states, count);
}

/* Makes all steps that are still to be made: where trajectories then are is what is saved. */
static void settle(trajectory_objective *o)
{
    int64_t slots = o->options.trajectory.slots;
    if (o->shipments) take_until(o, wd_shipments_sent(o->shipments));
    for (int64_t slot = 0; slot < slots;)
        slot += o->pending[slot].at >= 0 ? make_steps(o, slot, slots - slot) : 1;
    wd_queue_wait(o->home);
}

/* What a sweep gave is a step to make, and a target that batches wait for. */
static void note_targets(trajectory_objective *o, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        o->pending[o->info[i].slot] = (pending_step){o->at + i, o->delivered[i]};
        if (!i || o->delivered[i] != o->delivered[i - 1])
            wd_event_wait_on(o->queue, o->delivered[i]);
    }
}

/* Which targets a window has, and what follows from their numbers alone. */
static void open_window(trajectory_objective *o, int64_t first, int64_t count)
{
    o->first = first;
    o->at = place_of(o, first);
    wd_event_wait(o->window_uploaded);
    for (int64_t i = 0; i < count; i++) {
        wd_target_info *t = &o->info[i];
        *t = wd_trajectory_target(&o->options.trajectory, first + i);
        o->host_timestep[i] = t->timestep;
        o->host_prompt[i] = t->prompt;
        o->host_dt[i] = t->sigma_next - t->sigma;
        if (o->shipments && t->step == 0) make_noise(o, i); /* whoever begins it */
    }
    wd_queue_copy(o->home, o->dt + o->at, o->host_dt, (size_t)count * sizeof(float));
}

/* The targets [first, first + count) of one round, by one sweep. */
static wd_status run_window(trajectory_objective *o, int64_t first, int64_t count, wd_err *err)
{
    const wd_comm *comm = o->shipments ? o->options.comm : NULL;
    const bool shared = comm && wd_sweep_is_shared(o->sweep), each = comm && !shared;
    const int64_t n = o->options.state_count;
    open_window(o, first, count);
    o->own = each ? count * comm->rank / comm->ranks : 0;
    const int64_t end = each ? count * (comm->rank + 1) / comm->ranks : count;
    const wd_window window = {.count = end - o->own,
                              .queue = o->home,
                              .latents = o->pool_latents + (o->at + o->own) * n,
                              .velocity = o->pool_target + (o->at + o->own) * n,
                              .timestep = o->host_timestep + o->own,
                              .prompt = o->host_prompt + o->own,
                              .begin = begin_states,
                              .end = shared ? send_batch : NULL,
                              .context = o,
                              .delivered = o->delivered + o->own};
    if (each) wd_sweep_announce(o->sweep, o->host_timestep, count, o->own, end);
    if (window.count) WD_TRY(wd_sweep_run(o->sweep, &window, err));
    if (each)
        send_window(o, count);
    else if (!shared)
        note_targets(o, count);
    wd_event_record(o->window_uploaded, o->home);
    return WD_OK;
}

/* One round: all slots that have begun, window by window. Only a round before all have begun may
 * lie around the ring's end, where a sweep more is needed. */
static wd_status run_round(trajectory_objective *o, wd_err *err)
{
    int64_t next = o->base.targets;
    int64_t end = wd_trajectory_first_target(&o->options.trajectory, o->round + 1);
    while (next < end) {
        int64_t count = end - next, whole = o->capacity - place_of(o, next);
        if (count > o->options.window) count = o->options.window;
        if (count > whole) count = whole; /* the ring's end */
        WD_TRY(run_window(o, next, count, err));
        next += count;
    }
    o->round++;
    o->base.targets = end;
    return WD_OK;
}

static wd_status trajectory_prepare(wd_objective *self, int64_t end, wd_err *err)
{
    trajectory_objective *o = (trajectory_objective *)self;
    int64_t last = wd_stream_target_last(end, o->options.reuse);
    if (end <= o->end) return WD_OK;
    o->end = end;
    /* the pool has room for what the step before this one may still read, not for earlier ones */
    wd_event_wait_on(o->home, o->filled[++o->prepared % 2]);
    while (self->targets <= last) WD_TRY(run_round(o, err));
    return WD_OK;
}

static wd_status trajectory_fill(wd_objective *self, wd_batch *out, float *sigma, int64_t first,
                                 int64_t samples, wd_err *err)
{
    (void)err;
    trajectory_objective *o = (trajectory_objective *)self;
    const wd_trajectory_objective_options *p = &o->options;
    assert(samples <= p->samples_max);
    int64_t n = p->state_count;
    size_t text_bytes = (size_t)(p->text_tokens * p->text_dim) * wd_dtype_bytes(p->student_dtype);
    wd_event_wait(o->batch_uploaded);
    for (int64_t i = 0; i < samples; i++) {
        int64_t number = wd_stream_target(&p->trajectory, first + i, p->reuse, p->replay);
        assert(number < self->targets && number >= self->targets - o->capacity);
        wd_target_info t = wd_trajectory_target(&p->trajectory, number);
        int64_t at = place_of(o, number);
        if (o->shipments) take_until(o, o->shipment[at]);
        wd_queue_copy(o->queue, o->batch_latents + i * n, o->pool_latents + at * n, state_bytes(o));
        wd_queue_copy(o->queue, o->batch_target + i * n, o->pool_target + at * n, state_bytes(o));
        o->host_batch_timestep[i] = t.timestep;
        sigma[i] = t.sigma;
        p->text(p->text_context, (char *)o->host_batch_text + (size_t)i * text_bytes, t.prompt,
                p->student_dtype);
    }
    wd_queue_copy(o->queue, o->batch_timestep, o->host_batch_timestep,
                  (size_t)samples * sizeof(float));
    wd_queue_copy(o->queue, o->batch_text, o->host_batch_text, (size_t)samples * text_bytes);
    wd_event_record(o->batch_uploaded, o->queue);
    wd_event_record(o->filled[o->prepared % 2], o->queue);
    *out = (wd_batch){.samples = samples,
                      .latents = o->batch_latents,
                      .timestep = o->batch_timestep,
                      .target = o->batch_target,
                      .text = o->batch_text};
    return WD_OK;
}

static wd_status trajectory_save(wd_objective *self, json_t **json,
                                 const wd_checkpoint_tensor **tensors, int64_t *count, wd_err *err)
{
    trajectory_objective *o = (trajectory_objective *)self;
    const wd_trajectory_options *t = &o->options.trajectory;
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "objective", self->name, "round",
        (json_int_t)o->round, "seed", (json_int_t)t->seed, "trajectories", (json_int_t)t->slots,
        "trajectory_steps", (json_int_t)t->steps, "prompts", (json_int_t)t->prompts, "target_reuse",
        (json_int_t)o->options.reuse, "replay_targets", (json_int_t)o->options.replay,
        "step_samples", (json_int_t)o->options.step_samples, "flow_shift", t->flow_shift);
    if (!object) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the objective's state");
    settle(o);
    *json = object;
    *tensors = o->saved;
    *count = SAVED_TENSORS;
    return WD_OK;
}

/* A run is only continued with the options that its stream of samples was begun with. */
static wd_status same(json_int_t now, wd_json_reader r, const char *key, wd_err *err)
{
    int64_t then = 0;
    WD_TRY(wd_json_int(&then, r, key, INT64_MIN, INT64_MAX, WD_JSON_REQUIRED, err));
    if (then == now) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: the run was begun with %s %lld and is to be resumed with %lld: resume it "
                   "with the same value, or begin a new run",
                   r.where, key, (long long)then, (long long)now);
}

static wd_status trajectory_restore(wd_objective *self, const json_t *json, wd_err *err)
{
    trajectory_objective *o = (trajectory_objective *)self;
    const wd_trajectory_options *t = &o->options.trajectory;
    wd_json_reader r = {.object = json, .where = "checkpoint"};
    const char *name = "";
    double shift = 0;
    WD_TRY(wd_json_text(&name, r, "objective", WD_JSON_REQUIRED, err));
    if (strcmp(name, self->name))
        return wd_fail(err, WD_MISMATCH, "the checkpoint is of objective %s, not %s", name,
                       self->name);
    WD_TRY(same((json_int_t)t->seed, r, "seed", err));
    WD_TRY(same(t->slots, r, "trajectories", err));
    WD_TRY(same(t->steps, r, "trajectory_steps", err));
    WD_TRY(same(t->prompts, r, "prompts", err));
    WD_TRY(same(o->options.reuse, r, "target_reuse", err));
    WD_TRY(same(o->options.replay, r, "replay_targets", err));
    WD_TRY(same(o->options.step_samples, r, "step_samples", err));
    WD_TRY(wd_json_float(&shift, r, "flow_shift", WD_JSON_REQUIRED, err));
    if (shift != t->flow_shift)
        return wd_fail(err, WD_MISMATCH, "the run was begun with flow_shift %g, not %g", shift,
                       t->flow_shift);
    WD_TRY(wd_json_int(&o->round, r, "round", 0, INT64_MAX / 2, WD_JSON_REQUIRED, err));
    self->targets = wd_trajectory_first_target(t, o->round);
    return WD_OK;
}

static void trajectory_close(wd_objective *self)
{
    trajectory_objective *o = (trajectory_objective *)self;
    wd_shipments_close(o->shipments);
    wd_queue_wait(o->home);
    wd_queue_wait(o->queue);
    void *device[] = {o->latents,       o->pool_latents, o->pool_target,    o->dt,
                      o->batch_latents, o->batch_target, o->batch_timestep, o->batch_text};
    void *host[] = {o->host_dt, o->host_timestep, o->host_noise,          o->host_prompt,
                    o->info,    o->delivered,     o->host_batch_timestep, o->host_batch_text,
                    o->pending, o->begun,        o->shipment,            o->slot_shipment,
                    o->come_info, o->come_state};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        wd_device_free(o->device, device[i]);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) wd_free(host[i]);
    wd_event_close(o->window_uploaded);
    wd_event_close(o->batch_uploaded);
    for (int i = 0; i < 2; i++) wd_event_close(o->filled[i]);
    wd_free(o);
}

static const wd_objective_vtable trajectory_vtable = {
    .prepare = trajectory_prepare,
    .fill = trajectory_fill,
    .save = trajectory_save,
    .restore = trajectory_restore,
    .close = trajectory_close,
};

static wd_status allocate_device(trajectory_objective *o, wd_err *err)
{
    const wd_trajectory_objective_options *p = &o->options;
    size_t f = sizeof(float), batch = (size_t)p->samples_max;
    size_t text = (size_t)(p->text_tokens * p->text_dim) * wd_dtype_bytes(p->student_dtype);
    size_t pool = (size_t)o->capacity * state_bytes(o);
    wd_device *d = o->device;
    WD_TRY(wd_device_alloc((void **)&o->latents, d, (size_t)p->trajectory.slots * state_bytes(o),
                           "trajectories", err));
    WD_TRY(wd_device_alloc((void **)&o->pool_latents, d, pool, "targets", err));
    WD_TRY(wd_device_alloc((void **)&o->pool_target, d, pool, "targets", err));
    WD_TRY(
        wd_device_alloc((void **)&o->dt, d, (size_t)o->capacity * f, "trajectories", err));
    WD_TRY(wd_device_alloc((void **)&o->batch_latents, d, batch * state_bytes(o), "batch", err));
    WD_TRY(wd_device_alloc((void **)&o->batch_target, d, batch * state_bytes(o), "batch", err));
    WD_TRY(wd_device_alloc((void **)&o->batch_timestep, d, batch * f, "batch", err));
    return wd_device_alloc(&o->batch_text, d, batch * text, "batch", err);
}

static wd_status allocate_host(trajectory_objective *o, wd_err *err)
{
    const wd_trajectory_objective_options *p = &o->options;
    size_t window = (size_t)p->window, batch = (size_t)p->samples_max, f = sizeof(float);
    size_t text = (size_t)(p->text_tokens * p->text_dim) * wd_dtype_bytes(p->student_dtype);
    const char *what = "staging of trajectories";
    size_t slots = (size_t)p->trajectory.slots;
    WD_TRY(wd_alloc((void **)&o->host_dt, window, f, what, err));
    WD_TRY(wd_alloc((void **)&o->pending, slots, sizeof *o->pending, what, err));
    for (size_t i = 0; i < slots; i++) o->pending[i].at = -1;
    WD_TRY(wd_alloc((void **)&o->delivered, window, sizeof *o->delivered, what, err));
    WD_TRY(wd_alloc((void **)&o->host_timestep, window, f, what, err));
    WD_TRY(wd_alloc((void **)&o->host_noise, window, state_bytes(o), what, err));
    WD_TRY(wd_alloc((void **)&o->host_prompt, window, sizeof *o->host_prompt, what, err));
    WD_TRY(wd_alloc((void **)&o->info, window, sizeof *o->info, what, err));
    WD_TRY(wd_alloc((void **)&o->host_batch_timestep, batch, f, what, err));
    return wd_alloc(&o->host_batch_text, batch, text, what, err);
}

/* Room for the targets of two rounds on their way. */
static wd_status open_ranks(trajectory_objective *o, wd_err *err)
{
    const wd_trajectory_objective_options *p = &o->options;
    const int64_t slots = p->trajectory.slots;
    const int64_t states =
        o->sweep && wd_sweep_is_shared(o->sweep) ? wd_sweep_micro_batch_of(o->sweep) : p->window;
    const size_t capacity = (size_t)o->capacity;
    const char *what = "targets on their way";
    if (!p->comm || p->comm->ranks == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&o->begun, capacity, sizeof *o->begun, what, err));
    WD_TRY(wd_alloc((void **)&o->shipment, capacity, sizeof *o->shipment, what, err));
    WD_TRY(
        wd_alloc((void **)&o->slot_shipment, (size_t)slots, sizeof *o->slot_shipment, what, err));
    WD_TRY(wd_alloc((void **)&o->come_info, (size_t)states, sizeof *o->come_info, what, err));
    WD_TRY(wd_alloc((void **)&o->come_state, (size_t)states, sizeof *o->come_state, what, err));
    return wd_shipments_open(&o->shipments, p->comm, o->home, 2 * ((slots + states - 1) / states),
                             states, p->state_count, err);
}

static wd_tensor rows_of(float *data, int64_t rows, int64_t width)
{
    return (wd_tensor){.data = data, .dtype = WD_F32, .ndim = 2, .dim = {rows, width}};
}

wd_status wd_objective_open_trajectory(wd_objective **out,
                                       const wd_trajectory_objective_options *options,
                                       wd_sweep *sweep, wd_queue *home, wd_queue *queue,
                                       wd_err *err)
{
    wd_status status;
    trajectory_objective *o;
    WD_TRY(wd_alloc((void **)&o, 1, sizeof *o, "an objective", err));
    o->base = (wd_objective){.vtable = &trajectory_vtable, .name = "trajectory"};
    o->options = *options;
    o->sweep = sweep;
    o->home = home;
    o->queue = queue;
    o->device = wd_queue_device(queue);
    /* the oldest target that a step may still draw, to the end of the round of the newest of the
     * step that follows it */
    const int64_t slots = options->trajectory.slots;
    const int64_t needed =
        options->replay + slots + 2 * (options->step_samples / options->reuse + 1) + 1;
    o->capacity = (needed + slots - 1) / slots * slots;
    const int64_t begun = /* targets before all slots have */
        wd_trajectory_first_target(&options->trajectory, options->trajectory.steps - 1);
    o->shift = slots - begun % slots;
    WD_TRY_OUT(allocate_device(o, err));
    WD_TRY_OUT(allocate_host(o, err));
    WD_TRY_OUT(open_ranks(o, err));
    if (sweep) WD_TRY_OUT(wd_sweep_expect(sweep, home, err));
    WD_TRY_OUT(wd_event_open(&o->window_uploaded, o->device, err));
    WD_TRY_OUT(wd_event_open(&o->batch_uploaded, o->device, err));
    for (int i = 0; i < 2; i++) WD_TRY_OUT(wd_event_open(&o->filled[i], o->device, err));
    int64_t n = options->state_count;
    o->saved[0] = (wd_checkpoint_tensor){"trajectories.latents",
                                         rows_of(o->latents, options->trajectory.slots, n)};
    o->saved[1] =
        (wd_checkpoint_tensor){"targets.latents", rows_of(o->pool_latents, o->capacity, n)};
    o->saved[2] =
        (wd_checkpoint_tensor){"targets.velocity", rows_of(o->pool_target, o->capacity, n)};
    *out = &o->base;
out:
    if (status != WD_OK) trajectory_close(&o->base);
    return status;
}
