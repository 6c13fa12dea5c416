/* Making the states of validation: see train/targets/validation_states.h. */
#include "train/targets/validation_states.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "core/memory.h"
#include "io/file/file.h"
#include "io/tensors/safetensors.h"
#include "model/sampling/sampler.h"

/* The student's steps along a chord; 1 where it learns velocities. */
static int64_t steps_of_chord(const wd_trajectory_options *t)
{
    return t->student_steps ? t->student_steps / wd_chords(t) : 1;
}

static bool learns_chords(const wd_validation_states *s)
{
    return s->options.trajectory.student_steps > 0;
}

/* Steps of a trajectory, and of those that are one target. */
static int64_t trajectory_steps(const wd_validation_states *s)
{
    return learns_chords(s) ? s->options.trajectory.steps : WD_VALIDATION_LEVELS;
}

static int64_t target_steps(const wd_validation_states *s)
{
    return learns_chords(s) ? wd_chord_length(&s->options.trajectory) : 1;
}

/* ---- noise levels ---- */

/* The target of slot 0 at step k of its first trajectory: without jitter all have its levels. */
static wd_target_info target_at(const wd_trajectory_options *t, int64_t k)
{
    return wd__trajectory_target(t, wd__trajectory_number(t, k, 0));
}

/* Of its own sampler, or Euler's steps on the grid of the trajectories that the student trains on.
 */
wd_status wd_validation_states_schedule(wd_schedule *out, const wd_validation_states *s,
                                        wd_err *err)
{
    const wd_validation_states_options *o = &s->options;
    const int64_t steps = trajectory_steps(s);
    if (!learns_chords(s)) return wd_schedule_open(out, &o->scheduler, steps, err);
    const wd_scheduler_config euler = {.kind = WD_SCHEDULER_EULER,
                                       .num_train_timesteps = o->scheduler.num_train_timesteps,
                                       .flow_shift = o->trajectory.flow_shift};
    WD_TRY(wd_schedule_open(out, &euler, steps, err));
    for (int64_t k = 0; k < steps; k++) {
        const wd_target_info target = target_at(&o->trajectory, k);
        out->sigma[k] = target.sigma;
        out->sigma[k + 1] = target.sigma_next;
        out->timestep[k] = target.timestep;
    }
    return WD_OK;
}

static wd_status find_levels(wd_validation_states *s, wd_err *err)
{
    wd_schedule schedule;
    const wd_trajectory_options *t = &s->options.trajectory;
    const int64_t each = steps_of_chord(t), length = target_steps(s);
    WD_TRY(wd_validation_states_schedule(&schedule, s, err));
    for (int64_t i = 0; i < s->levels; i++) {
        const int64_t k = i / each * length;
        s->sigma[i] = schedule.sigma[k];
        s->timestep[i] = schedule.timestep[k];
        if (i % each == 0) continue;
        const wd_target_info begin = target_at(t, k);
        const wd_chord_point point = wd__chord_point_at(t, &begin, i % each);
        s->sigma[i] = begin.sigma + point.dt;
        s->timestep[i] = point.timestep;
    }
    wd_schedule_close(&schedule);
    return WD_OK;
}

wd_status wd_validation_states_open(wd_validation_states *out,
                                    const wd_validation_states_options *options, bool keeps,
                                    wd_err *err)
{
    const wd_trajectory_options *t = &options->trajectory;
    wd_validation_states s = {.options = *options};
    s.levels = t->student_steps ? t->student_steps : WD_VALIDATION_LEVELS;
    s.trajectories = options->prompts * (t->diversity_gain > 0 ? 2 : 1);
    WD_TRY(find_levels(&s, err));
    wd_status status = WD_OK;
    const size_t states = (size_t)(s.levels * s.trajectories);
    const size_t bytes = (size_t)options->state_count * sizeof(float);
    if (keeps) status = wd_alloc((void **)&s.latents, states, bytes, "states of validation", err);
    if (keeps && status == WD_OK)
        status = wd_alloc((void **)&s.target, states, bytes, "targets of validation", err);
    if (status == WD_OK)
        *out = s;
    else
        wd_validation_states_close(&s);
    return status;
}

void wd_validation_states_close(wd_validation_states *states)
{
    wd_free(states->latents);
    wd_free(states->target);
    *states = (wd_validation_states){0};
}

size_t wd_validation_states_bytes(const wd_validation_states *s)
{
    return 2 * (size_t)(s->levels * s->trajectories * s->options.state_count) * sizeof(float);
}

/* ---- trajectories ---- */

