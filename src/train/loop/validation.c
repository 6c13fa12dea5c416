/* Validation: see train/loop/validation.h. Behind the measuring stands what a trainer does with it
 * in the course of a run (trainer_impl.h): when it is, what is written of it, and the student that
 * is kept as the best one. */
#include "train/loop/validation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/difference.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/progress.h"
#include "io/file/file.h"
#include "train/loop/trainer_impl.h"

_Static_assert((int)WD_VALIDATION_LEVELS_MAX == (int)WD_RESULT_LEVELS_MAX,
               "a result has all levels");

struct wd_validation {
    wd_validation_options options;
    wd_stepper *stepper;
    wd_validation_states states;
    wd_progress_task progress; /* of making them */
    double flops;
};

static const wd_stepper_options *stepper_of(const wd_validation *v)
{
    return wd__stepper_options_of(v->stepper);
}

/* Of all ranks one measures. */
static bool is_writer(const wd_validation *v)
{
    const wd_comm *comm = stepper_of(v)->comm;
    return !comm || comm->rank == 0;
}

static bool is_dry(const wd_validation *v)
{
    return wd_device_is_dry(wd_queue_device(wd__stepper_queue(v->stepper)));
}

/* A run that reads its targets has the states of the run that made them, whose seed may be another.
 */
static wd_trajectory_options trajectory_of(const wd_stepper_options *m)
{
    wd_trajectory_options t = m->trajectory;
    if (m->stored) t.seed = wd_target_store_trajectory(m->stored)->seed;
    return t;
}

wd_validation_states_options wd_validation_states_options_of(const wd_stepper_options *m)
{
    return (wd_validation_states_options){.trajectory = trajectory_of(m),
                                          .scheduler = m->teacher->scheduler,
                                          .teacher_dtype =
                                              wd_teacher_compute_dtype(m->teacher_dtype),
                                          .prompts = m->validation->prompts,
                                          .state_count = wd__stepper_state_count(m),
                                          .text_first = m->validation->text_first};
}

wd_status wd__validation_open(wd_validation **out, const wd_validation_options *options,
                              wd_stepper *stepper, wd_err *err)
{
    wd_validation *v;
    const wd_validation_states_options states =
        wd_validation_states_options_of(wd__stepper_options_of(stepper));
    WD_TRY(wd_alloc((void **)&v, 1, sizeof *v, "validation", err));
    v->options = *options;
    v->stepper = stepper;
    const wd_status status = wd_validation_states_open(&v->states, &states, is_writer(v), err);
    if (status == WD_OK)
        *out = v;
    else
        wd__validation_close(v);
    return status;
}

void wd__validation_close(wd_validation *validation)
{
    if (!validation) return;
    wd_validation_states_close(&validation->states);
    wd_free(validation);
}

double wd__validation_flops(const wd_validation *validation)
{
    return validation->flops;
}

const wd_validation_states *wd__validation_states_of(const wd_validation *validation)
{
    return &validation->states;
}

/* ---- the states ---- */

static wd_status look(void *context, int64_t done, int64_t total, wd_err *err)
{
    wd_validation *v = context;
    if (is_dry(v)) return WD_OK;
    if (!done && is_writer(v))
        v->progress = wd_progress_begin("making states to validate on", "sweep", 0, total);
    wd_progress_at(&v->progress, done);
    if (v->options.stop && v->options.stop(v->options.stop_context, true))
        return wd_fail(err, WD_INTERRUPTED, "the states of validation were given up");
    return WD_OK;
}

/* Reads the file; a damaged one is a warning, unless nobody can make its states anew. */
static wd_status read_file(bool *found, wd_validation *v, const char *path, const char *key,
                           wd_err *err)
{
    wd_err why = {0};
    *found = false;
    if (!path || !is_writer(v)) return WD_OK;
    const wd_status status = wd_validation_states_load(&v->states, path, key, &why);
    *found = status == WD_OK;
    if (*found || status == WD_NOT_FOUND) return WD_OK;
    if (status != WD_BAD_FORMAT || stepper_of(v)->stored) {
        if (err) *err = why;
        return status;
    }
    wd_log(WD_LOG_WARNING, "%s; the states of validation are made anew", why.message);
    return WD_OK;
}

