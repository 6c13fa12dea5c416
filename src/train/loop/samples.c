/* Sample sheets: see train/loop/samples.h. */
#include "train/loop/samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "dev/ops.h"
#include "io/file/file.h"
#include "io/picture/png.h"
#include "io/picture/sheet.h"
#include "model/sampling/painter.h"
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

/* Of all ranks one makes pictures; the others are there where it needs them. */
static bool is_writer(const wd_samples *s)
{
    const wd_comm *comm = wd__stepper_options_of(s->stepper)->comm;
    return !comm || comm->rank == 0;
}

/* ---- latents ---- */

/* The teacher or the student as a painter's model. */
typedef struct model {
    wd_samples *samples;
    bool student;
    int64_t count;        /* pictures that are drawn together */
    int64_t *prompt;      /* [batch] */
    float *host_timestep; /* [batch] teacher only */
    float *host_velocity; /* [batch, state]: of a teacher that ranks may share; else NULL */
    float *timestep;      /* [batch] device, student only */
    void *text;           /* [batch, S, text_dim] device, student only */
} model;

/* Asks before each step, and after the last one, whether the sheet is still wanted. */
static wd_status go_on(const model *m, wd_err *err)
{
    wd_samples *s = m->samples;
    const wd_samples_options *o = &s->options;
    s->given_up = o->stop && o->stop(o->stop_context, !m->student);
    return s->given_up ? wd_fail(err, WD_INTERRUPTED, "the samples were given up") : WD_OK;
}

static wd_status teacher_velocity(void *context, float *velocity, const float *latents,
                                  float timestep, wd_err *err)
{
    model *m = context;
    const wd_stepper *stepper = m->samples->stepper;
    WD_TRY(go_on(m, err));
    for (int64_t i = 0; i < m->count; i++) m->host_timestep[i] = timestep;
    const wd_window window = {.count = m->count,
                              .queue = wd__stepper_queue(stepper),
                              .latents = latents,
                              .velocity = velocity,
                              .timestep = m->host_timestep,
                              .prompt = m->prompt};
    wd_sweep *sweep = wd__stepper_sweep(stepper); /* none where all but the teacher is planned */
    return sweep ? wd_sweep_run_for_all(sweep, &window, m->host_velocity, err) : WD_OK;
}

/* The student's pass has the shape of a training batch: velocities of the painter's padding are
 * computed, too, and not used. */
static wd_status student_velocity(void *context, float *velocity, const float *latents,
                                  float timestep, wd_err *err)
{
    model *m = context;
    wd_stepper *stepper = m->samples->stepper;
    WD_TRY(go_on(m, err));
    wd_op_fill(wd__stepper_queue(stepper),
               &(wd_fill_args){.to = m->timestep,
                               .type = WD_F32,
                               .count = wd__stepper_options_of(stepper)->batch,
                               .value = timestep});
    wd_pass_velocity(velocity, wd_network_pass(wd__stepper_student(stepper)),
                     &(wd_pass_inputs){latents, m->timestep, m->text});
    return WD_OK;
}

static wd_status upload_text(model *m, wd_err *err)
{
    wd_stepper *stepper = m->samples->stepper;
    const wd_stepper_options *o = wd__stepper_options_of(stepper);
    size_t bytes =
        (size_t)(o->text_tokens * o->student.text_dim) * wd_dtype_bytes(o->student_dtype);
    char *host;
    WD_TRY(wd_alloc((void **)&host, (size_t)o->batch, bytes, "text of the samples", err));
    for (int64_t i = 0; i < m->count; i++)
        o->text(o->text_context, host + (size_t)i * bytes, m->prompt[i], o->student_dtype);
    wd_queue_copy_and_wait(wd__stepper_queue(stepper), m->text, host, (size_t)o->batch * bytes);
    wd_free(host);
    return WD_OK;
}

static wd_status model_open(model *m, int64_t batch, wd_err *err)
{
    const wd_samples *s = m->samples;
    const wd_stepper_options *o = wd__stepper_options_of(s->stepper);
    wd_device *device = wd_queue_device(wd__stepper_queue(s->stepper));
    const size_t n = (size_t)batch;
    const size_t text =
        (size_t)(o->text_tokens * o->student.text_dim) * wd_dtype_bytes(o->student_dtype);
    WD_TRY(wd_alloc((void **)&m->prompt, n, sizeof(int64_t), "samples", err));
    if (m->student) {
        WD_TRY(wd_device_alloc((void **)&m->timestep, device, n * sizeof(float), "samples", err));
        return wd_device_alloc(&m->text, device, n * text, "samples", err);
    }
    WD_TRY(wd_alloc((void **)&m->host_timestep, n, sizeof(float), "samples", err));
    if (wd_stepper_ranks(o) == 1) return WD_OK;
    return wd_alloc((void **)&m->host_velocity, n * (size_t)s->state, sizeof(float), "samples",
                    err);
}

static void model_close(model *m)
{
    wd_device *device = wd_queue_device(wd__stepper_queue(m->samples->stepper));
    wd_device_free(device, m->timestep);
    wd_device_free(device, m->text);
    wd_free(m->host_timestep);
    wd_free(m->host_velocity);
    wd_free(m->prompt);
}

/* How many pictures are drawn together: as many as the student's pass has room for, or the
 * teacher's sweep, which may be less than the window of all ranks. A plan without a sweep takes the
 * window. */
static int64_t batch_of(const wd_stepper *stepper, bool student)
{
    const wd_stepper_options *o = wd__stepper_options_of(stepper);
    const wd_sweep *sweep = wd__stepper_sweep(stepper);
    if (student) return o->batch;
    return sweep ? wd_sweep_options_of(sweep)->window_max : o->window;
}

/* latents [count, state] (host, =) of all pictures, from their noise. */
static wd_status draw_latents(wd_samples *s, float *latents, bool student,
                              const wd_schedule *schedule, wd_err *err)
{
    wd_status status = WD_OK;
    const wd_stepper_options *o = wd__stepper_options_of(s->stepper);
    model m = {.samples = s, .student = student};
    wd_painter painter = {.queue = wd__stepper_queue(s->stepper),
                          .schedule = schedule,
                          .velocity = student ? student_velocity : teacher_velocity,
                          .context = &m,
                          .model_dtype = student ? o->student_dtype
                                                 : wd_teacher_compute_dtype(o->teacher_dtype),
                          .each = s->state,
                          .pictures = s->options.count,
                          .batch = batch_of(s->stepper, student),
                          .padded = student};
    if (is_writer(s))
        painter.task = student ? "drawing the student's samples" : "drawing the teacher's samples";
    memcpy(latents, s->noise, (size_t)(s->options.count * s->state) * sizeof *latents);
    WD_TRY_OUT(model_open(&m, painter.batch, err));
    for (int64_t first = 0; first < s->options.count; first += m.count) {
        const int64_t left = s->options.count - first;
        m.count = left < painter.batch ? left : painter.batch;
        for (int64_t i = 0; i < m.count; i++) m.prompt[i] = s->options.text_first + first + i;
        if (student) WD_TRY_OUT(upload_text(&m, err));
        WD_TRY_OUT(wd_painter_run(&painter, latents + first * s->state, NULL, first, m.count, err));
    }
    status = go_on(&m, err); /* decoding may take long */
out:
    model_close(&m);
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
    WD_TRY_OUT(draw_latents(s, latents, student, &schedule, err));
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