/* Trajectories [first, first + count), which go through the teacher together. */
typedef struct group {
    wd_validation_states *states;
    wd_sweep *sweep;
    wd_queue *queue;
    wd_schedule schedule;
    int64_t first, count, step;
    int64_t done, total; /* sweeps */
    float *values;       /* [count, state_count] host: noise, and velocities on their way */
    float *timestep;     /* [count] */
    int64_t *prompt;     /* [count] */
    wd_validation_look_fn *look;
    void *context;
    bool is_dry;
} group;

/* Where the group's values of a level are. */
static float *at_level(const group *g, float *all, int64_t level)
{
    const wd_validation_states *s = g->states;
    return all + (level * s->trajectories + g->first) * s->options.state_count;
}

static size_t group_bytes(const group *g)
{
    return (size_t)(g->count * g->states->options.state_count) * sizeof(float);
}

/* The weight of the group's step in the chord that it is a part of. */
static float weight_of(const group *g)
{
    const int64_t length = target_steps(g->states), in_chord = g->step % length;
    wd_chord chord = {.length = length};
    if (!learns_chords(g->states)) return 1;
    wd__chord_shape(&chord, g->schedule.sigma + g->step - in_chord, 0);
    return chord.weight[in_chord];
}

/* Adds the step's velocities to the targets that they are parts of. */
static void add_velocities(group *g, const float *velocity)
{
    const wd_validation_states *s = g->states;
    if (!s->target) return;
    const int64_t chord = g->step / target_steps(s);
    float *target = at_level(g, s->target, chord * steps_of_chord(&s->options.trajectory));
    const float weight = weight_of(g);
    wd_queue_copy_and_wait(g->queue, g->values, velocity, group_bytes(g));
    if (g->is_dry) return;
    for (int64_t i = 0; i < g->count * s->options.state_count; i++)
        target[i] += weight * g->values[i];
}

static wd_status velocity(void *context, float *out, const float *latents, float timestep,
                          wd_err *err)
{
    group *g = context;
    for (int64_t i = 0; i < g->count; i++) g->timestep[i] = timestep;
    const wd_window window = {.count = g->count,
                              .queue = g->queue,
                              .latents = latents,
                              .velocity = out,
                              .timestep = g->timestep,
                              .prompt = g->prompt};
    if (g->sweep) WD_TRY(wd_sweep_run_for_all(g->sweep, &window, g->values, err));
    add_velocities(g, out);
    return WD_OK;
}

/* Keeps the states at which targets begin. */
static wd_status look(void *context, int64_t step, const float *latents, wd_err *err)
{
    group *g = context;
    const wd_validation_states *s = g->states;
    const int64_t length = target_steps(s);
    g->step = step;
    if (step == g->schedule.steps) return WD_OK;
    if (s->latents && step % length == 0) {
        const int64_t level = step / length * steps_of_chord(&s->options.trajectory);
        wd_queue_copy_and_wait(g->queue, at_level(g, s->latents, level), latents, group_bytes(g));
    }
    return g->look ? g->look(g->context, g->done++, g->total, err) : WD_OK;
}

/* Noise as pictures begin with; the second of a pair has the negative of the first one's. */
static void fill_noise(const group *g)
{
    const wd_validation_states_options *o = &g->states->options;
    for (int64_t i = 0; i < g->count && !g->is_dry; i++) {
        float *noise = g->values + i * o->state_count;
        const int64_t number = g->first + i;
        wd_sampler_noise(noise, o->trajectory.seed, number % o->prompts, 1, o->state_count);
        for (int64_t k = 0; number >= o->prompts && k < o->state_count; k++) noise[k] = -noise[k];
    }
}

static wd_status run_group(group *g, wd_err *err)
{
    const wd_validation_states_options *o = &g->states->options;
    wd_device *device = wd_queue_device(g->queue);
    float *x;
    for (int64_t i = 0; i < g->count; i++)
        g->prompt[i] = wd_validation_prompt(g->states, g->first + i);
    WD_TRY(wd_device_alloc((void **)&x, device, group_bytes(g), "validation", err));
    fill_noise(g);
    wd_queue_copy_and_wait(g->queue, x, g->values, group_bytes(g));
    const wd_dtype dtype = learns_chords(g->states) ? WD_F32 : o->teacher_dtype;
    const wd_status status = wd_sampler_run(x, g->count * o->state_count, &g->schedule, dtype,
                                            velocity, g, look, g, g->queue, err);
    wd_device_free(device, x);
    return status;
}

/* ---- chords ---- */

/* As train/targets/chord.h has it: both of a pair lead away from where the other one leads. */
static void lead_away(float *first, float *second, const float *x, const float *x2,
                      const wd_chord *chord, int64_t count)
{
    const float h = chord->gain;
    for (int64_t i = 0; i < count; i++) {
        const float apart = first[i] - second[i] - (x[i] - x2[i]) / chord->sigma;
        first[i] += h * apart;
        second[i] -= h * apart;
    }
}

