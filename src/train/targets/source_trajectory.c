/* The teacher's trajectories as a source of batches: which samples a batch has, and what a
 * checkpoint keeps. How targets are made stands in source_trajectory_windows.c. */
#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "train/targets/source_trajectory_impl.h"

/* ---- chords of the trajectories' blocks, as batches need them: see train/targets/chord.h ---- */

/* Chords that become known for the samples of one step. */
static int64_t chords_of_step(const wd_source_options *o)
{
    return o->step_samples / o->reuse + 1;
}

/* Targets that the ring has to keep for chords: those of a step are copied from them while the
 * targets of the next step are made. */
static int64_t chord_targets(const wd_source_options *o)
{
    /* From the first target of a step's first chord to the end of the round of the next step's
     * last one, each slot has at most L targets for each of its chords in between, and not more
     * than 2 L of blocks that began before or end later. These are the chords of two steps and of
     * the round's rest, which is not more than slots / L + 1. Those of a chord's pair are in the
     * same rounds, all of which there is room for. */
    const int64_t length = wd_chord_length(&o->trajectory);
    return length * (2 * chords_of_step(o) + 2 * o->trajectory.slots + 1) + 2 * o->trajectory.slots;
}

static wd_status open_chords(wd_trajectory_source *s, wd_err *err)
{
    const wd_source_options *o = &s->options;
    /* chords that are drawn again, those of two steps, and those that a checkpoint adds to complete
     * the round */
    const int64_t capacity = o->replay + 2 * chords_of_step(o) + o->trajectory.slots + 1;
    return wd__chord_pool_open(&s->chords, wd_queue_device(s->queue), capacity,
                               o->batches.state_count, err);
}

/* The block of these targets, which `queue` waits for. */
static wd_chord_block block_of(wd_trajectory_source *s, const int64_t *target, int64_t length)
{
    const wd_targets *ring = &s->ring;
    const int64_t made = s->base.targets, first = target[0], last = target[length - 1];
    wd_chord_block block;
    WD_REQUIRE(last < made && first >= made - ring->capacity,
               "targets %" PRId64 " to %" PRId64 " are not among the %" PRId64
               " before target %" PRId64,
               first, last, ring->capacity, made);
    wd__targets_await(&s->ring, last + 1, s->queue);
    for (int64_t i = 0; i < length; i++) {
        const int64_t ring_index = wd__targets_ring_index(ring, target[i]);
        if (s->exchange.gathers)
            wd__trajectory_source_take_until(s, s->exchange.gather[ring_index]);
        block.velocity[i] = ring->velocity + ring_index * ring->state_count;
    }
    block.latents = ring->latents + wd__targets_ring_index(ring, first) * ring->state_count;
    return block;
}

/* Adds the chords before chord `end`, whose targets are made, to their pool: on the queue of
 * batches, which waits for these targets. */
static void add_chords(wd_trajectory_source *s, int64_t end)
{
    while (s->chords.count < end) {
        const wd_chord c = wd__chord_at(&s->options.trajectory, s->chords.count);
        const wd_chord_block block = block_of(s, c.target, c.length);
        const wd_chord_block twin =
            c.gain > 0 ? block_of(s, c.twin, c.length) : (wd_chord_block){0};
        wd__chord_pool_add(&s->chords, &c, &block, &twin, s->queue);
    }
}

/* ---- batches ---- */

/* The event that happens when the batches of the sample's step are filled. Until it is recorded for
 * that step, it is the event of the step before last. */
static wd_event **filled_event(wd_trajectory_source *s, int64_t sample)
{
    return &s->filled[sample / s->options.step_samples % 2];
}

static wd_status trajectory_prepare(wd_source *self, int64_t end, wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const int64_t needed = wd__stream_targets(&s->options.trajectory, end, s->options.reuse);
    if (end <= s->end) return WD_OK;
    s->end = end;
    /* the ring has room for what the step before this one may still read, not for earlier ones */
    wd_event_wait_on(s->home, *filled_event(s, end - 1));
    if (!self->targets && !wd_device_is_dry(wd_queue_device(s->home)))
        s->progress = wd_progress_begin("making the first targets", "target", 0,
                                        wd__trajectory_source_targets_after(s, needed));
    while (self->targets < needed) WD_TRY(wd__trajectory_source_make_window(s, err));
    s->progress = (wd_progress_task){0};
    return WD_OK;
}

