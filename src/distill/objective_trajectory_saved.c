/* What a checkpoint keeps of the trajectory objective: where trajectories are, the targets that
 * may still be drawn, the stream's cursor. */
#include <string.h>

#include "distill/objective_trajectory_impl.h"

wd_status wd_trajectory_save(wd_objective *self, json_t **json,
                             const wd_checkpoint_tensor **tensors, int64_t *count, wd_err *err)
{
    wd_trajectory_objective *o = (wd_trajectory_objective *)self;
    const wd_trajectory_options *t = &o->options.trajectory;
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "objective", self->name, "round",
        (json_int_t)o->round, "seed", (json_int_t)t->seed, "trajectories", (json_int_t)t->slots,
        "trajectory_steps", (json_int_t)t->steps, "prompts", (json_int_t)t->prompts, "target_reuse",
        (json_int_t)o->options.reuse, "replay_targets", (json_int_t)o->options.replay,
        "step_samples", (json_int_t)o->options.step_samples, "flow_shift", t->flow_shift);
    if (!object) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the objective's state");
    wd_states_settle(o);
    *json = object;
    *tensors = o->saved;
    *count = WD_TRAJECTORY_SAVED;
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

wd_status wd_trajectory_restore(wd_objective *self, const json_t *json, wd_err *err)
{
    wd_trajectory_objective *o = (wd_trajectory_objective *)self;
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
