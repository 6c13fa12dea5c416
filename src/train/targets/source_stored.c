/* Targets of a store (train/targets/target_store.h) as a source of batches: what the trajectory
 * source of another run has made is learnt without a teacher.
 *
 * Data flow: sample -> the number of its target, or chord, as in a run that makes them -> its
 * targets in the store -> (checked when they are prepared) mapped files -> staging -> bf16 on the
 * device -> float32 -> for chords their sum -> the batch. So with the same options batches are the
 * same, to the bit. Samples behind the store's last target go round again: each further epoch has
 * all targets in another order. Every rank reads its own samples' targets alone. Nothing has to be
 * saved for a checkpoint. */
#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/ops.h"
#include "train/targets/chord.h"
#include "train/targets/chord_pool.h"
#include "train/targets/source.h"

typedef struct stored_source {
    wd_source base;
    wd_source_options options;
    wd_trajectory_options trajectory; /* the store's, with what this run's student learns of it */
    wd_queue *queue;
    int64_t count; /* targets, or chords, of an epoch */
    int64_t end;   /* of the samples that are prepared */
    int64_t parts; /* states and velocities that a sample is made of, at most */
    wd_batches *batches;
    wd_chord_pool chord; /* of one sample at a time; empty where the student learns velocities */
    /* [parts, state] of one sample, device: as they are stored, and in float32 */
    uint16_t *stored;
    float *values;
    uint16_t *staging; /* [places, samples_max, parts, state] host: not touched until `sent` */
    wd_event *sent[WD_BATCHES_UNDER_WAY];
    int64_t begun; /* batches */
    int places;
} stored_source;

/* ---- whether a student can learn from a store ---- */

static bool learns_chords(const wd_source_options *options)
{
    return options->trajectory.student_steps > 0;
}

/* The store's trajectories, cut into the chords that this run's student learns. */
static wd_trajectory_options stored_trajectory(const wd_source_options *o)
{
    wd_trajectory_options t = *wd_target_store_trajectory(o->stored);
    t.student_steps = o->trajectory.student_steps;
    t.chords = o->trajectory.chords;
    t.diversity_gain = o->trajectory.diversity_gain;
    return t;
}

static wd_status differs(const wd_source_options *o, const char *option, double then, double now,
                         wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--targets %s: its targets were made with --%s %.10g, found %.10g: give the "
                   "same value, or leave the option out",
                   wd_target_store_folder(o->stored), option, then, now);
}

static wd_status check_same(const wd_source_options *o, wd_err *err)
{
    const wd_trajectory_options *now = &o->trajectory;
    const wd_trajectory_options *then = wd_target_store_trajectory(o->stored);
    const struct {
        const char *option;
        double then, now;
    } same[] = {{"trajectories", (double)then->slots, (double)now->slots},
                {"trajectory_steps", (double)then->steps, (double)now->steps},
                {"flow_shift", then->flow_shift, now->flow_shift}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (same[i].then != same[i].now)
            return differs(o, same[i].option, same[i].then, same[i].now, err);
    if (then->num_train_timesteps != now->num_train_timesteps ||
        then->integer_timesteps != now->integer_timesteps)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--targets %s: its targets were made with a scheduler that counts timesteps "
                       "in another way than this teacher's: give the teacher that made them",
                       wd_target_store_folder(o->stored));
    for (int64_t k = 0; k < WD_TRAJECTORY_SIGMAS_MAX; k++)
        if (then->sigma[k] != now->sigma[k])
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--targets %s: its targets were made with other --trajectory_sigmas: "
                           "give the same, or leave the option out",
                           wd_target_store_folder(o->stored));
    if (then->prompts == now->prompts) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--data_path: expected the %" PRId64
                   " prompts of the targets in %s, found %" PRId64 ": leave --data_path out",
                   then->prompts, wd_target_store_folder(o->stored), now->prompts);
}

/* A chord must not go over a place where the run that made the targets went on from its student's
 * own step. */