/* A sample whose target is velocity `number` of the teacher. */
static wd_batch_sample velocity_sample(wd_trajectory_source *s, int64_t number)
{
    const wd_targets *ring = &s->ring;
    const int64_t made = s->base.targets, ring_index = wd__targets_ring_index(ring, number);
    const wd_target_info t = wd__trajectory_target(&s->options.trajectory, number);
    WD_REQUIRE(number >= 0 && number < made && number >= made - ring->capacity,
               "target %" PRId64 " is not among the %" PRId64 " before target %" PRId64, number,
               ring->capacity, made);
    wd__targets_await(&s->ring, number + 1, s->queue);
    if (s->exchange.gathers) wd__trajectory_source_take_until(s, s->exchange.gather[ring_index]);
    return (wd_batch_sample){.latents = ring->latents + ring_index * ring->state_count,
                             .target = ring->velocity + ring_index * ring->state_count,
                             .timestep = t.timestep,
                             .weight = 1,
                             .prompt = t.prompt};
}

/* Sample number `sample`, whose target is chord `number`, which has been added. */
static wd_batch_sample chord_sample(const wd_trajectory_source *s, int64_t sample, int64_t number)
{
    const wd_source_options *o = &s->options;
    const wd_target_info t = wd__chord_begin(&o->trajectory, number);
    const wd_chord_point point = wd__chord_point_of(&o->trajectory, &t, sample);
    const int64_t at = wd__chord_pool_place(&s->chords, number) * s->chords.state_count;
    return (wd_batch_sample){.latents = s->chords.latents + at,
                             .target = s->chords.velocity + at,
                             .dt = point.dt,
                             .timestep = point.timestep,
                             .weight = wd__chord_loss_weight(&o->trajectory, &t),
                             .prompt = t.prompt};
}

/* Adds the chords of the round of micro-batches, one of each rank, that sample `first` is in. Those
 * of other ranks' samples are added, too: the next step's targets may take the places of theirs. */
static void add_chords_of_round(wd_trajectory_source *s, int64_t first, int64_t samples)
{
    const wd_source_options *o = &s->options;
    const int64_t all = samples * (o->comm ? o->comm->ranks : 1);
    const int64_t end = (first / all + 1) * all;
    add_chords(s, wd__stream_target_last(end, o->reuse) + 1);
}

static void trajectory_fill(wd_source *self, wd_batch *out, int64_t first, int64_t samples)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_source_options *o = &s->options;
    const bool chords = o->trajectory.student_steps > 0;
    wd__batches_begin(s->batches);
    if (chords) add_chords_of_round(s, first, samples);
    for (int64_t i = first; i < first + samples; i++) {
        const int64_t number = wd__stream_target(&o->trajectory, i, o->reuse, o->replay);
        const wd_batch_sample sample =
            chords ? chord_sample(s, i, number) : velocity_sample(s, number);
        wd__batches_put(s->batches, &sample);
    }
    *out = wd__batches_send(s->batches);
    wd_event_record(*filled_event(s, first), s->queue);
}

/* ---- checkpoints ---- */

static const char objective[] = "trajectory"; /* what a checkpoint calls this source */

/* More rounds than any run makes: numbers of targets stay far within int64_t. */
static const int64_t rounds_max = (int64_t)1 << 40;

/* *out = the given noise levels, a new array; empty where there are none. */
static wd_status sigmas_of(json_t **out, const wd_trajectory_options *t, wd_err *err)
{
    *out = json_array();
    bool failed = !*out;
    for (int64_t k = 0; t->sigma[0] > 0 && k < t->steps && !failed; k++)
        failed = json_array_append_new(*out, json_real((double)t->sigma[k])) != 0;
    if (!failed) return WD_OK;
    json_decref(*out);
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the state of a source");
}