static void add_gain(wd_validation_states *s, const wd_schedule *schedule)
{
    const wd_trajectory_options *t = &s->options.trajectory;
    const int64_t length = target_steps(s), half = s->options.prompts * s->options.state_count;
    if (!(t->diversity_gain > 0)) return;
    for (int64_t c = 0; c < wd_chords(t); c++) {
        wd_chord chord = {.length = length};
        wd__chord_shape(&chord, schedule->sigma + c * length, t->diversity_gain);
        float *x = s->latents + 2 * half * c * steps_of_chord(t);
        float *u = s->target + 2 * half * c * steps_of_chord(t);
        lead_away(u, u + half, x, x + half, &chord, half);
    }
}

/* The states at which the student's further steps along a chord begin; their target is the same. */
static void fill_between(wd_validation_states *s)
{
    const int64_t each = steps_of_chord(&s->options.trajectory);
    const int64_t width = s->trajectories * s->options.state_count;
    for (int64_t level = 0; level < s->levels; level++) {
        const int64_t from = level - level % each;
        const float dt = s->sigma[level] - s->sigma[from];
        for (int64_t i = 0; level != from && i < width; i++) {
            const float target = s->target[from * width + i];
            s->latents[level * width + i] = s->latents[from * width + i] + dt * target;
            s->target[level * width + i] = target;
        }
    }
}

static wd_status check_finite(const wd_validation_states *s, wd_err *err)
{
    const int64_t count = s->levels * s->trajectories * s->options.state_count;
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(s->latents[i]) || !isfinite(s->target[i]))
            return wd_fail(err, WD_NOT_FINITE,
                           "validation: the teacher's velocities are not finite: its weights or "
                           "its prompt embeddings are damaged, or --teacher_dtype is too narrow "
                           "for them");
    return WD_OK;
}

/* ---- all of them ---- */

/* A rank's sweep may have room for less than the window of all ranks. */
static int64_t group_max(const wd_validation_states *s, const wd_sweep *sweep, int64_t window)
{
    const int64_t most = sweep ? wd_sweep_options_of(sweep)->window_max : window;
    return most < s->trajectories ? most : s->trajectories;
}

wd_status wd_validation_states_make(wd_validation_states *s, wd_sweep *sweep, int64_t window,
                                    wd_queue *queue, wd_validation_look_fn *look_fn, void *context,
                                    wd_err *err)
{
    wd_status status;
    const int64_t most = group_max(s, sweep, window);
    group g = {.states = s,
               .sweep = sweep,
               .queue = queue,
               .look = look_fn,
               .context = context,
               .is_dry = wd_device_is_dry(wd_queue_device(queue))};
    const char *what = "validation";
    WD_TRY_OUT(wd_validation_states_schedule(&g.schedule, s, err));
    if (s->target && !g.is_dry) memset(s->target, 0, wd_validation_states_bytes(s) / 2);
    g.total = (s->trajectories + most - 1) / most * g.schedule.steps;
    WD_TRY_OUT(wd_alloc((void **)&g.values, (size_t)(most * s->options.state_count), sizeof(float),
                        what, err));
    WD_TRY_OUT(wd_alloc((void **)&g.timestep, (size_t)most, sizeof *g.timestep, what, err));
    WD_TRY_OUT(wd_alloc((void **)&g.prompt, (size_t)most, sizeof *g.prompt, what, err));
    for (g.first = 0; g.first < s->trajectories; g.first += g.count) {
        const int64_t left = s->trajectories - g.first;
        g.count = left < most ? left : most;
        WD_TRY_OUT(run_group(&g, err));
    }
    if (!s->latents || g.is_dry || !sweep) goto out;
    add_gain(s, &g.schedule);
    fill_between(s);
    status = check_finite(s, err);
out:
    wd_schedule_close(&g.schedule);
    wd_free(g.values);
    wd_free(g.timestep);
    wd_free(g.prompt);
    return status;
}

/* ---- files of states ----
 *
 * The states of validation in a file, so that a resumed run, and other runs with the same teacher
 * and prompts, need not make them again. Tensors, all float32:
 *
 *   latents, target   [levels, trajectories, state_count]
 *   sigma, timestep   [levels]
 *
 * Its metadata have the format, the key of what the states are of, and a checksum of all values.
 * The file is mapped and not trusted: what does not agree is an error, and the states are made
 * anew. */

/* The format with its version, which is raised when the meaning of a file changes. */
static const char format[] = "wandistiller validation 1";

enum { CHECKSUM_TEXT = 17 };

