/* The trajectory objective: see distill/objective_trajectory.h.
 *
 * Data flow: slot latents -> (copied) pool of states -> sweep -> pool of velocities = targets ->
 * Euler step of the slot's latents, made when they are wanted next; batches are gathered from the
 * pool. The pool is a ring by target number, as long as the stream can look back, plus the round
 * that is under way. Targets are made in whole rounds, so a saved state does not depend on the
 * window. */
#include "distill/objective_trajectory.h"

#include <assert.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "dev/ops.h"

enum { SAVED_TENSORS = 3 };

/* A step of a trajectory whose velocity is on its way: it is made when the state is wanted. */
typedef struct pending_step {
    int64_t at; /* of its target in the pool; < 0: none */
    wd_event *delivered;
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
    float *dt;                         /* [slots] sigma steps that are still to be made */
    float *batch_latents, *batch_target, *batch_timestep; /* [samples_max, ...] */
    void *batch_text;
    /* host, read by copies: not touched until the event says so */
    float *host_dt, *host_timestep, *host_noise; /* [slots], [window], [window, state] */
    int64_t *host_prompt;
    wd_target_info *info;  /* [window] */
    int64_t at;            /* of the window's first state in the pool */
    wd_event **delivered;  /* [window] */
    pending_step *pending; /* [slots] */
    float *host_batch_timestep;
    void *host_batch_text;
    wd_event *window_uploaded, *batch_uploaded;
    wd_event *filled[2]; /* the batches of this step, and of the one before */
    int64_t prepared;    /* steps */
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
        wd_event_wait_on(o->home, o->pending[slot].delivered);
        o->pending[slot].at = -1;
    }
    wd_op_step_samples(o->home, &(wd_step_samples_args){.x = o->latents + first * n,
                                                        .v = o->pool_target + at * n,
                                                        .dt = o->dt + first,
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
static int64_t together(const trajectory_objective *o, const int64_t *states, int64_t count)
{
    int64_t n = 1;
    while (n < count && states[n] == states[0] + n &&
           o->info[states[n]].slot == o->info[states[0]].slot + n && o->info[states[n]].step > 0)
        n++;
    return n;
}

static void begin_trajectory(trajectory_objective *o, int64_t state)
{
    int64_t n = o->options.state_count;
    const wd_target_info *t = &o->info[state];
    const wd_random key = {.seed = o->options.trajectory.seed,
                           .stream = WD_RANDOM_TRAJECTORY,
                           .index = (uint64_t)t->serial};
    float *noise = o->host_noise + state * n;
    wd_random_normal(noise, n, key, 0);
    wd_queue_copy(o->home, o->latents + t->slot * n, noise, state_bytes(o));
    o->pending[t->slot].at = -1; /* the last step of the one before leads nowhere */
}

/* Brings the states of a micro-batch into the pool, where they are now. */
static void begin_states(void *context, const int64_t *states, int64_t count)
{
    trajectory_objective *o = context;
    int64_t n = o->options.state_count;
    for (int64_t i = 0; i < count; i++) {
        const wd_target_info *t = &o->info[states[i]];
        if (t->step == 0)
            begin_trajectory(o, states[i]);
        else if (o->pending[t->slot].at >= 0)
            make_steps(o, t->slot, together(o, states + i, count - i));
        wd_queue_copy(o->home, o->pool_latents + (o->at + states[i]) * n, o->latents + t->slot * n,
                      state_bytes(o));
    }
}

/* Makes all steps that are still to be made: where trajectories then are is what is saved. */
static void settle(trajectory_objective *o)
{
    int64_t slots = o->options.trajectory.slots;
    for (int64_t slot = 0; slot < slots;)
        slot += o->pending[slot].at >= 0 ? make_steps(o, slot, slots - slot) : 1;
    wd_queue_wait(o->home);
}

/* What a sweep gave is a step to make, and a target that batches wait for. */
static void note_targets(trajectory_objective *o, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const wd_target_info *t = &o->info[i];
        o->host_dt[t->slot] = t->sigma_next - t->sigma;
        o->pending[t->slot] = (pending_step){o->at + i, o->delivered[i]};
        if (!i || o->delivered[i] != o->delivered[i - 1])
            wd_event_wait_on(o->queue, o->delivered[i]);
    }
    wd_queue_copy(o->home, o->dt, o->host_dt, (size_t)o->options.trajectory.slots * sizeof(float));
}

/* The targets [first, first + count) of one round, by one sweep. */
static wd_status run_window(trajectory_objective *o, int64_t first, int64_t count, wd_err *err)
{
    int64_t n = o->options.state_count;
    o->at = place_of(o, first);
    wd_event_wait(o->window_uploaded);
    for (int64_t i = 0; i < count; i++) {
        wd_target_info *t = &o->info[i];
        *t = wd_trajectory_target(&o->options.trajectory, first + i);
        o->host_timestep[i] = t->timestep;
        o->host_prompt[i] = t->prompt;
    }
    const wd_window window = {.count = count,
                              .queue = o->home,
                              .latents = o->pool_latents + o->at * n,
                              .velocity = o->pool_target + o->at * n,
                              .timestep = o->host_timestep,
                              .prompt = o->host_prompt,
                              .begin = begin_states,
                              .context = o,
                              .delivered = o->delivered};
    WD_TRY(wd_sweep_run(o->sweep, &window, err));
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
    wd_queue_wait(o->home);
    wd_queue_wait(o->queue);
    void *device[] = {o->latents,       o->pool_latents, o->pool_target,    o->dt,
                      o->batch_latents, o->batch_target, o->batch_timestep, o->batch_text};
    void *host[] = {o->host_dt, o->host_timestep, o->host_noise,          o->host_prompt,
                    o->info,    o->delivered,     o->host_batch_timestep, o->host_batch_text,
                    o->pending};
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
        wd_device_alloc((void **)&o->dt, d, (size_t)p->trajectory.slots * f, "trajectories", err));
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
    WD_TRY(wd_alloc((void **)&o->host_dt, slots, f, what, err));
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
