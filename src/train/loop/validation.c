/* See train/loop/validation.h. */
#include "train/loop/validation.h"

#include <inttypes.h>
#include <string.h>

#include "core/difference.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/progress.h"
#include "io/file/file.h"

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
