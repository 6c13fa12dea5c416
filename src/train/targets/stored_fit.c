/* See train/targets/stored_fit.h, and train/targets/source.h for what other folders call. */
#include "train/targets/stored_fit.h"

#include <inttypes.h>

#include "train/targets/chord.h"

wd_trajectory_options wd__stored_trajectory(const wd_source_options *o)
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
    const wd_trajectory_options t = wd__stored_trajectory(o);
    int64_t low = 0, high = targets + 1; /* rounds; each has a target at least */
    if (!wd__stored_learns_chords(o)) return targets;
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
