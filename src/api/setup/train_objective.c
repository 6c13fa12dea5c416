/* See api/setup/train_objective.h. */
#include "api/setup/train_objective.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/sampling/schedule.h"
#include "train/targets/chord.h"

/* Values for open options: see docs/recipe.md. */
enum { TOKENS_PER_BATCH = 512, BATCH_MIN = 2, VELOCITY_REUSE = 2, REUSE_MAX = 1000 };
enum { REPLAY_BYTES = 512 << 20, REPLAY_MIN = 1024, REPLAY_MAX = 8192 };
static const double LR_TIMES_WIDTH = 0.24, LR_OF_WHOLE_START = 0.2;
enum { LR_SAMPLES = 32 };

/* ---- noise levels of a trajectory: --trajectory_sigmas ---- */

static const double timesteps = 1000; /* of a sigma of 1 */
static const double tolerance = 2e-3; /* schedulers round timesteps to whole ones: 1e-3 */
static const double shift_min = 0.01, shift_max = 1000; /* those of --flow_shift */

static wd_status refuse(const char *text, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--trajectory_sigmas: expected up to %d noise levels that fall from 1 and end "
                   "above 0, or timesteps from 1000, such as 1,0.9375,0.8333,0.625; found %.60s",
                   WD_TRAJECTORY_SIGMAS_MAX, text);
}

wd_status wd__trajectory_sigmas_parse(float *sigma, int64_t *count, const char *text, wd_err *err)
{
    const char *at = text;
    double unit = 1;
    float before = INFINITY;
    int64_t n = 0;
    for (;; at++) {
        char *end;
        const double value = strtod(at, &end);
        if (n == 0 && value == timesteps) unit = timesteps;
        const float level = (float)(value / unit);
        if (end == at || n == WD_TRAJECTORY_SIGMAS_MAX || !(level > 0 && level < before) ||
            (n == 0 && level != 1))
            return refuse(text, err);
        sigma[n++] = before = level;
        at = end;
        if (!*at) break;
        if (*at != ',') return refuse(text, err);
    }
    *count = n;
    return WD_OK;
}

wd_status wd__trajectory_sigmas_shift(double *flow_shift, const float *sigma, int64_t count,
                                      int64_t chords, wd_err *err)
{
    const int64_t length = count / chords;
    double shift = *flow_shift;
    for (int64_t n = 1; n < chords; n++) {
        const double u = 1 - (double)n / (double)chords, s = (double)sigma[n * length];
        if (isnan(shift)) shift = s * (1 - u) / (u * (1 - s)); /* wd_flow_shift, solved for it */
        if (!(shift >= shift_min && shift <= shift_max))
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--trajectory_sigmas: chord %" PRId64 " of %" PRId64
                           " (--student_steps, or --chords) begins at %g, which is a flow shift of "
                           "%g: expected %g to %g. Are all of them noise levels, or all timesteps?",
                           n + 1, chords, s, shift, shift_min, shift_max);
        if (!(fabs(wd_flow_shift(u, shift) - s) <= tolerance))
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--trajectory_sigmas: chord %" PRId64 " of %" PRId64
                           " (--student_steps, or --chords) begins at %g, and a scheduler with "
                           "flow shift %g makes it at %g: no sampler would draw with this student. "
                           "Give levels of one flow shift, or fewer --student_steps or --chords",
                           n + 1, chords, s, shift, wd_flow_shift(u, shift));
    }
    *flow_shift = shift;
    return WD_OK;
}

/* ---- the options ---- */

/* Given noise levels say how many steps a trajectory has. */
static wd_status resolve_sigmas(wd_train_setup *s, wd_err *err)
{
    wd_train_options *o = &s->options;
    if (!o->trajectory_sigmas) return WD_OK;
    if (!o->student_steps || (o->recipe && strncmp(o->recipe, "chord", strlen("chord"))))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--trajectory_sigmas: expected --student_steps too, and no recipe but "
                       "chord, since velocities are learnt at all noise levels");
    return wd__trajectory_sigmas_parse(s->sigma, &o->trajectory_steps, o->trajectory_sigmas, err);
}