static wd_status check_chords(const wd_source_options *o, wd_err *err)
{
    const wd_trajectory_options *now = &o->trajectory;
    const wd_trajectory_options *then = wd_target_store_trajectory(o->stored);
    const char *folder = wd_target_store_folder(o->stored);
    const int64_t chords = wd_chords(now);
    if (!then->student_steps != !now->student_steps)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--targets %s: its targets were made with --student_steps %" PRId64
                       ", found %" PRId64 ": %s",
                       folder, then->student_steps, now->student_steps,
                       then->student_steps ? "a student of few steps can learn from them, give "
                                             "--student_steps"
                                           : "a student learns velocities from them, leave "
                                             "--student_steps out");
    if (!now->student_steps) return WD_OK;
    if (!(then->diversity_gain > 0) != !(now->diversity_gain > 0))
        return differs(o, "diversity_gain", then->diversity_gain, now->diversity_gain, err);
    if (then->on_policy_share > 0 && chords % wd_chords(then))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--targets %s: its trajectories go on from a student's own steps at %" PRId64
                       " places: expected a multiple of %" PRId64
                       " chords (--student_steps, --chords), found %" PRId64,
                       folder, wd_chords(then), wd_chords(then), chords);
    return WD_OK;
}

wd_status wd_source_stored_check(const wd_source_options *o, wd_err *err)
{
    WD_TRY(check_same(o, err));
    WD_TRY(check_chords(o, err));
    if (wd_source_stored_count(o) > 0) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--targets %s: its %" PRId64 " targets are too few for one chord of %" PRId64
                   " of them: more chords, or a run that stores more targets",
                   wd_target_store_folder(o->stored), wd_target_store_count(o->stored),
                   wd_chord_length(&o->trajectory));
}

int64_t wd_source_stored_count(const wd_source_options *o)
{
    const int64_t targets = wd_target_store_count(o->stored);
    const wd_trajectory_options t = stored_trajectory(o);
    int64_t low = 0, high = targets + 1; /* rounds; each has a target at least */
    if (!learns_chords(o)) return targets;
    while (low < high) { /* the last round before which all targets are there */
        const int64_t middle = (low + high + 1) / 2;
        if (wd_trajectory_first_target(&t, middle) <= targets)
            low = middle;
        else
            high = middle - 1;
    }
    return wd__chord_first(&t, low);
}

int64_t wd_source_drawn(const wd_source_options *o, int64_t samples)
{
    return samples > 0 ? wd__stream_target_last(samples, o->reuse) + 1 : 0;
}

/* ---- targets of samples ---- */

/* The target, or chord, of the store that a sample trains on. */
static int64_t number_of(const stored_source *s, int64_t sample)
{
    const wd_source_options *o = &s->options;
    const int64_t number = wd__stream_target(&o->trajectory, sample, o->reuse, o->replay);
    const int64_t epoch = number / s->count;
    const wd_random key = {
        .seed = o->trajectory.seed, .stream = WD_RANDOM_STORED, .index = (uint64_t)epoch};
    return epoch ? wd_permute(number % s->count, s->count, key) : number;
}

typedef wd_status check_fn(wd_target_store *store, int64_t target, wd_err *err);

/* Calls `check` for all targets of a sample. */
static wd_status each_target(const stored_source *s, int64_t sample, check_fn *check, wd_err *err)
{
    const int64_t number = number_of(s, sample);
    if (!learns_chords(&s->options)) return check(s->options.stored, number, err);
    const wd_chord c = wd__chord_at(&s->trajectory, number);
    for (int64_t i = 0; i < c.length; i++) {
        WD_TRY(check(s->options.stored, c.target[i], err));
        if (c.gain > 0) WD_TRY(check(s->options.stored, c.twin[i], err));
    }
    return WD_OK;
}

static wd_status announce(wd_target_store *store, int64_t target, wd_err *err)
{
    (void)err;
    wd__target_store_will_need(store, target);
    return WD_OK;
}

/* Whether this rank trains on the sample: see train/loop/stepper.h. */
static bool is_own(const wd_source_options *o, int64_t sample)
{
    const wd_comm *comm = o->comm;
    return !comm || sample / o->batches.samples_max % comm->ranks == comm->rank;
}