static size_t count_of(const wd_validation_states *s)
{
    return (size_t)(s->levels * s->trajectories * s->options.state_count);
}

static void checksum(char out[CHECKSUM_TEXT], const wd_validation_states *s)
{
    const size_t bytes = count_of(s) * sizeof(float), levels = (size_t)s->levels * sizeof(float);
    XXH64_hash_t hash = XXH3_64bits(s->latents, bytes);
    hash = XXH3_64bits_withSeed(s->target, bytes, hash);
    hash = XXH3_64bits_withSeed(s->sigma, levels, hash);
    hash = XXH3_64bits_withSeed(s->timestep, levels, hash);
    snprintf(out, CHECKSUM_TEXT, "%016" PRIx64, (uint64_t)hash);
}

wd_status wd_validation_states_save(const wd_validation_states *s, const char *path,
                                    const char *key, wd_err *err)
{
    wd_status status;
    wd_safetensors_writer *writer;
    char sum[CHECKSUM_TEXT];
    const int64_t width = s->options.state_count;
    const wd_safetensors_item item[] = {{"latents", WD_F32, 3, {s->levels, s->trajectories, width}},
                                        {"target", WD_F32, 3, {s->levels, s->trajectories, width}},
                                        {"sigma", WD_F32, 1, {s->levels}},
                                        {"timestep", WD_F32, 1, {s->levels}}};
    const size_t bytes = count_of(s) * sizeof(float), levels = (size_t)s->levels * sizeof(float);
    checksum(sum, s);
    const char *const metadata[] = {"format", format, "key", key, "checksum", sum, NULL};
    WD_TRY(wd_safetensors_create_unnamed(&writer, path, item, 4, metadata, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->latents, bytes, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->target, bytes, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->sigma, levels, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->timestep, levels, err));
    return wd_safetensors_finish(writer, err);
out:
    wd_safetensors_abandon(writer);
    return status;
}

static wd_status damaged(const char *path, const char *why, wd_err *err)
{
    return wd_fail(err, WD_BAD_FORMAT, "%s: %s", path, why);
}

/* Copies a tensor of the shape that the states have. */
static wd_status take(float *out, const wd_safetensors *set, const char *path, const char *name,
                      const int64_t *dim, int ndim, wd_err *err)
{
    const wd_safetensors_entry *e = wd_safetensors_find(set, name);
    size_t count = 1;
    bool fits = e && e->tensor.dtype == WD_F32 && e->tensor.ndim == ndim;
    for (int k = 0; k < ndim; k++) {
        fits = fits && e->tensor.dim[k] == dim[k];
        count *= (size_t)dim[k];
    }
    if (!fits) return damaged(path, "has not the tensors of these states", err);
    memcpy(out, e->tensor.data, count * sizeof *out);
    return WD_OK;
}

static bool says(const wd_safetensors *set, const char *key, const char *expected)
{
    const char *found = wd_safetensors_metadata(set, key);
    return found && !strcmp(found, expected);
}

static wd_status read_all(wd_validation_states *s, const wd_safetensors *set, const char *path,
                          const char *key, wd_err *err)
{
    char sum[CHECKSUM_TEXT];
    float levels[2][WD_VALIDATION_LEVELS_MAX];
    const int64_t dim[] = {s->levels, s->trajectories, s->options.state_count};
    const size_t bytes = (size_t)s->levels * sizeof(float);
    if (!says(set, "format", format) || !says(set, "key", key))
        return damaged(path, "is of other states, or of another version of this program", err);
    WD_TRY(take(s->latents, set, path, "latents", dim, 3, err));
    WD_TRY(take(s->target, set, path, "target", dim, 3, err));
    WD_TRY(take(levels[0], set, path, "sigma", dim, 1, err));
    WD_TRY(take(levels[1], set, path, "timestep", dim, 1, err));
    checksum(sum, s);
    if (memcmp(levels[0], s->sigma, bytes) || memcmp(levels[1], s->timestep, bytes))
        return damaged(path, "has other noise levels", err);
    if (!says(set, "checksum", sum)) return damaged(path, "its checksum is wrong", err);
    for (size_t i = 0; i < count_of(s); i++)
        if (!isfinite(s->latents[i]) || !isfinite(s->target[i]))
            return damaged(path, "has values that are not finite", err);
    return WD_OK;
}

wd_status wd_validation_states_load(wd_validation_states *s, const char *path, const char *key,
                                    wd_err *err)
{
    wd_safetensors *set;
    if (!wd_path_exists(path)) return wd_fail(err, WD_NOT_FOUND, "%s: is not there", path);
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_status status = read_all(s, set, path, key, err);
    wd_safetensors_close(set);
    return status;
}