/* The option that gives the number of steps of a trajectory. */
static const char *steps_option(const wd_train_options *o)
{
    return o->trajectory_sigmas ? "--trajectory_sigmas" : "--trajectory_steps";
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* A trajectory is cut into chords of one length, and so are the student's steps. */
static wd_status resolve_chords(wd_train_options *o, wd_err *err)
{
    const int64_t steps = o->trajectory_steps;
    const bool given = o->chords > 0;
    if (!given) o->chords = o->student_steps;
    if (!o->chords) return WD_OK;
    if (!o->student_steps)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--chords %" PRId64 " needs --student_steps: give it, or leave --chords out",
                       o->chords);
    if (o->student_steps % o->chords)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--chords: expected a divisor of --student_steps, which is %" PRId64
                       ", found %" PRId64,
                       o->student_steps, o->chords);
    const char *option = given ? "--chords" : "--student_steps";
    if (steps / o->chords > WD_CHORD_STEPS_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s %" PRId64 ": expected at least a %dth part of the trajectory's %" PRId64
                       " steps (%s)",
                       option, o->chords, WD_CHORD_STEPS_MAX, steps, steps_option(o));
    if (steps % o->chords == 0) return WD_OK;
    const int64_t both = common_divisor(steps, o->student_steps);
    char advice[64] = "";
    if (both > 1 && steps / both <= WD_CHORD_STEPS_MAX)
        snprintf(advice, sizeof advice, ": %s --chords %" PRId64, given ? "use" : "add", both);
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s: expected a divisor of the trajectory's %" PRId64
                   " steps (%s), found %" PRId64 "%s",
                   option, steps, steps_option(o), o->chords, advice);
}

/* With one chord no block begins where the student's own step leads. */
static wd_status resolve_on_policy(wd_train_options *o, wd_err *err)
{
    const wd_train_options usual = wd_train_defaults();
    const char *option = o->on_policy_share > 0                        ? "--on_policy_share"
                         : o->on_policy_end != usual.on_policy_end     ? "--on_policy_end"
                         : o->on_policy_every != usual.on_policy_every ? "--on_policy_every"
                                                                       : NULL;
    if (option && o->chords < 2)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: expected %s of 2 and more, found %" PRId64 ": leave %s out", option,
                       o->student_steps > 1 ? "--chords" : "--student_steps", o->chords, option);
    if (isnan(o->on_policy_share)) o->on_policy_share = o->chords > 1;
    if (!(o->on_policy_end > 0)) o->on_policy_share = 0;
    return WD_OK;
}

/* Only chords have a gain, and their trajectories are in pairs. */
static wd_status check_diversity_gain(const wd_train_options *o, wd_err *err)
{
    const int64_t pairs = 2 * o->trajectory_steps, fewer = o->trajectories / pairs * pairs;
    if (!(o->diversity_gain > 0)) return WD_OK;
    if (!o->student_steps)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--diversity_gain %g needs --student_steps: give it, or leave "
                       "--diversity_gain out",
                       o->diversity_gain);
    if (fewer == o->trajectories) return WD_OK;
    char advice[64] = "fewer steps";
    if (fewer) snprintf(advice, sizeof advice, "--trajectories %" PRId64, fewer);
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--diversity_gain %g: expected --trajectories that are a multiple of %" PRId64
                   ", twice the trajectory's %" PRId64 " steps (%s), found %" PRId64
                   ": use --trajectories %" PRId64 " or %s",
                   o->diversity_gain, pairs, o->trajectory_steps, steps_option(o), o->trajectories,
                   fewer + pairs, advice);
}

/* What a phase learns at the same cost of the teacher as velocities that are used twice. */
static int64_t usual_reuse(const wd_train_options *o, bool learns_chords)
{
    return learns_chords && o->chords ? VELOCITY_REUSE * o->trajectory_steps / o->chords
                                      : VELOCITY_REUSE;
}

/* The recipes of the run's phases, with what each of them learns. */
static wd_status resolve_phases(wd_train_setup *s, wd_err *err)
{
    wd_train_options *o = &s->options;
    wd_phases *p = &s->phases;
    bool chords = false;
    if (!o->recipe) o->recipe = o->student_steps ? "chord" : "velocity";
    WD_TRY(wd_phases_parse(p, o->recipe, err));
    for (int i = 0; i < p->count; i++) {
        wd_phase *phase = &p->phase[i];
        const bool learns_chords = phase->recipe == &wd_recipe_chord;
        phase->reuse = o->target_reuse > 0 ? o->target_reuse : usual_reuse(o, learns_chords);
        chords |= learns_chords;
    }
    for (int i = 0; i < p->count && o->target_reuse < 0; i++)
        p->phase[i].reuse = wd_train_usual_reuse(s); /* of all phases, as a number that is given */
    if (chords != (o->student_steps > 0))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--recipe %.60s with --student_steps %" PRId64
                       ": expected chord in the recipe and a number of steps, or neither",
                       o->recipe, o->student_steps);
    return WD_OK;
}

int64_t wd_train_usual_reuse(const wd_train_setup *s)
{
    int64_t most = VELOCITY_REUSE;
    for (int i = 0; i < s->phases.count; i++) {
        const bool chords = s->phases.phase[i].recipe == &wd_recipe_chord;
        const int64_t usual = usual_reuse(&s->options, chords);
        if (usual > most) most = usual;
    }
    return most;
}

void wd_train_set_reuse(wd_train_setup *s, int64_t reuse)
{
    s->options.target_reuse = reuse;
    for (int i = 0; i < s->phases.count; i++)
        s->phases.phase[i].reuse = s->trainer.stepper.phases.phase[i].reuse = reuse;
}

