/* See train/targets/stored_trajectory.h. */
#include "train/targets/stored_trajectory.h"

#include <inttypes.h>

#include "model/sampling/schedule.h"
#include "train/targets/chord.h"

/* As options allow, which keeps numbers of targets far within int64_t. */
enum { SLOTS_MAX = 65536, STEPS_MAX = 1000, TIMESTEPS_MAX = 1 << 24 };

/* A new array of the given noise levels; empty where there are none. NULL: no memory. */
static json_t *sigmas_of(const wd_trajectory_options *t)
{
    json_t *out = json_array();
    for (int64_t k = 0; out && t->sigma[0] > 0 && k < t->steps; k++)
        if (json_array_append_new(out, json_real((double)t->sigma[k]))) {
            json_decref(out);
            return NULL;
        }
    return out;
}

wd_status wd_stored_trajectory_json(json_t **out, const wd_trajectory_options *t, wd_err *err)
{
    *out =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:I, s:b, s:o}", "seed",
                  (json_int_t)t->seed, "trajectories", (json_int_t)t->slots, "trajectory_steps",
                  (json_int_t)t->steps, "student_steps", (json_int_t)t->student_steps, "chords",
                  (json_int_t)wd_chords(t), "on_policy_share", t->on_policy_share, "diversity_gain",
                  t->diversity_gain, "prompts", (json_int_t)t->prompts, "flow_shift", t->flow_shift,
                  "num_train_timesteps", (json_int_t)t->num_train_timesteps, "integer_timesteps",
                  (int)t->integer_timesteps, "trajectory_sigmas", sigmas_of(t));
    return *out ? WD_OK : wd_fail(err, WD_OUT_OF_MEMORY, "no memory for what targets are of");
}

static wd_status read_sigmas(wd_trajectory_options *t, wd_json_reader r, wd_err *err)
{
    double sigma[WD_TRAJECTORY_SIGMAS_MAX] = {0};
    int64_t count = 0;
    WD_TRY(wd_json_floats(sigma, &count, WD_TRAJECTORY_SIGMAS_MAX, r, "trajectory_sigmas",
                          WD_JSON_REQUIRED, err));
    if (!count) return WD_OK;
    bool falls = count == t->steps && sigma[0] == 1;
    for (int64_t k = 0; k < count; k++) {
        t->sigma[k] = (float)sigma[k];
        falls &= t->sigma[k] > 0 && (!k || t->sigma[k] < t->sigma[k - 1]);
    }
    if (falls) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: trajectory_sigmas: expected %" PRId64
                   " numbers that fall from 1 and stay above 0, as trajectory_steps says, found "
                   "others",
                   r.where, t->steps);
}

/* Chords divide a trajectory, and a student's steps a chord. */
static wd_status check_chords(const wd_trajectory_options *t, const char *where, wd_err *err)
{
    const int64_t chords = t->chords;
    const bool none = !t->student_steps && !chords && !(t->diversity_gain > 0);
    const bool fit = chords > 0 && t->steps % chords == 0 && t->student_steps > 0 &&
                     t->student_steps % chords == 0 && t->steps / chords <= WD_CHORD_STEPS_MAX;
    const bool paired = !(t->diversity_gain > 0) || t->slots % (2 * t->steps) == 0;
    if (none || (fit && paired)) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: %" PRId64 " trajectories of %" PRId64 " steps with student_steps %" PRId64
                   ", chords %" PRId64 " and diversity_gain %g: no run has such ones",
                   where, t->slots, t->steps, t->student_steps, chords, t->diversity_gain);
}

static wd_status read_shares(wd_trajectory_options *t, wd_json_reader r, wd_err *err)
{
    WD_TRY(wd_json_float(&t->on_policy_share, r, "on_policy_share", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_float(&t->diversity_gain, r, "diversity_gain", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_float(&t->flow_shift, r, "flow_shift", WD_JSON_REQUIRED, err));
    const bool shares = t->on_policy_share >= 0 && t->on_policy_share <= 1 &&
                        t->diversity_gain >= 0 && t->diversity_gain <= 1;
    if (shares && t->flow_shift >= 1e-3 && t->flow_shift <= 1e4) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected an on_policy_share and a diversity_gain from 0 to 1 and a "
                   "flow_shift from 0.001 to 10000, found %g, %g and %g",
                   r.where, t->on_policy_share, t->diversity_gain, t->flow_shift);
}

wd_status wd__stored_trajectory_read(wd_trajectory_options *out, const json_t *object,
                                     const char *where, wd_err *err)
{
    int64_t seed = 0;
    wd_trajectory_options t = {.on_policy_end = 1};
    const wd_json_reader r = {.object = object, .where = where};
    const wd_json_need need = WD_JSON_REQUIRED;
    if (!json_is_object(object))
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"trajectory\": expected an object", where);
    WD_TRY(wd_json_int(&seed, r, "seed", INT64_MIN, INT64_MAX, need, err));
    WD_TRY(wd_json_int(&t.slots, r, "trajectories", 1, SLOTS_MAX, need, err));
    WD_TRY(wd_json_int(&t.steps, r, "trajectory_steps", 1, STEPS_MAX, need, err));
    WD_TRY(
        wd_json_int(&t.student_steps, r, "student_steps", 0, WD_SCHEDULE_FEW_STEPS_MAX, need, err));
    WD_TRY(wd_json_int(&t.chords, r, "chords", 0, STEPS_MAX, need, err));
    WD_TRY(wd_json_int(&t.prompts, r, "prompts", 1, INT64_C(1) << 40, need, err));
    WD_TRY(
        wd_json_int(&t.num_train_timesteps, r, "num_train_timesteps", 1, TIMESTEPS_MAX, need, err));
    WD_TRY(wd_json_bool(&t.integer_timesteps, r, "integer_timesteps", need, err));
    WD_TRY(read_shares(&t, r, err));
    WD_TRY(check_chords(&t, where, err));
    WD_TRY(read_sigmas(&t, r, err));
    t.seed = (uint64_t)seed;
    *out = t;
    return WD_OK;
}
