/* Sample sheets: see train/loop/samples.h. */
#include "train/loop/samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/progress.h"
#include "dev/ops.h"
#include "io/file/file.h"
#include "io/picture/png.h"
#include "io/picture/sheet.h"
#include "model/sampling/sampler.h"
#include "model/vae/vae.h"
#include "train/loop/stepper.h"

struct wd_samples {
    wd_samples_options options;
    wd_stepper *stepper;
    int64_t state;           /* elements of one picture's latents */
    int64_t picture_bytes;   /* of one RGB picture */
    float *noise;            /* [count, state] host */
    uint8_t *teacher;        /* [count, H, W, 3], NULL until drawn */
    wd_samples_work work;    /* of the last sheet */
    bool given_up;           /* the sheet that was begun */
    char sheet[WD_PATH_MAX]; /* the file of the last one; "": it was not written */
    bool warned;             /* that a sheet could not be written */
};

wd_status wd__samples_open(wd_samples **out, const wd_samples_options *options, wd_stepper *stepper,
                           wd_err *err)
{
    wd_samples *s;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "samples", err));
    s->options = *options;
    s->stepper = stepper;
    s->state = wd__stepper_state_count(wd__stepper_options_of(stepper));
    const wd_stepper_options *m = wd__stepper_options_of(stepper);
    int64_t scale = wd_pipeline_vae_scale(m->teacher);
    s->picture_bytes = 3 * m->latent_height * scale * m->latent_width * scale;
    wd_status status = wd_alloc((void **)&s->noise, (size_t)(options->count * s->state),
                                sizeof(float), "noise of the samples", err);
    if (status != WD_OK) {
        wd__samples_close(s);
        return status;
    }
    wd_sampler_noise(s->noise, options->seed, 0, options->count, s->state);
    *out = s;
    return WD_OK;
}

void wd__samples_close(wd_samples *samples)
{
    if (!samples) return;
    wd_free(samples->noise);
    wd_free(samples->teacher);
    wd_free(samples);
}

wd_samples_work wd__samples_last_work(const wd_samples *samples)
{
    return samples->work;
}

/* With stored targets sheets have the student's pictures alone. */
static bool has_teacher(const wd_samples *s)
{
    return !wd__stepper_options_of(s->stepper)->stored;
}

/* ---- velocities of a group of pictures ---- */

/* A group of at most `count` pictures that go through a sampler together. */
typedef struct group {
    wd_samples *samples;
    bool student;
    int64_t first, count;
    int64_t number;            /* groups before it */
    wd_progress_task progress; /* of the sampler's steps over all groups */
    float *host_timestep;      /* [window or batch] */
    float *host_velocity;      /* [window, state]: of a teacher that ranks may share; else NULL */
    int64_t *prompt;
    float *timestep; /* device, student only */
    void *text;      /* device, student only: [batch, S, text_dim] */
} group;

static wd_status teacher_velocity(void *context, float *velocity, const float *latents,
                                  float timestep, wd_err *err)
{
    group *g = context;
    const wd_stepper *stepper = g->samples->stepper;
    for (int64_t i = 0; i < g->count; i++) g->host_timestep[i] = timestep;
    const wd_window window = {.count = g->count,
                              .queue = wd__stepper_queue(stepper),
                              .latents = latents,
                              .velocity = velocity,
                              .timestep = g->host_timestep,
                              .prompt = g->prompt};
    wd_sweep *sweep = wd__stepper_sweep(stepper); /* none where all but the teacher is planned */
    return sweep ? wd_sweep_run_for_all(sweep, &window, g->host_velocity, err) : WD_OK;
}

/* The student's pass has the shape of a training batch: a smaller group is padded with what is in
 * memory, and the padding's velocities are not used. */
static wd_status student_velocity(void *context, float *velocity, const float *latents,
                                  float timestep, wd_err *err)
{
    (void)err;
    group *g = context;
    wd_stepper *m = g->samples->stepper;
    wd_op_fill(wd__stepper_queue(m), &(wd_fill_args){.to = g->timestep,
                                                     .type = WD_F32,
                                                     .count = wd__stepper_options_of(m)->batch,
                                                     .value = timestep});
    wd_pass_velocity(velocity, wd_network_pass(wd__stepper_student(m)),
                     &(wd_pass_inputs){latents, g->timestep, g->text});
    return WD_OK;
}