void wd__train_keep_reuse(wd_train_setup *s, const json_t *run)
{
    const json_t *was = json_object_get(json_object_get(run, "stream"), "target_reuse");
    const json_int_t reuse = json_integer_value(was);
    if (s->options.target_reuse < 0 && reuse >= 1 && reuse <= REUSE_MAX)
        wd_train_set_reuse(s, reuse);
}

/* Whether the student has all blocks and channels of what it starts from. */
static bool starts_whole(const wd_train_setup *s)
{
    const wd_dit_config *start = s->options.init_student ? &s->first.dit : &s->teacher.dit;
    const wd_dit_config *student = &s->student.dit;
    return student->layers == start->layers && student->ffn_dim == start->ffn_dim &&
           wd_dit_width(student) == wd_dit_width(start);
}

/* The learning rate of many samples a step. Fewer are a noisier step, which has to be smaller. A
 * student that starts from a whole model draws already, and a usual rate would undo it. */
static double usual_lr(const wd_train_setup *s)
{
    const double samples = (double)wd__train_step_samples(s);
    return LR_TIMES_WIDTH / (double)wd_dit_width(&s->student.dit) *
           fmin(1, sqrt(samples / LR_SAMPLES)) * (starts_whole(s) ? LR_OF_WHOLE_START : 1);
}

void wd__train_keep_lr(wd_train_setup *s, const json_t *run)
{
    const json_t *said = json_object_get(run, "lr");
    const double was = json_is_number(said)
                           ? json_number_value(said)
                           : LR_TIMES_WIDTH / (double)wd_dit_width(&s->student.dit);
    if (isnan(s->given.lr) && was >= 0 && was <= 1) s->options.lr = was;
}

/* Each target takes a state and a velocity, both float32. */
static int64_t usual_replay(int64_t state_count)
{
    const int64_t fit = REPLAY_BYTES / (2 * (int64_t)sizeof(float) * state_count);
    return fit < REPLAY_MIN ? REPLAY_MIN : fit > REPLAY_MAX ? REPLAY_MAX : fit;
}

/* The student's scheduler has WD_SCHEDULE_TIMESTEPS of them, as all published models have. */
static wd_status check_timesteps(const wd_train_setup *s, wd_err *err)
{
    const int64_t found = s->teacher.scheduler.num_train_timesteps;
    if (!s->options.student_steps || found == WD_SCHEDULE_TIMESTEPS) return WD_OK;
    return wd_fail(
        err, WD_UNSUPPORTED,
        "--student_steps: expected a teacher whose scheduler has num_train_timesteps %d, "
        "found %" PRId64 " in %s: leave --student_steps out",
        WD_SCHEDULE_TIMESTEPS, found, s->teacher.path);
}

wd_status wd__train_objective_resolve(wd_train_setup *s, wd_err *err)
{
    wd_train_options *o = &s->options;
    WD_TRY(resolve_sigmas(s, err));
    WD_TRY(resolve_chords(o, err));
    WD_TRY(check_timesteps(s, err));
    WD_TRY(resolve_on_policy(o, err));
    WD_TRY(check_diversity_gain(o, err));
    WD_TRY(resolve_phases(s, err));
    if (!isnan(o->guidance_scale_2) && wd_teacher_experts(&s->teacher) == 1)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--guidance_scale_2: %s has one expert (no boundary_ratio, or no "
                       "transformer_2); leave it out",
                       s->teacher.path);
    const bool own = isnan(o->guidance_scale);
    if (own) o->guidance_scale = s->teacher.guidance_scale[0];
    if (isnan(o->guidance_scale_2))
        o->guidance_scale_2 = own ? s->teacher.guidance_scale[1] : o->guidance_scale;
    if (!o->negative_prompt) o->negative_prompt = s->teacher.negative_prompt;
    if (s->sigma[0] > 0)
        WD_TRY(wd__trajectory_sigmas_shift(&o->flow_shift, s->sigma, o->trajectory_steps, o->chords,
                                           err));
    if (isnan(o->flow_shift)) o->flow_shift = s->teacher.scheduler.flow_shift;
    const wd_dit_shape picture = {.samples = 1,
                                  .frames = 1,
                                  .height = o->height / wd_pipeline_vae_scale(&s->teacher),
                                  .width = o->width / wd_pipeline_vae_scale(&s->teacher)};
    const int64_t fit = TOKENS_PER_BATCH / wd_dit_tokens(&s->student.dit, &picture);
    if (!o->batch_size) o->batch_size = fit > BATCH_MIN ? fit : BATCH_MIN;
    if (!o->target_replay)
        o->target_replay =
            usual_replay(s->student.dit.in_channels * picture.height * picture.width);
    if (isnan(o->lr)) o->lr = usual_lr(s);
    if (o->teacher_window > o->trajectories) o->teacher_window = o->trajectories;
    return WD_OK;
}