/* Reads ahead: the kernel is told of all targets before the first one is checked. */
static wd_status stored_prepare(wd_source *self, int64_t end, wd_err *err)
{
    stored_source *s = (stored_source *)self;
    const wd_source_options *o = &s->options;
    if (end <= s->end) return WD_OK;
    for (int64_t i = s->end; i < end; i++)
        if (is_own(o, i)) WD_TRY(each_target(s, i, announce, err));
    for (int64_t i = s->end; i < end; i++)
        if (is_own(o, i)) WD_TRY(each_target(s, i, wd__target_store_check, err));
    s->end = end;
    self->targets = wd__stream_targets(&s->trajectory, end, o->reuse);
    return WD_OK;
}

static wd_status stored_begin_step(wd_source *self, int64_t step, double progress, wd_err *err)
{
    (void)self, (void)step, (void)progress, (void)err;
    return WD_OK; /* takes nothing of the networks */
}

/* ---- batches ---- */

/* Where the parts of a batch's sample are staged. */
static uint16_t *staged(const stored_source *s, int64_t index)
{
    const int64_t place = s->begun % s->places;
    return s->staging +
           (place * s->options.batches.samples_max + index) * s->parts * s->chord.state_count;
}

static const uint16_t *checked(const stored_source *s, int64_t target, const uint16_t *values)
{
    WD_REQUIRE(wd__target_store_is_checked(s->options.stored, target),
               "target %" PRId64 " was not prepared", target);
    return values;
}

/* Stages a block: its state, then its velocities. Returns the parts behind it. */
static uint16_t *stage_block(const stored_source *s, uint16_t *to, const int64_t *target,
                             int64_t length)
{
    wd_target_store *store = s->options.stored;
    const int64_t n = s->chord.state_count;
    const size_t bytes = (size_t)n * sizeof *to;
    memcpy(to, checked(s, target[0], wd__target_store_state(store, target[0])), bytes);
    for (int64_t i = 0; i < length; i++)
        memcpy(to + (1 + i) * n, checked(s, target[i], wd__target_store_velocity(store, target[i])),
               bytes);
    return to + (1 + length) * n;
}

/* Brings what was staged to the device, in float32. */
static void send_parts(const stored_source *s, const uint16_t *staging, int64_t parts)
{
    const int64_t count = parts * s->chord.state_count;
    wd_queue_copy(s->queue, s->stored, staging, (size_t)count * sizeof *staging);
    wd_op_cast(s->queue, &(wd_cast_args){.to = s->values,
                                         .from = s->stored,
                                         .to_type = WD_F32,
                                         .from_type = WD_BF16,
                                         .count = count});
}

static wd_batch_sample velocity_sample(stored_source *s, uint16_t *staging, int64_t number)
{
    const wd_target_info t = wd__trajectory_target(&s->trajectory, number);
    stage_block(s, staging, &number, 1);
    send_parts(s, staging, 2);
    return (wd_batch_sample){.latents = s->values,
                             .target = s->values + s->chord.state_count,
                             .timestep = t.timestep,
                             .weight = 1,
                             .prompt = t.prompt};
}

/* The block whose parts begin at `values`. */
static wd_chord_block block_at(const stored_source *s, const float *values, int64_t length)
{
    wd_chord_block block = {.latents = values};
    for (int64_t i = 0; i < length; i++)
        block.velocity[i] = values + (1 + i) * s->chord.state_count;
    return block;
}

/* As chord_sample of the trajectory source. The run's own seed says where on the chord it lies. */
static wd_batch_sample chord_sample(stored_source *s, uint16_t *staging, int64_t sample,
                                    int64_t number)
{
    const wd_trajectory_options *t = &s->trajectory;
    const wd_chord c = wd__chord_at(t, number);
    const wd_target_info begin = wd__chord_begin(t, number);
    const wd_chord_point point = wd__chord_point_of(&s->options.trajectory, &begin, sample);
    uint16_t *twins = stage_block(s, staging, c.target, c.length);
    if (c.gain > 0) stage_block(s, twins, c.twin, c.length);
    send_parts(s, staging, (c.gain > 0 ? 2 : 1) * (1 + c.length));
    const wd_chord_block block = block_at(s, s->values, c.length);
    const wd_chord_block twin =
        block_at(s, s->values + (1 + c.length) * s->chord.state_count, c.gain > 0 ? c.length : 0);
    wd__chord_pool_add(&s->chord, &c, &block, &twin, s->queue);
    return (wd_batch_sample){.latents = s->chord.latents,
                             .target = s->chord.velocity,
                             .dt = point.dt,
                             .timestep = point.timestep,
                             .weight = wd__chord_loss_weight(t, &begin),
                             .prompt = begin.prompt};
}

