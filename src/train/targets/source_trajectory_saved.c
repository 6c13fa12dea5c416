/* The trajectory source in a checkpoint: where trajectories are, the targets that may still be
 * drawn, the stream's cursor. */
#include <inttypes.h>
#include <string.h>

#include "core/plain.h"
#include "train/targets/source_trajectory_impl.h"

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

wd_status wd_trajectory_source_save(wd_source *self, json_t **json,
                                    const wd_checkpoint_tensor **tensors, int64_t *count,
                                    wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_trajectory_options *t = &s->options.trajectory;
    WD_TRY(wd_trajectory_source_make_round(s, err));
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
    if (gathers) wd_trajectory_source_take_until(s, wd_gathers_posted(gathers));
    wd_trajectory_states_settle(&s->states);
    wd_targets_await(&s->ring, self->targets, s->queue);
    if (t->student_steps) wd_trajectory_source_add_chords(s, wd_chord_first(t, s->round));
    wd_status status = save_sigmas(object, t, err);
    if (status == WD_OK) status = save_on_policy(object, t, self->snapshot != NULL, err);
    if (status != WD_OK) {
        json_decref(object);
        return status;
    }
    *json = object;
    *tensors = wd_trajectory_source_saved(self, count);
    return WD_OK;
}

const wd_checkpoint_tensor *wd_trajectory_source_saved(const wd_source *self, int64_t *count)
{
    const wd_trajectory_source *s = (const wd_trajectory_source *)self;
    *count = WD_TRAJECTORY_SAVED + (s->options.trajectory.student_steps ? WD_CHORDS_SAVED : 0);
    return s->saved;
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

static wd_status same(json_int_t now, wd_json_reader r, const char *key, const char *what,
                      wd_err *err)
{
    int64_t then = 0;
    WD_TRY(wd_json_int(&then, r, key, INT64_MIN, INT64_MAX, WD_JSON_REQUIRED, err));
    return then == now ? WD_OK : differs(err, what, (double)then, (double)now);
}

wd_status wd_trajectory_source_check_saved(const wd_source_options *o, const json_t *saved,
                                           wd_err *err)
{
    const wd_trajectory_options *t = &o->trajectory;
    wd_json_reader r = {.object = saved, .where = "stream"};
    const char *name = "";
    double shift = 0;
    int64_t round;
    WD_TRY(wd_json_text(&name, r, "objective", WD_JSON_REQUIRED, err));
    if (strcmp(name, objective))
        return wd_fail(err, WD_MISMATCH, "the checkpoint is of objective %.*s, not %s",
                       WD_PLAIN(name, 60), objective);
    WD_TRY(same((json_int_t)t->seed, r, "seed", "seed", err));
    WD_TRY(same(t->slots, r, "trajectories", "trajectories", err));
    WD_TRY(same(t->steps, r, "trajectory_steps", "trajectory_steps", err));
    WD_TRY(same_number((double)t->student_steps, r, "student_steps", 0, err)); /* 0: no chords */
    /* a checkpoint of a version that knew no other number of chords does not say it */
    WD_TRY(same_number((double)wd_chords(t), r, "chords", (double)t->student_steps, err));
    WD_TRY(same_sigmas(t, saved, err));
    WD_TRY(same_on_policy(t, r, err));
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
    const int64_t least = wd_stream_targets(&o->trajectory, steps * o->step_samples, o->reuse);
    const int64_t most = wd_stream_targets(&o->trajectory, (steps + 1) * o->step_samples, o->reuse);
    if (made >= least && made <= most + o->trajectory.slots) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "its round has %" PRId64 " targets before it, and the %" PRId64
                   " steps of its phase need %" PRId64 " to %" PRId64
                   ": it is damaged, resume another one",
                   made, steps, least, most + o->trajectory.slots);
}

wd_status wd_trajectory_source_restore(wd_source *self, const json_t *json, int64_t steps,
                                       wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_json_reader r = {.object = json, .where = "stream"};
    WD_TRY(wd_trajectory_source_check_saved(&s->options, json, err));
    WD_TRY(wd_json_int(&s->round, r, "round", 0, rounds_max, WD_JSON_REQUIRED, err));
    self->targets = s->ring.awaited = wd_trajectory_first_target(&s->options.trajectory, s->round);
    if (s->options.trajectory.student_steps)
        s->chords.count = wd_chord_first(&s->options.trajectory, s->round);
    const json_t *snapshot = json_object_get(json, "snapshot");
    if (s->rollouts && !json_is_boolean(snapshot))
        return wd_fail(err, WD_BAD_FORMAT, "the checkpoint does not say whether it has a snapshot");
    const bool has = s->rollouts && json_is_true(snapshot);
    self->snapshot = has ? wd_rollouts_snapshot(s->rollouts) : NULL;
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

wd_status wd_trajectory_source_check_finite(const wd_source *self, const wd_optimizer *optimizer,
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