/* Of rank 0, as all ranks hear from it. */
static wd_status hear(bool *value, const wd_validation *v, wd_err *err)
{
    bool *all;
    wd_comm *comm = stepper_of(v)->comm;
    if (!comm || comm->ranks == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, sizeof *all, "ranks", err));
    all[comm->rank] = *value;
    wd_comm_allgather_small(comm, all, sizeof *all);
    *value = all[0];
    wd_free(all);
    return WD_OK;
}

/* What cannot be kept is made again by the next run. */
static void write_file(const wd_validation *v, const char *path, const char *key)
{
    wd_err err = {0};
    if (!path || !is_writer(v)) return;
    wd_status status = wd_folder_make(v->options.folder, &err);
    if (status == WD_OK) status = wd_validation_states_save(&v->states, path, key, &err);
    if (status != WD_OK)
        wd_log(WD_LOG_WARNING, "the states of validation are not kept: %s", err.message);
}

static wd_status make(wd_validation *v, wd_err *err)
{
    const wd_status status =
        wd_validation_states_make(&v->states, wd__stepper_sweep(v->stepper), stepper_of(v)->window,
                                  wd__stepper_queue(v->stepper), look, v, err);
    if (status == WD_OK) wd_progress_at(&v->progress, v->progress.now.total);
    v->progress = (wd_progress_task){0};
    return status;
}

wd_status wd__validation_prepare(wd_validation *v, const char *path, const char *key, wd_err *err)
{
    bool found = false;
    if (is_dry(v)) return stepper_of(v)->stored ? WD_OK : make(v, err);
    WD_TRY(read_file(&found, v, path, key, err));
    WD_TRY(hear(&found, v, err));
    if (found) return WD_OK;
    if (stepper_of(v)->stored)
        return wd_fail(err, WD_NOT_FOUND,
                       "--validation_prompts with --targets: no teacher is in memory to make the "
                       "states of these prompts, and %s is not there: give the prompts that the "
                       "run with --save_targets was validated on, and its --student_steps, "
                       "--chords and --diversity_gain, or leave the option out",
                       path ? path : "a file of them");
    WD_TRY(make(v, err));
    write_file(v, path, key);
    return WD_OK;
}

/* ---- measuring ---- */

/* The memory of a batch. */
typedef struct batch {
    float *latents, *velocity, *timestep; /* device: [B, state_count], the same, [B] */
    void *text;                           /* device: [B, S, text_dim] */
    float *found;                         /* host: as velocity */
    float *level;                         /* host: as timestep */
    char *rows;                           /* host: as text */
} batch;

static size_t text_bytes(const wd_stepper_options *m)
{
    return wd_dtype_size(m->student_dtype, m->text_tokens * m->student.text_dim);
}

static void close_batch(batch *b, wd_device *device)
{
    void *const blocks[] = {b->latents, b->velocity, b->timestep, b->text};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) wd_device_free(device, blocks[i]);
    wd_free(b->found);
    wd_free(b->level);
    wd_free(b->rows);
}

static wd_status open_batch(batch *b, const wd_validation *v, wd_device *device, wd_err *err)
{
    const wd_stepper_options *m = stepper_of(v);
    const char *what = "validation";
    const size_t samples = (size_t)m->batch;
    const size_t states = samples * (size_t)v->states.options.state_count * sizeof(float);
    WD_TRY(wd_device_alloc((void **)&b->latents, device, states, what, err));
    WD_TRY(wd_device_alloc((void **)&b->velocity, device, states, what, err));
    WD_TRY(wd_device_alloc((void **)&b->timestep, device, samples * sizeof(float), what, err));
    WD_TRY(wd_device_alloc(&b->text, device, samples * text_bytes(m), what, err));
    WD_TRY(wd_alloc((void **)&b->found, states, 1, what, err));
    WD_TRY(wd_alloc((void **)&b->level, samples, sizeof(float), what, err));
    return wd_alloc((void **)&b->rows, samples, text_bytes(m), what, err);
}

/* Velocities of states [first, first + count), which are numbered level by level. The student's
 * pass has the shape of a training batch: a smaller one is padded with what is in memory, and the
 * padding's velocities are not used. */