static void stored_fill(wd_source *self, wd_batch *out, int64_t first, int64_t samples)
{
    stored_source *s = (stored_source *)self;
    wd_event *sent = s->sent[s->begun % s->places];
    wd_event_wait(sent);
    wd__batches_begin(s->batches);
    for (int64_t i = 0; i < samples; i++) {
        const int64_t number = number_of(s, first + i);
        const wd_batch_sample sample = learns_chords(&s->options)
                                           ? chord_sample(s, staged(s, i), first + i, number)
                                           : velocity_sample(s, staged(s, i), number);
        wd__batches_put(s->batches, &sample);
    }
    wd_event_record(sent, s->queue);
    s->begun++;
    *out = wd__batches_send(s->batches);
}

/* ---- checkpoints ---- */

static const char objective[] = "stored"; /* what a checkpoint calls this source */

/* *out = what must be the same in a run that is resumed, by its options' names. */
static wd_status facts_of(json_t **out, const wd_source_options *o, wd_err *err)
{
    const wd_trajectory_options *t = &o->trajectory;
    *out = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I}", "objective", objective,
                     "targets", wd_target_store_key(o->stored), "number of targets",
                     (json_int_t)wd_target_store_count(o->stored), "seed", (json_int_t)t->seed,
                     "student_steps", (json_int_t)t->student_steps, "chords",
                     (json_int_t)wd_chords(t), "diversity_gain", t->diversity_gain, "target_reuse",
                     (json_int_t)o->reuse, "target_replay", (json_int_t)o->replay,
                     "samples per step", (json_int_t)o->step_samples);
    return *out ? WD_OK : wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the state of a source");
}

static wd_status stored_check_saved(const wd_source_options *o, const json_t *saved, wd_err *err)
{
    json_t *now;
    const char *key;
    json_t *value;
    wd_status status = WD_OK;
    WD_TRY(facts_of(&now, o, err));
    json_object_foreach(now, key, value)
    {
        char texts[2][80];
        const json_t *then = json_object_get(saved, key);
        if (then && json_equal(then, value)) continue;
        status =
            wd_fail(err, WD_MISMATCH,
                    "the run was begun with %s %s and is to be resumed with %s: resume it with "
                    "the same%s, or begin a new run",
                    key, then ? wd_json_show(texts[0], sizeof texts[0], then) : "unknown",
                    wd_json_show(texts[1], sizeof texts[1], value),
                    strcmp(key, "objective") ? "" : ", without --targets");
        break;
    }
    json_decref(now);
    return status;
}

static wd_status stored_save(wd_source *self, json_t **json, const wd_checkpoint_tensor **tensors,
                             int64_t *count, wd_err *err)
{
    const stored_source *s = (stored_source *)self;
    *tensors = NULL;
    *count = 0;
    return facts_of(json, &s->options, err);
}

static const wd_checkpoint_tensor *stored_saved(const wd_source *self, int64_t *count)
{
    (void)self;
    *count = 0;
    return NULL;
}

static wd_status stored_restore(wd_source *self, const json_t *json, int64_t steps, wd_err *err)
{
    stored_source *s = (stored_source *)self;
    WD_TRY(stored_check_saved(&s->options, json, err));
    s->end = steps * s->options.step_samples; /* the next samples are drawn from any target */
    self->targets = wd__stream_targets(&s->trajectory, s->end, s->options.reuse);
    return WD_OK;
}

static wd_status stored_check_finite(const wd_source *self, const wd_optimizer *optimizer,
                                     wd_err *err)
{
    (void)self, (void)optimizer, (void)err;
    return WD_OK; /* targets are checked when they are read */
}