static wd_status upload_text(group *g, wd_err *err)
{
    wd_stepper *m = g->samples->stepper;
    const wd_stepper_options *o = wd__stepper_options_of(m);
    size_t bytes =
        (size_t)(o->text_tokens * o->student.text_dim) * wd_dtype_bytes(o->student_dtype);
    char *host;
    WD_TRY(wd_alloc((void **)&host, (size_t)o->batch, bytes, "text of the samples", err));
    for (int64_t i = 0; i < g->count; i++)
        o->text(o->text_context, host + (size_t)i * bytes, g->prompt[i], o->student_dtype);
    wd_queue_copy_and_wait(wd__stepper_queue(m), g->text, host, (size_t)o->batch * bytes);
    wd_free(host);
    return WD_OK;
}

/* Of all ranks one makes pictures; the others are there where it needs them. */
static bool is_writer(const wd_samples *s)
{
    const wd_comm *comm = wd__stepper_options_of(s->stepper)->comm;
    return !comm || comm->rank == 0;
}

/* After each step of the sampler: says how far it is, and stops where that is wanted. */
static wd_status look(void *context, int64_t step, const float *latents, wd_err *err)
{
    group *g = context;
    wd_samples *s = g->samples;
    const wd_samples_options *o = &s->options;
    (void)latents;
    wd_progress_at(&g->progress, g->number * o->steps + step);
    s->given_up = o->stop && o->stop(o->stop_context, !g->student);
    return s->given_up ? wd_fail(err, WD_INTERRUPTED, "the samples were given up") : WD_OK;
}

/* latents [count, state] (host, =) of the group, from its noise. */
static wd_status sample_group(group *g, float *latents, const wd_schedule *schedule, wd_dtype dtype,
                              int64_t rows, wd_err *err)
{
    wd_status status;
    wd_samples *s = g->samples;
    wd_queue *queue = wd__stepper_queue(s->stepper);
    float *x = NULL;
    size_t bytes = (size_t)(g->count * s->state) * sizeof(float);
    WD_TRY_OUT(wd_device_alloc((void **)&x, wd_queue_device(queue),
                               (size_t)(rows * s->state) * sizeof(float), "samples", err));
    wd_queue_copy_and_wait(queue, x, s->noise + g->first * s->state, bytes);
    WD_TRY_OUT(wd_sampler_run(x, rows * s->state, schedule, dtype,
                              g->student ? student_velocity : teacher_velocity, g, look, g, queue,
                              err));
    wd_queue_copy_and_wait(queue, latents, x, bytes);
out:
    wd_device_free(wd_queue_device(queue), x);
    return status;
}