static void run_batch(batch *b, const wd_validation *v, int64_t first, int64_t count)
{
    const wd_stepper_options *m = stepper_of(v);
    const wd_validation_states *s = &v->states;
    wd_queue *queue = wd__stepper_queue(v->stepper);
    const size_t bytes = (size_t)(count * s->options.state_count) * sizeof(float);
    const float *latents = s->latents + first * s->options.state_count;
    for (int64_t i = 0; i < count && !is_dry(v); i++) {
        const int64_t level = (first + i) / s->trajectories;
        b->level[i] = s->timestep[level];
        m->text(m->text_context, b->rows + (size_t)i * text_bytes(m),
                wd_validation_prompt(s, (first + i) % s->trajectories), m->student_dtype);
    }
    wd_queue_copy_and_wait(queue, b->latents, latents, bytes);
    wd_queue_copy_and_wait(queue, b->timestep, b->level, (size_t)count * sizeof(float));
    wd_queue_copy_and_wait(queue, b->text, b->rows, (size_t)count * text_bytes(m));
    wd_pass_velocity(b->velocity, wd_network_pass(wd__stepper_student(v->stepper)),
                     &(wd_pass_inputs){b->latents, b->timestep, b->text});
    wd_queue_copy_and_wait(queue, b->found, b->velocity, bytes);
    wd_queue_wait(queue);
}

static void compare(wd_difference *level, const batch *b, const wd_validation *v, int64_t first,
                    int64_t count)
{
    const wd_validation_states *s = &v->states;
    const int64_t width = s->options.state_count;
    for (int64_t i = 0; i < count; i++)
        wd_difference_add(
            &level[(first + i) / s->trajectories],
            wd_difference_of(b->found + i * width, s->target + (first + i) * width, width));
}

/* *measured: whether it was not given up. */
static wd_status measure_levels(wd_difference *level, bool *measured, const wd_validation *v,
                                wd_err *err)
{
    wd_status status;
    batch b = {0};
    const wd_validation_options *o = &v->options;
    wd_device *device = wd_queue_device(wd__stepper_queue(v->stepper));
    const int64_t all = v->states.levels * v->states.trajectories, most = stepper_of(v)->batch;
    WD_TRY_OUT(open_batch(&b, v, device, err));
    *measured = true;
    for (int64_t first = 0; first < all && *measured; first += most) {
        const int64_t count = all - first < most ? all - first : most;
        run_batch(&b, v, first, count);
        if (!is_dry(v)) compare(level, &b, v, first, count);
        *measured = !(o->stop && o->stop(o->stop_context, false));
    }
out:
    close_batch(&b, device);
    return status;
}

wd_status wd__validation_measure(wd_validation_result *out, bool *measured, wd_validation *v,
                                 wd_err *err)
{
    wd_status status = WD_OK;
    wd_params *params = wd__stepper_params(v->stepper);
    wd_queue *queue = wd__stepper_queue(v->stepper);
    wd_difference level[WD_VALIDATION_LEVELS_MAX] = {{0}};
    *measured = false;
    wd_params_show(params, params->buffer[WD_PARAMS_EMA] ? WD_PARAMS_EMA : WD_PARAMS_P, queue);
    const double before = wd_queue_total(queue).flops;
    if (is_writer(v)) status = measure_levels(level, measured, v, err);
    v->flops = wd_queue_total(queue).flops - before;
    wd_params_show(params, WD_PARAMS_P, queue);
    if (status != WD_OK || !*measured) return status;
    *out = (wd_validation_result){.levels = v->states.levels,
                                  .error = wd_difference_mean_relative(level, v->states.levels)};
    for (int64_t k = 0; k < v->states.levels; k++) {
        out->sigma[k] = (double)v->states.sigma[k];
        out->by_level[k] = wd_difference_relative(level[k]);
    }
    return WD_OK;
}

/* ---- in the course of a run: the states' file ---- */

/* What of a run's facts decides the states. */
static const char *const of_states[] = {"guidance_scale", "guidance_scale_2", "height",
                                        "width",          "teacher_dtype",    "teacher_key",
                                        "teacher",        "text_encoder_key", "negative_prompt"};