/* ---- open and close ---- */

static void stored_close(wd_source *self)
{
    stored_source *s = (stored_source *)self;
    wd_device *device = wd_queue_device(s->queue);
    wd_queue_wait(s->queue);
    wd__batches_close(s->batches);
    wd__chord_pool_close(&s->chord, device);
    wd_device_free(device, s->stored);
    wd_device_free(device, s->values);
    wd_host_free(device, s->staging);
    for (int i = 0; i < WD_BATCHES_UNDER_WAY; i++) wd_event_close(s->sent[i]);
    wd_free(s);
}

static int64_t parts_of(const wd_source_options *o)
{
    if (!learns_chords(o)) return 2;
    return (o->trajectory.diversity_gain > 0 ? 2 : 1) * (1 + wd_chord_length(&o->trajectory));
}

static wd_status open_memory(stored_source *s, wd_err *err)
{
    const wd_batches_options *b = &s->options.batches;
    wd_device *device = wd_queue_device(s->queue);
    const size_t values = (size_t)(s->parts * b->state_count);
    const size_t staged_values = (size_t)(s->places * b->samples_max) * values;
    const char *what = "targets of a store";
    WD_TRY(wd_device_alloc((void **)&s->stored, device, values * sizeof(uint16_t), what, err));
    WD_TRY(wd_device_alloc((void **)&s->values, device, values * sizeof(float), what, err));
    WD_TRY(
        wd_host_alloc((void **)&s->staging, device, staged_values * sizeof(uint16_t), what, err));
    for (int i = 0; i < WD_BATCHES_UNDER_WAY; i++) WD_TRY(wd_event_open(&s->sent[i], device, err));
    s->chord.state_count = b->state_count;
    if (!learns_chords(&s->options)) return WD_OK;
    return wd__chord_pool_open(&s->chord, device, 1, b->state_count, err);
}

static wd_status stored_open(wd_source **out, const wd_source_options *options, wd_sweep *sweep,
                             wd_queue *home, wd_queue *queue, wd_err *err)
{
    wd_status status;
    stored_source *s;
    (void)sweep, (void)home;
    WD_TRY(wd_source_stored_check(options, err));
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "a source of batches", err));
    *s = (stored_source){.base = {.vtable = &wd_source_stored},
                         .options = *options,
                         .trajectory = stored_trajectory(options),
                         .queue = queue,
                         .count = wd_source_stored_count(options),
                         .parts = parts_of(options),
                         .places = wd_device_places(wd_queue_device(queue), WD_BATCHES_UNDER_WAY)};
    WD_TRY_OUT(open_memory(s, err));
    WD_TRY_OUT(wd__batches_open(&s->batches, &options->batches, queue, err));
    *out = &s->base;
out:
    if (status != WD_OK) stored_close(&s->base);
    return status;
}

/* ---- from the options alone ---- */

static int64_t stored_targets(const wd_source_options *o, int64_t samples)
{
    return wd__stream_targets(&o->trajectory, samples, o->reuse);
}

static double stored_step_targets(const wd_source_options *o)
{
    return (double)o->step_samples * wd__stream_targets_each(&o->trajectory, o->reuse);
}

static double stored_step_bytes(const wd_source_options *o)
{
    const double ranks = o->comm ? o->comm->ranks : 1;
    const double values = (double)(parts_of(o) * o->batches.state_count);
    return (double)o->step_samples / ranks * values * sizeof(uint16_t);
}

static int64_t stored_sweeps_apart(const wd_source_options *o)
{
    (void)o;
    return 1;
}

const wd_source_vtable wd_source_stored = {
    .check_saved = stored_check_saved,
    .targets = stored_targets,
    .step_targets = stored_step_targets,
    .step_bytes = stored_step_bytes,
    .sweeps_apart = stored_sweeps_apart,
    .open = stored_open,
    .prepare = stored_prepare,
    .begin_step = stored_begin_step,
    .fill = stored_fill,
    .save = stored_save,
    .saved = stored_saved,
    .restore = stored_restore,
    .check_finite = stored_check_finite,
    .close = stored_close,
};