static wd_status save_sigmas(json_t *object, const wd_trajectory_options *t, wd_err *err)
{
    json_t *sigmas;
    WD_TRY(sigmas_of(&sigmas, t, err));
    if (!json_object_set_new(object, "trajectory_sigmas", sigmas)) return WD_OK;
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the state of a source");
}

/* Of a run without on-policy trajectories it says nothing. */
static wd_status save_on_policy(json_t *object, const wd_trajectory_options *t, bool snapshot,
                                wd_err *err)
{
    if (!(t->on_policy_share > 0)) return WD_OK;
    json_t *more = json_pack("{s:f, s:f, s:I, s:b}", "on_policy_share", t->on_policy_share,
                             "on_policy_end", t->on_policy_end, "on_policy_every",
                             (json_int_t)t->on_policy_every, "snapshot", snapshot);
    const bool failed = !more || json_object_update(object, more);
    json_decref(more);
    return failed ? wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the state of a source") : WD_OK;
}

/* A run that stores its targets rounds them, and must go on so. One that does not says nothing. */
static wd_status save_rounding(json_t *object, const wd_trajectory_source *s, wd_err *err)
{
    if (!s->options.store_to) return WD_OK;
    if (!json_object_set_new(object, "targets_dtype", json_string("bf16"))) return WD_OK;
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the state of a source");
}

static const wd_checkpoint_tensor *trajectory_saved(const wd_source *self, int64_t *count)
{
    const wd_trajectory_source *s = (const wd_trajectory_source *)self;
    *count = WD_TRAJECTORY_SAVED + (s->options.trajectory.student_steps ? WD_CHORDS_SAVED : 0);
    return s->saved;
}

static wd_status trajectory_save(wd_source *self, json_t **json,
                                 const wd_checkpoint_tensor **tensors, int64_t *count, wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_trajectory_options *t = &s->options.trajectory;
    WD_TRY(wd__trajectory_source_make_round(s, err));
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "objective", objective,
        "round", (json_int_t)s->round, "seed", (json_int_t)t->seed, "trajectories",
        (json_int_t)t->slots, "trajectory_steps", (json_int_t)t->steps, "student_steps",
        (json_int_t)t->student_steps, "chords", (json_int_t)wd_chords(t), "prompts",
        (json_int_t)t->prompts, "target_reuse", (json_int_t)s->options.reuse, "replay_targets",
        (json_int_t)s->options.replay, "step_samples", (json_int_t)s->options.step_samples,
        "flow_shift", t->flow_shift, "diversity_gain", t->diversity_gain);
    if (!object) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the state of a source");
    wd_gathers *gathers = s->exchange.gathers;
    if (gathers) wd__trajectory_source_take_until(s, wd__gathers_posted(gathers));
    wd__trajectory_states_finish(&s->states);
    wd__targets_await(&s->ring, self->targets, s->queue);
    if (t->student_steps) add_chords(s, wd__chord_first(t, s->round));
    wd_status status = save_sigmas(object, t, err);
    if (status == WD_OK) status = save_rounding(object, s, err);
    if (status == WD_OK) status = wd__trajectory_source_save_all(s, err);
    if (status == WD_OK) status = save_on_policy(object, t, self->snapshot != NULL, err);
    if (status != WD_OK) {
        json_decref(object);
        return status;
    }
    *json = object;
    *tensors = trajectory_saved(self, count);
    return WD_OK;
}

static wd_status differs(wd_err *err, const char *what, double then, double now)
{
    return wd_fail(err, WD_MISMATCH,
                   "the run was begun with %s %.15g and is to be resumed with %.15g: resume it "
                   "with the same value, or begin a new run",
                   what, then, now);
}

/* A checkpoint of a version that could not be given noise levels does not say so. */
static wd_status same_sigmas(const wd_trajectory_options *t, const json_t *saved, wd_err *err)
{
    json_t *now;
    const json_t *then = json_object_get(saved, "trajectory_sigmas");
    WD_TRY(sigmas_of(&now, t, err));
    const bool same = then ? json_equal(then, now) : json_array_size(now) == 0;
    json_decref(now);
    if (same) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "the run was begun with other trajectory_sigmas: resume it with the same, or "
                   "begin a new run");
}