/* The way that the teacher's trajectories go: those of its own sampler, or of chords. */
static json_t *way_of(const wd_validation_states_options *o)
{
    const wd_scheduler_config *c = &o->scheduler;
    const wd_trajectory_options *t = &o->trajectory;
    if (!t->student_steps)
        return json_pack("{s:i, s:i, s:I, s:f, s:I, s:b, s:b, s:b, s:I}", "levels",
                         WD_VALIDATION_LEVELS, "scheduler", (int)c->kind, "num_train_timesteps",
                         (json_int_t)c->num_train_timesteps, "shift", c->flow_shift, "order",
                         (json_int_t)c->solver_order, "bh1", c->bh1, "lower_order_final",
                         c->lower_order_final, "final_sigma_zero", c->final_sigma_zero,
                         "disable_corrector", (json_int_t)c->disable_corrector);
    json_t *sigma = json_array();
    for (int64_t k = 0; t->sigma[0] > 0 && k < t->steps; k++)
        json_array_append_new(sigma, json_real((double)t->sigma[k]));
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:o}", "steps", (json_int_t)t->steps,
                     "student_steps", (json_int_t)t->student_steps, "chords",
                     (json_int_t)wd_chords(t), "diversity_gain", t->diversity_gain, "shift",
                     t->flow_shift, "sigma", sigma);
}

/* Writes a key of all that decides the states, whatever student is trained, but for the machine:
 * velocities of another one differ in their last bits. */
static wd_status find_key(char out[WD_STORE_KEY_MAX], const wd_trainer *t, wd_err *err)
{
    json_t *facts;
    const wd_validation_states_options *o = &wd__validation_states_of(t->validation)->options;
    WD_TRY(wd_trainer_facts(&facts, t->options, err));
    json_t *key = json_pack("{s:I, s:I, s:s, s:o}", "seed", (json_int_t)o->trajectory.seed,
                            "prompts", (json_int_t)o->prompts, "prompts_key",
                            t->options->stepper.validation->prompts_key, "way", way_of(o));
    bool failed = !key;
    for (size_t i = 0; !failed && i < sizeof of_states / sizeof *of_states; i++)
        failed = json_object_set(key, of_states[i], json_object_get(facts, of_states[i])) != 0;
    char *text = failed ? NULL : json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS);
    if (text)
        snprintf(out, WD_STORE_KEY_MAX, "%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
    failed = !text;
    free(text); /* jansson's */
    json_decref(key);
    json_decref(facts);
    return failed ? wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the key of a validation") : WD_OK;
}

void wd__trainer_close_validation(wd_trainer *t)
{
    wd__validation_close(t->validation);
    t->validation = NULL;
}

/* Makes the states, or reads them. A stop that was requested meanwhile ends the run before its next
 * step. */
static wd_status prepare(wd_trainer *t, wd_err *err)
{
    wd_err why = {0};
    char name[64], path[WD_PATH_MAX];
    const char *folder = t->options->stepper.validation->folder;
    if (folder) {
        snprintf(name, sizeof name, "validation-%s.safetensors", t->states_key);
        WD_TRY(wd_path_join(path, folder, name, err));
    }
    const wd_status status =
        wd__validation_prepare(t->validation, folder ? path : NULL, t->states_key, &why);
    if (status == WD_OK) return WD_OK;
    wd__trainer_close_validation(t);
    if (status == WD_INTERRUPTED) return WD_OK;
    if (err) *err = why;
    return status;
}

/* ---- in the course of a run: the best student so far ---- */

/* Whether best/ may be of this run and its phase: what is in a folder that the run does not go on
 * from is of another run. */
static bool may_have_best(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return o->stepper.validation->keeps_best && t->step > t->phase.step && o->resume &&
           wd_path_is_inside(o->resume, t->checkpoints);
}

/* Why the earlier best student does not count; NULL: it does. */
static const char *why_not(const wd_trainer *t, const wd_validation_result *best)
{
    if (best->step > t->step) return "after the one from which this run goes on";
    if (best->step <= t->phase.step) return "of an earlier phase";
    if (strcmp(best->states, t->states_key))
        return "and its error is of other states, such as those of other prompts";
    return NULL;
}