/* All pictures' latents, group by group. The student's groups are padded to its batch. */
static wd_status sample_all(wd_samples *s, float *latents, bool student,
                            const wd_schedule *schedule, wd_err *err)
{
    wd_status status = WD_OK;
    wd_stepper *m = s->stepper;
    const wd_stepper_options *o = wd__stepper_options_of(m);
    wd_device *device = wd_queue_device(wd__stepper_queue(m));
    /* A rank's sweep may have room for less than the window of all ranks. */
    int64_t group_max = student ? o->batch
                        : wd__stepper_sweep(m)
                            ? wd_sweep_options_of(wd__stepper_sweep(m))->window_max
                            : o->window;
    wd_dtype dtype = student ? o->student_dtype : wd_teacher_compute_dtype(o->teacher_dtype);
    size_t text = (size_t)(o->text_tokens * o->student.text_dim) * wd_dtype_bytes(dtype);
    group g = {.samples = s, .student = student};
    WD_TRY_OUT(
        wd_alloc((void **)&g.host_timestep, (size_t)group_max, sizeof(float), "samples", err));
    WD_TRY_OUT(wd_alloc((void **)&g.prompt, (size_t)group_max, sizeof(int64_t), "samples", err));
    if (!student && wd_stepper_ranks(o) > 1)
        WD_TRY_OUT(wd_alloc((void **)&g.host_velocity, (size_t)(group_max * s->state),
                            sizeof(float), "samples", err));
    if (student) {
        size_t batch = (size_t)group_max;
        WD_TRY_OUT(
            wd_device_alloc((void **)&g.timestep, device, batch * sizeof(float), "samples", err));
        WD_TRY_OUT(wd_device_alloc(&g.text, device, batch * text, "samples", err));
    }
    if (is_writer(s) && !wd_device_is_dry(device))
        g.progress = wd_progress_begin(
            student ? "drawing the student's samples" : "drawing the teacher's samples", "step", 0,
            (s->options.count + group_max - 1) / group_max * schedule->steps);
    for (g.first = 0; g.first < s->options.count; g.first += g.count) {
        int64_t left = s->options.count - g.first;
        g.count = left < group_max ? left : group_max;
        g.number = g.first / group_max;
        for (int64_t i = 0; i < g.count; i++) g.prompt[i] = s->options.text_first + g.first + i;
        if (student) WD_TRY_OUT(upload_text(&g, err));
        WD_TRY_OUT(sample_group(&g, latents + g.first * s->state, schedule, dtype,
                                student ? group_max : g.count, err));
    }
out:
    wd_device_free(device, g.timestep);
    wd_device_free(device, g.text);
    wd_free(g.host_timestep);
    wd_free(g.host_velocity);
    wd_free(g.prompt);
    return status;
}

/* ---- pictures ---- */

/* rgb [count, H, W, 3] (=) by teacher or student. */
static wd_status draw(wd_samples *s, uint8_t *rgb, bool student, wd_err *err)
{
    wd_status status;
    const wd_stepper_options *m = wd__stepper_options_of(s->stepper);
    wd_queue *decoder = s->options.decoder ? s->options.decoder : wd__stepper_queue(s->stepper);
    int64_t count = s->options.count, pixels = s->picture_bytes / 3;
    int64_t scale = wd_pipeline_vae_scale(m->teacher);
    float *latents = NULL, *image = NULL;
    double before;
    wd_schedule schedule = {0};
    wd_scheduler_config config = m->teacher->scheduler;
    const int64_t few = student ? m->trajectory.student_steps : 0;
    if (student) config.flow_shift = s->options.student_flow_shift;
    if (few) config = wd_scheduler_of_few_steps(few, s->options.student_flow_shift);
    WD_TRY_OUT(wd_schedule_open(&schedule, &config, few ? few : s->options.steps, err));
    WD_TRY_OUT(
        wd_alloc((void **)&latents, (size_t)(count * s->state), sizeof(float), "samples", err));
    WD_TRY_OUT(wd_alloc((void **)&image, (size_t)(count * s->picture_bytes), sizeof(float),
                        "samples", err));
    before = wd_queue_total(wd__stepper_queue(s->stepper)).flops;
    WD_TRY_OUT(sample_all(s, latents, student, &schedule, err));
    if (student) s->work.student = wd_queue_total(wd__stepper_queue(s->stepper)).flops - before;
    if (!is_writer(s)) goto out;
    before = wd_queue_total(decoder).flops;
    WD_TRY_OUT(wd_pictures_decode(image, latents, count, m->latent_height, m->latent_width,
                                  m->teacher, decoder, err));
    s->work.decoding = wd_queue_total(decoder).flops - before;
    for (int64_t i = 0; i < count; i++)
        wd_png_from_unit(rgb + i * s->picture_bytes, image + i * 3 * pixels,
                         m->latent_height * scale, m->latent_width * scale);
out:
    wd_schedule_close(&schedule);
    wd_free(latents);
    wd_free(image);
    return status;
}