/* `otherwise`: what a checkpoint means that does not say it. */
static wd_status same_number(double now, wd_json_reader r, const char *key, double otherwise,
                             wd_err *err)
{
    double then = otherwise;
    WD_TRY(wd_json_float(&then, r, key, WD_JSON_OPTIONAL, err));
    return then == now ? WD_OK : differs(err, key, then, now);
}

/* A checkpoint of a run without on-policy trajectories does not say so, nor one of a version in
 * which they went on to the end. */
static wd_status same_on_policy(const wd_trajectory_options *t, wd_json_reader r, wd_err *err)
{
    WD_TRY(same_number(t->on_policy_share, r, "on_policy_share", 0, err));
    if (!(t->on_policy_share > 0)) return WD_OK;
    WD_TRY(same_number(t->on_policy_end, r, "on_policy_end", 1, err));
    return same_number((double)t->on_policy_every, r, "on_policy_every", 0, err);
}

/* Whether both runs store their targets, which decides whether these are rounded. */
static wd_status same_rounding(bool now, const json_t *saved, wd_err *err)
{
    const bool then = json_object_get(saved, "targets_dtype") != NULL;
    if (then == now) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "the run was begun %s --save_targets, which rounds its targets to bf16, and is "
                   "to be resumed %s it: resume it as it was begun, or begin a new run",
                   then ? "with" : "without", now ? "with" : "without");
}

static wd_status same(json_int_t now, wd_json_reader r, const char *key, const char *what,
                      wd_err *err)
{
    int64_t then = 0;
    WD_TRY(wd_json_int(&then, r, key, INT64_MIN, INT64_MAX, WD_JSON_REQUIRED, err));
    return then == now ? WD_OK : differs(err, what, (double)then, (double)now);
}

/* Reads only `trajectory`, `reuse`, `replay`, `step_samples` and `store_to`. */
static wd_status trajectory_check_saved(const wd_source_options *o, const json_t *saved,
                                        wd_err *err)
{
    const wd_trajectory_options *t = &o->trajectory;
    wd_json_reader r = {.object = saved, .where = "stream"};
    const char *name = "";
    double shift = 0;
    int64_t round;
    WD_TRY(wd_json_text(&name, r, "objective", WD_JSON_REQUIRED, err));
    if (strcmp(name, objective))
        return wd_fail(err, WD_MISMATCH, "the checkpoint is of objective %.*s, not %s%s",
                       WD_TERMINAL_SAFE(name, 60), objective,
                       strcmp(name, "stored") ? "" : ": its run had --targets, give that again");
    WD_TRY(same((json_int_t)t->seed, r, "seed", "seed", err));
    WD_TRY(same(t->slots, r, "trajectories", "trajectories", err));
    WD_TRY(same(t->steps, r, "trajectory_steps", "trajectory_steps", err));
    WD_TRY(same_number((double)t->student_steps, r, "student_steps", 0, err)); /* 0: no chords */
    /* a checkpoint of a version that knew no other number of chords does not say it */
    WD_TRY(same_number((double)wd_chords(t), r, "chords", (double)t->student_steps, err));
    WD_TRY(same_sigmas(t, saved, err));
    WD_TRY(same_on_policy(t, r, err));
    WD_TRY(same_rounding(o->store_to != NULL, saved, err));
    WD_TRY(same_number(t->diversity_gain, r, "diversity_gain", 0, err));
    WD_TRY(same(t->prompts, r, "prompts", "a number of prompts of", err));
    WD_TRY(same(o->reuse, r, "target_reuse", "target_reuse", err));
    WD_TRY(same(o->replay, r, "replay_targets", "target_replay", err));
    WD_TRY(same(o->step_samples, r, "step_samples",
                "samples per step (batch_size x gradient_accumulation_steps x ranks)", err));
    WD_TRY(wd_json_int(&round, r, "round", 0, rounds_max, WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_float(&shift, r, "flow_shift", WD_JSON_REQUIRED, err));
    return shift == t->flow_shift ? WD_OK : differs(err, "flow_shift", shift, t->flow_shift);
}

/* Whether the targets before the round that was restored are those that the samples of so many
 * steps need: whole rounds, of up to a step more. Otherwise batches would draw targets that are not
 * there. */
static wd_status check_targets(const wd_trajectory_source *s, int64_t steps, wd_err *err)
{
    const wd_source_options *o = &s->options;
    const int64_t made = s->base.targets;
    const int64_t least = wd__stream_targets(&o->trajectory, steps * o->step_samples, o->reuse);
    const int64_t most =
        wd__stream_targets(&o->trajectory, (steps + 1) * o->step_samples, o->reuse);
    if (made >= least && made <= most + o->trajectory.slots) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "its round has %" PRId64 " targets before it, and the %" PRId64
                   " steps of its phase need %" PRId64 " to %" PRId64
                   ": it is damaged, resume another one",
                   made, steps, least, most + o->trajectory.slots);
}