/* The one that an earlier part of the run has kept. Rank 0 compares; the others hear from it. */
static wd_status find_best(wd_trainer *t, wd_err *err)
{
    wd_err why = {0};
    wd_validation_result best;
    if (!may_have_best(t) || !wd__trainer_writes(t)) return WD_OK;
    const wd_status found = wd_best_read(&best, t->options->output_dir, &why);
    if (found == WD_NOT_FOUND) return WD_OK;
    if (found != WD_OK) {
        if (err) *err = why;
        return found;
    }
    const char *reason = why_not(t, &best);
    if (reason) {
        wd_log(WD_LOG_WARNING, "best/ is of step %" PRId64 ", %s: the next validation replaces it",
               best.step, reason);
        return WD_OK;
    }
    t->best_step = best.step;
    t->best_error = best.error;
    return WD_OK;
}

static wd_status write_best(wd_trainer *t, wd_err *err)
{
    const wd_stepper *m = t->stepper;
    wd_export_options export = wd__trainer_export_of(t);
    export.best_step = t->step;
    export.best_error = t->validated.error;
    return wd_best_write(t->folder, wd__stepper_params(m), wd__stepper_options_of(m)->teacher,
                         &export, &t->validated, wd__stepper_queue(m), err);
}

/* Keeps the student where its error is the least so far. One that cannot be written, as for want of
 * space, is a warning: what is trained is not lost for it. All ranks. */
static void keep_best(wd_trainer *t, bool measured)
{
    wd_err why = {0};
    const double error = t->validated.error;
    const bool better = measured && isfinite(error) && !(error >= t->best_error);
    if (!wd__trainer_hear(t, better)) return;
    wd_params_collect(wd__stepper_params(t->stepper), wd__trainer_export_of(t).buffer,
                      wd__stepper_queue(t->stepper));
    const wd_status status = wd__trainer_writes(t) ? write_best(t, &why) : WD_OK;
    wd_params_release(wd__stepper_params(t->stepper), wd__stepper_queue(t->stepper));
    if (!wd__trainer_writes(t)) return;
    if (status != WD_OK) {
        wd_log(WD_LOG_WARNING, "%s; training goes on, and best/ stays as it was", why.message);
        return;
    }
    t->best_step = t->step;
    t->best_error = error;
}

/* ---- in the course of a run: when it is ---- */

wd_status wd__trainer_open_validation(wd_trainer *t, wd_err *err)
{
    const wd_validation_options *given = t->options->stepper.validation;
    wd__trainer_close_validation(t);
    t->best_step = 0;
    t->best_error = NAN;
    if (!given || !given->prompts) return WD_OK;
    wd_validation_options options = *given;
    options.stop = wd__trainer_gives_up;
    options.stop_context = t;
    wd__trainer_agree(t);
    if (t->stop) return WD_OK;
    WD_TRY(wd__validation_open(&t->validation, &options, t->stepper, err));
    WD_TRY(find_key(t->states_key, t, err));
    WD_TRY(find_best(t, err));
    wd__trainer_watch_other(t);
    return prepare(t, err);
}

/* The step's row has been written, where a checkpoint was due: a line of its own. */
static void write_late(wd_trainer *t)
{
    wd_err why;
    if (t->written_step < t->step) return;
    if (wd__metrics_write_validation(t->metrics, &t->validated, &why) != WD_OK)
        wd_log(WD_LOG_WARNING, "%s", why.message);
}

static void say(const wd_trainer *t)
{
    wd_log(WD_LOG_INFO, "step %" PRId64 ": validation error %.4g", t->step, t->validated.error);
}

wd_status wd__trainer_validate(wd_trainer *t, wd_err *err)
{
    bool measured;
    wd_validation_result result;
    if (!t->validation || t->validated_step == t->step) return WD_OK;
    t->validated_step = t->step;
    wd__trainer_watch_other(t);
    WD_TRY(wd__validation_measure(&result, &measured, t->validation, err));
    if (measured) {
        t->validated = result;
        t->validated.step = t->step;
        memcpy(t->validated.states, t->states_key, sizeof t->validated.states);
        t->progress.now.validation_error = result.error;
        say(t);
        write_late(t);
    }
    if (t->options->stepper.validation->keeps_best) keep_best(t, measured);
    return WD_OK;
}