static wd_status write_sheet(wd_samples *s, const uint8_t *student, int64_t step, wd_err *err)
{
    wd_status status;
    const wd_stepper_options *m = wd__stepper_options_of(s->stepper);
    int64_t count = s->options.count, scale = wd_pipeline_vae_scale(m->teacher);
    const uint8_t **pictures = NULL;
    const char **labels = NULL;
    wd_image sheet = {0};
    char path[WD_PATH_MAX], name[64];
    const char *const names[] = {"teacher", "student"}, *const *rows = names + !has_teacher(s);
    const int64_t above = has_teacher(s) ? count : 0; /* pictures above the student's */
    WD_TRY_OUT(wd_alloc((void **)&pictures, (size_t)(2 * count), sizeof *pictures, "a sheet", err));
    WD_TRY_OUT(wd_alloc((void **)&labels, (size_t)(2 * count), sizeof *labels, "a sheet", err));
    for (int64_t i = 0; i < count; i++) {
        if (above) pictures[i] = s->teacher + i * s->picture_bytes;
        pictures[above + i] = student + i * s->picture_bytes;
        labels[above + i] = s->options.prompt[i];
    }
    const wd_sheet layout = {.rows = above ? 2 : 1,
                             .columns = count,
                             .height = m->latent_height * scale,
                             .width = m->latent_width * scale,
                             .pictures = pictures,
                             .labels = labels,
                             .row_titles = rows};
    WD_TRY_OUT(wd_sheet_draw(&sheet, &layout, err));
    if (wd_device_is_dry(wd_queue_device(wd__stepper_queue(s->stepper)))) goto out;
    snprintf(name, sizeof name, "step-%08" PRId64 ".png", step);
    WD_TRY_OUT(wd_folder_make(s->options.folder, err));
    WD_TRY_OUT(wd_path_join(path, s->options.folder, name, err));
    WD_TRY_OUT(wd_png_write(path, sheet.rgb, sheet.height, sheet.width, err));
    memcpy(s->sheet, path, sizeof path);
out:
    wd_free(pictures);
    wd_free(labels);
    wd_image_close(&sheet);
    return status;
}

/* Writes the sheet. If the disk does not take it this warns, once, and training goes on. */
static wd_status write_or_warn(wd_samples *s, const uint8_t *student, int64_t step, wd_err *err)
{
    wd_err why = {0};
    const wd_status status = write_sheet(s, student, step, &why);
    if (status != WD_IO) {
        if (status != WD_OK && err) *err = why;
        return status;
    }
    if (!s->warned)
        wd_log(WD_LOG_WARNING, "%s; training goes on without this sheet of samples", why.message);
    s->warned = true;
    return WD_OK;
}

wd_status wd__samples_write(wd_samples *s, int64_t step, wd_err *err)
{
    wd_status status = WD_OK;
    wd_params *params = wd__stepper_params(s->stepper);
    size_t bytes = (size_t)(s->options.count * s->picture_bytes);
    uint8_t *student = NULL, *teacher = NULL;
    s->given_up = false;
    s->sheet[0] = 0;
    wd_params_show(params, params->buffer[WD_PARAMS_EMA] ? WD_PARAMS_EMA : WD_PARAMS_P,
                   wd__stepper_queue(s->stepper));
    if (!s->teacher && has_teacher(s)) {
        WD_TRY_OUT(wd_alloc((void **)&teacher, bytes, 1, "pictures of the teacher", err));
        WD_TRY_OUT(draw(s, teacher, false, err));
        s->teacher = teacher;
        teacher = NULL;
    }
    if (!is_writer(s)) goto out;
    WD_TRY_OUT(wd_alloc((void **)&student, bytes, 1, "pictures of the student", err));
    WD_TRY_OUT(draw(s, student, true, err));
    WD_TRY_OUT(write_or_warn(s, student, step, err));
out:
    wd_params_show(params, WD_PARAMS_P, wd__stepper_queue(s->stepper));
    wd_free(student);
    wd_free(teacher);
    return s->given_up ? WD_OK : status;
}

bool wd__samples_last_sheet(char out[WD_PATH_MAX], const wd_samples *samples)
{
    memcpy(out, samples->sheet, sizeof samples->sheet);
    return *out != 0;
}