static wd_status trajectory_restore(wd_source *self, const json_t *json, int64_t steps, wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_json_reader r = {.object = json, .where = "stream"};
    WD_TRY(trajectory_check_saved(&s->options, json, err));
    WD_TRY(wd_json_int(&s->round, r, "round", 0, rounds_max, WD_JSON_REQUIRED, err));
    self->targets = s->ring.awaited = wd_trajectory_first_target(&s->options.trajectory, s->round);
    if (s->saving.writer) wd__target_writer_go_on(s->saving.writer, self->targets);
    if (s->options.trajectory.student_steps)
        s->chords.count = wd__chord_first(&s->options.trajectory, s->round);
    const json_t *snapshot = json_object_get(json, "snapshot");
    if (s->rollouts && !json_is_boolean(snapshot))
        return wd_fail(err, WD_BAD_FORMAT, "the checkpoint does not say whether it has a snapshot");
    const bool has = s->rollouts && json_is_true(snapshot);
    self->snapshot = has ? wd__rollouts_snapshot(s->rollouts) : NULL;
    return check_targets(s, steps, err);
}

/* The first tensors of `saved`. */
static const struct {
    const char *what, *advice;
} states[WD_TRAJECTORY_SAVED] = {
    {"the latents of the trajectories", "begin a new run"},
    {"the latents that the teacher is asked about", "begin a new run"},
    {"the teacher's velocities",
     "the teacher's weights or its prompt embeddings are damaged, or --teacher_dtype is too narrow "
     "for them"},
};

/* Another cause, where the student's own steps make latents for the teacher. */
static const char led_astray[] =
    ", or the student diverged, whose own steps lead to latents of the teacher: lower --lr, or "
    "train with --on_policy_share 0";

static wd_status trajectory_check_finite(const wd_source *self, const wd_optimizer *optimizer,
                                         wd_err *err)
{
    const wd_trajectory_source *s = (const wd_trajectory_source *)self;
    for (int k = WD_TRAJECTORY_SAVED - 1; k >= 0; k--) {
        const wd_tensor *t = &s->saved[k].tensor;
        if (wd_optimizer_finds_finite(optimizer, t->data, wd_tensor_count(t), s->queue)) continue;
        return wd_fail(err, WD_NOT_FINITE, "%s are not finite: %s%s", states[k].what,
                       states[k].advice, s->rollouts ? led_astray : "");
    }
    return WD_OK;
}

/* ---- open and close ---- */

static void trajectory_close(wd_source *self)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    wd__gathers_close(s->exchange.gathers);
    wd__targets_await(&s->ring, s->base.targets, s->queue); /* sweeps still write them */
    wd_queue_wait(s->home);
    wd_queue_wait(s->queue);
    wd__trajectory_source_close_exchange(s);
    wd__trajectory_source_close_saving(s);
    wd__trajectory_source_close_window(s);
    wd__batches_close(s->batches);
    wd__rollouts_close(s->rollouts);
    wd__trajectory_states_close(&s->states);
    wd__targets_close(&s->ring);
    wd__chord_pool_close(&s->chords, wd_queue_device(s->queue));
    for (int i = 0; i < 2; i++) wd_event_close(s->filled[i]);
    wd_free(s);
}

static wd_checkpoint_tensor saved_rows(const char *name, float *data, int64_t rows, int64_t width)
{
    return (wd_checkpoint_tensor){name,
                                  {.data = data, .dtype = WD_F32, .ndim = 2, .dim = {rows, width}}};
}

static wd_status trajectory_open(wd_source **out, const wd_source_options *options, wd_sweep *sweep,
                                 wd_queue *home, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_trajectory_source *s;
    wd_device *device = wd_queue_device(queue);
    const int64_t slots = options->trajectory.slots, n = options->batches.state_count;
    /* the oldest target that a step may still draw, to the end of the round of the newest of the
     * step that follows it */
    const bool chords = options->trajectory.student_steps > 0;
    const int64_t needed =
        chords ? chord_targets(options)
               : options->replay + slots + 2 * (options->step_samples / options->reuse + 1) + 1;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "a source of batches", err));
    *s = (wd_trajectory_source){.base = {.vtable = &wd_source_trajectory},
                                .options = *options,
                                .sweep = sweep,
                                .home = home,
                                .queue = queue};
    WD_TRY_OUT(wd__targets_open(&s->ring, &options->trajectory, needed, n, device, err));
    WD_TRY_OUT(wd__trajectory_states_open(&s->states, slots, &s->ring, home, err));
    WD_TRY_OUT(wd__batches_open(&s->batches, &options->batches, queue, err));
    WD_TRY_OUT(wd__trajectory_source_open_window(s, err));
    WD_TRY_OUT(wd__trajectory_source_open_exchange(s, err));
    WD_TRY_OUT(wd__trajectory_source_open_saving(s, err));
    if (chords) WD_TRY_OUT(open_chords(s, err));
    WD_TRY_OUT(wd__trajectory_source_open_rollouts(s, err));
    for (int i = 0; i < 2; i++) WD_TRY_OUT(wd_event_open(&s->filled[i], device, err));
    s->saved[0] = saved_rows("trajectories.latents", s->states.latents, slots, n);
    s->saved[1] = saved_rows("targets.latents", s->ring.latents, s->ring.capacity, n);
    s->saved[2] = saved_rows("targets.velocity", s->ring.velocity, s->ring.capacity, n);
    s->saved[3] = saved_rows("chords.latents", s->chords.latents, s->chords.capacity, n);
    s->saved[4] = saved_rows("chords.velocity", s->chords.velocity, s->chords.capacity, n);
    *out = &s->base;
out:
    if (status != WD_OK) trajectory_close(&s->base);
    return status;
}

/* ---- from the options alone ---- */

static int64_t trajectory_targets(const wd_source_options *o, int64_t samples)
{
    return wd__stream_targets(&o->trajectory, samples, o->reuse);
}

static double trajectory_step_targets(const wd_source_options *o)
{
    return (double)o->step_samples * wd__stream_targets_each(&o->trajectory, o->reuse);
}

/* Sigma steps of targets, the noise of trajectories that begin, and of rollouts text, timesteps,
 * weights and sigma steps. */
static double trajectory_step_bytes(const wd_source_options *o)
{
    const wd_batches_options *b = &o->batches;
    const double text = (double)wd_dtype_size(b->text_dtype, b->text_tokens * b->text_dim);
    const double targets = trajectory_step_targets(o);
    const double begun = targets / (double)o->trajectory.steps;
    const double rolled_out =
        (double)o->step_samples * wd__stream_rollouts_each(&o->trajectory, o->reuse);
    return rolled_out * text +
           (targets + 3 * rolled_out + begun * (double)b->state_count) * sizeof(float);
}

static int64_t trajectory_sweeps_apart(const wd_source_options *o)
{
    return wd_sweeps_apart(o->trajectory.slots, o->window);
}

const wd_source_vtable wd_source_trajectory = {
    .check_saved = trajectory_check_saved,
    .targets = trajectory_targets,
    .step_targets = trajectory_step_targets,
    .step_bytes = trajectory_step_bytes,
    .sweeps_apart = trajectory_sweeps_apart,
    .open = trajectory_open,
    .prepare = trajectory_prepare,
    .begin_step = wd__trajectory_source_begin_step,
    .fill = trajectory_fill,
    .save = trajectory_save,
    .saved = trajectory_saved,
    .restore = trajectory_restore,
    .check_finite = trajectory_check_finite,
    .close = trajectory_close,
};
