/* `eval`: how near a student comes to its teacher.
 *
 * Data flow: the same prompts and noise -> the teacher paints, and its states and velocities are
 * kept -> the student paints, and is asked for its velocities at the teacher's states -> both are
 * decoded -> differences. The velocity error tells how well each noise level was learnt; latents
 * and pictures tell what it adds up to. Loading is not timed. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/clock.h"
#include "api/eval_report.h"
#include "api/gallery.h"
#include "api/json_text.h"
#include "api/painter.h"
#include "api/run.h"
#include "core/log.h"
#include "core/memory.h"
#include "io/prompts.h"
#include "io/writable.h"
#include "teacher/residency_kinds.h"
#include "wan/picture.h"

enum { TEACHER, STUDENT, SIDES };

typedef struct job {
    const wd_eval_options *options;
    wd_run run;
    wd_prompts prompts;
    json_t *trained;             /* run.json of the student; NULL: there is none */
    const char *negative_prompt; /* NULL: "" */
    int64_t text_tokens;
    int64_t count, height, width, each; /* pictures; latents' size and elements */
    wd_dtype dtype;
    wd_pipeline pipeline[SIDES];
    wd_prompt_embeds embeds;
    float *latents[SIDES];        /* [count, each] final */
    float *image[SIDES];          /* [count, 3, H s, W s] in [0, 1] */
    float **states, **velocities; /* the teacher's: [steps + 1], [steps], each [count, each] */
    wd_schedule schedule;         /* the teacher's */
    wd_eval_report report;
} job;

/* ---- what is compared ---- */

static wd_status disagree(wd_err *err, const char *what, int64_t teacher, int64_t student)
{
    return wd_fail(err, WD_MISMATCH,
                   "teacher and student differ in %s: %" PRId64 " and %" PRId64
                   "; expected a student of this teacher",
                   what, teacher, student);
}

static wd_status open_pipelines(job *j, wd_err *err)
{
    const char *const name[SIDES] = {j->options->teacher, j->options->student};
    for (int s = 0; s < SIDES; s++) {
        WD_TRY(wd_pipeline_open(&j->pipeline[s], name[s], err));
        WD_TRY(wd_painter_check_model(&j->pipeline[s], err));
    }
    WD_TRY(wd_pipeline_check_weights(&j->pipeline[TEACHER], WD_COMPONENT_TEXT_ENCODER, err));
    const wd_pipeline *t = &j->pipeline[TEACHER], *s = &j->pipeline[STUDENT];
    if (t->dit.in_channels != s->dit.in_channels)
        return disagree(err, "latent channels", t->dit.in_channels, s->dit.in_channels);
    if (t->dit.text_dim != s->dit.text_dim)
        return disagree(err, "text width", t->dit.text_dim, s->dit.text_dim);
    if (wd_pipeline_vae_scale(t) != wd_pipeline_vae_scale(s))
        return disagree(err, "pixels per latent", wd_pipeline_vae_scale(t),
                        wd_pipeline_vae_scale(s));
    return WD_OK;
}

/* How the teacher was asked when the student learnt from it: run.json in its folder says it, the
 * options win over it. */
static wd_status choose_teacher(job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    double *scale = j->report.teacher.guidance_scale;
    char path[WD_PATH_MAX];
    memcpy(scale, j->pipeline[TEACHER].guidance_scale, 2 * sizeof *scale);
    WD_TRY(wd_path_join(path, j->pipeline[STUDENT].path, "run.json", err));
    if (wd_path_exists(path))
        WD_TRY(wd_json_load(&j->trained, path, err));
    else if (isnan(o->guidance_scale))
        wd_log(WD_LOG_WARNING,
               "%s is not there: the teacher is guided with %g; say --guidance_scale", path,
               scale[0]);
    const wd_json_reader r = {.object = json_object_get(j->trained, "resolved"), .where = path};
    if (json_is_object(r.object)) {
        WD_TRY(wd_json_float(&scale[0], r, "guidance_scale", WD_JSON_OPTIONAL, err));
        scale[1] = scale[0];
        WD_TRY(wd_json_float(&scale[1], r, "guidance_scale_2", WD_JSON_OPTIONAL, err));
        WD_TRY(wd_json_text(&j->negative_prompt, r, "negative_prompt", WD_JSON_OPTIONAL, err));
        WD_TRY(
            wd_json_int(&j->text_tokens, r, "max_sequence_length", 0, 4096, WD_JSON_OPTIONAL, err));
    }
    if (!isnan(o->guidance_scale)) scale[0] = scale[1] = o->guidance_scale;
    if (!isnan(o->guidance_scale_2)) scale[1] = o->guidance_scale_2;
    if (o->negative_prompt) j->negative_prompt = o->negative_prompt;
    if (o->max_sequence_length) j->text_tokens = o->max_sequence_length;
    if (!j->text_tokens) j->text_tokens = j->pipeline[TEACHER].text_tokens;
    return WD_OK;
}

static wd_status choose(job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    const wd_pipeline *student = &j->pipeline[STUDENT];
    if (o->out) WD_TRY(wd_folder_check_writable(o->out, "--out", err));
    WD_TRY(open_pipelines(j, err));
    WD_TRY(wd_prompts_open(&j->prompts, o->prompts, err));
    j->count = o->count && o->count < j->prompts.count ? o->count : j->prompts.count;
    wd_dtype_parse(&j->dtype, o->dtype);
    const int64_t height = o->height ? o->height : student->default_height;
    const int64_t width = o->width ? o->width : student->default_width;
    const int64_t unit = wd_pipeline_size_multiple(student);
    if (height % unit || width % unit)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--height, --width: expected multiples of %" PRId64 ", found %" PRId64
                       " x %" PRId64,
                       unit, height, width);
    j->height = height / wd_pipeline_vae_scale(student);
    j->width = width / wd_pipeline_vae_scale(student);
    j->each = student->dit.in_channels * j->height * j->width;
    WD_TRY(choose_teacher(j, err));
    j->report.student.guidance_scale[0] = j->report.student.guidance_scale[1] = 1;
    j->report.pictures = j->count;
    j->report.steps = o->steps;
    j->report.height = height;
    j->report.width = width;
    return WD_OK;
}

static wd_status arrays(float ***out, int64_t n, size_t elements, wd_err *err)
{
    WD_TRY(wd_alloc((void **)out, (size_t)n, sizeof **out, "trace", err));
    for (int64_t i = 0; i < n; i++)
        WD_TRY(wd_alloc((void **)&(*out)[i], elements, sizeof(float), "trace", err));
    return WD_OK;
}

static wd_status allocate(job *j, wd_err *err)
{
    const size_t all = (size_t)(j->count * j->each);
    const size_t pixels = (size_t)(j->count * 3 * j->report.height * j->report.width);
    const int64_t steps = j->options->steps;
    for (int s = 0; s < SIDES; s++) {
        WD_TRY(wd_alloc((void **)&j->latents[s], all, sizeof(float), "latents", err));
        WD_TRY(wd_alloc((void **)&j->image[s], pixels, sizeof(float), "pictures", err));
        wd_painter_noise(j->latents[s], j->options->seed, 0, j->count, j->each);
    }
    WD_TRY(arrays(&j->states, steps + 1, all, err));
    WD_TRY(arrays(&j->velocities, steps, all, err));
    WD_TRY(
        wd_alloc((void **)&j->report.velocity_error, (size_t)steps, sizeof(double), "errors", err));
    return wd_schedule_open(&j->schedule, &j->pipeline[TEACHER].scheduler, steps, err);
}

/* ---- painting ---- */

static wd_status open_painter(wd_painter **out, const job *j, int side, wd_err *err)
{
    const wd_eval_side *s = side == TEACHER ? &j->report.teacher : &j->report.student;
    const wd_painter_options options = {
        .pipeline = &j->pipeline[side],
        .embeds = &j->embeds,
        .dtype = j->dtype,
        .steps = j->options->steps,
        .guidance_scale = {s->guidance_scale[0], s->guidance_scale[1]},
        .height = j->height,
        .width = j->width,
        .batch_max = j->options->batch_size,
    };
    return wd_painter_open(out, &options, j->run.queue, err);
}

static int64_t group_size(const wd_painter *painter, const job *j, int64_t first)
{
    const int64_t left = j->count - first, batch = wd_painter_batch(painter);
    return left < batch ? left : batch;
}

/* Paints all pictures of a side; the teacher's way is kept. */
static wd_status paint(job *j, wd_painter *painter, int side, wd_err *err)
{
    wd_eval_side *s = side == TEACHER ? &j->report.teacher : &j->report.student;
    float *states[WD_SCHEDULE_STEPS_MAX + 1], *velocities[WD_SCHEDULE_STEPS_MAX];
    const wd_painter_trace trace = {.latents = states, .velocity = velocities};
    const double begun = wd_clock_s();
    for (int64_t i = 0, n; i < j->count; i += n) {
        const int64_t at = i * j->each;
        n = group_size(painter, j, i);
        for (int64_t k = 0; k < j->options->steps; k++) velocities[k] = j->velocities[k] + at;
        for (int64_t k = 0; k <= j->options->steps; k++) states[k] = j->states[k] + at;
        WD_TRY(wd_painter_run(painter, j->latents[side] + at, side == TEACHER ? &trace : NULL, i, n,
                              err));
    }
    s->paint_s = (wd_clock_s() - begun) / (double)j->count;
    return WD_OK;
}

static double squares(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sum;
}

/* The student's velocities at the teacher's states. */
static wd_status compare_velocities(job *j, wd_painter *painter, wd_err *err)
{
    float *velocity;
    wd_status status = WD_OK;
    WD_TRY(wd_alloc((void **)&velocity, (size_t)(j->count * j->each), sizeof *velocity,
                    "velocities", err));
    for (int64_t k = 0; k < j->options->steps; k++) {
        for (int64_t i = 0, n; i < j->count; i += n) {
            const int64_t at = i * j->each;
            n = group_size(painter, j, i);
            WD_TRY_OUT(wd_painter_velocity(painter, velocity + at, j->states[k] + at,
                                           j->schedule.timestep[k], i, n, err));
        }
        const int64_t all = j->count * j->each;
        const double e =
            sqrt(squares(velocity, j->velocities[k], all) / squares(j->velocities[k], NULL, all));
        j->report.velocity_error[k] = e;
        j->report.velocity_error_mean += e / (double)j->options->steps;
    }
out:
    wd_free(velocity);
    return status;
}

static wd_status run_side(job *j, int side, wd_err *err)
{
    wd_eval_side *s = side == TEACHER ? &j->report.teacher : &j->report.student;
    const wd_pipeline *pipeline = &j->pipeline[side];
    wd_painter *painter = NULL;
    wd_tensor_table table;
    WD_TRY(wd_dit_table_open(&table, &pipeline->dit, err));
    for (int64_t i = 0; i < table.count; i++) {
        wd_tensor t = {.ndim = table.spec[i].ndim};
        memcpy(t.dim, table.spec[i].dim, sizeof t.dim);
        s->weights += wd_tensor_count(&t);
    }
    wd_dit_table_close(&table);
    s->experts = wd_teacher_experts(pipeline);
    WD_TRY(open_painter(&painter, j, side, err));
    wd_status status = paint(j, painter, side, err);
    if (status == WD_OK && side == STUDENT) status = compare_velocities(j, painter, err);
    wd_painter_close(painter);
    return status;
}

/* ---- pictures ---- */

/* Correlation of two pictures of n values, each less its mean. */
static double correlation(const float *a, const float *b, int64_t n)
{
    double sa = 0, sb = 0, aa = 0, bb = 0, ab = 0;
    for (int64_t i = 0; i < n; i++) sa += (double)a[i], sb += (double)b[i];
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)a[i] - sa / (double)n, y = (double)b[i] - sb / (double)n;
        aa += x * x, bb += y * y, ab += x * y;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static wd_status compare_pictures(job *j, wd_err *err)
{
    const int64_t pixels = 3 * j->report.height * j->report.width, all = j->count * j->each;
    j->report.latents_error = sqrt(squares(j->latents[STUDENT], j->latents[TEACHER], all) /
                                   squares(j->latents[TEACHER], NULL, all));
    for (int s = 0; s < SIDES; s++) {
        wd_eval_side *side = s == TEACHER ? &j->report.teacher : &j->report.student;
        const double begun = wd_clock_s();
        WD_TRY(wd_pictures_decode(j->image[s], j->latents[s], j->count, j->height, j->width,
                                  &j->pipeline[s], j->run.queue, err));
        side->decode_s = (wd_clock_s() - begun) / (double)j->count;
        WD_TRY(wd_pictures_check(j->image[s], 0, j->count, pixels, "pixels", j->pipeline[s].path,
                                 err));
    }
    const double mse = squares(j->image[STUDENT], j->image[TEACHER], j->count * pixels) /
                       (double)(j->count * pixels);
    j->report.psnr_db = -10 * log10(mse);
    for (int64_t i = 0; i < j->count; i++)
        j->report.correlation +=
            correlation(j->image[STUDENT] + i * pixels, j->image[TEACHER] + i * pixels, pixels) /
            (double)j->count;
    return WD_OK;
}

static wd_status write_files(const job *j, wd_err *err)
{
    static const char *const titles[] = {"teacher", "student"};
    char path[WD_PATH_MAX];
    json_t *json;
    WD_TRY(wd_folder_make(j->options->out, err));
    WD_TRY(wd_path_join(path, j->options->out, "eval.json", err));
    WD_TRY(wd_eval_json(&json, &j->report, err));
    const wd_status status = wd_json_save(json, path, err);
    json_decref(json);
    if (status != WD_OK) return status;
    WD_TRY(wd_path_join(path, j->options->out, "side-by-side.png", err));
    return wd_gallery_write_pair(path, j->image[TEACHER], j->image[STUDENT], j->count,
                                 j->report.height, j->report.width, titles,
                                 (const char *const *)j->prompts.text, err);
}

static wd_status run(char **text, job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    WD_TRY(choose(j, err));
    const wd_pipeline *teacher = &j->pipeline[TEACHER];
    WD_TRY(allocate(j, err));
    WD_TRY(wd_prompt_embeds_open(&j->embeds, NULL, teacher, (const char *const *)j->prompts.text,
                                 j->count, j->negative_prompt, j->text_tokens, j->dtype, err));
    WD_TRY(wd_text_cache_encode(j->embeds.cache, j->run.queue, err));
    for (int s = 0; s < SIDES; s++) WD_TRY(run_side(j, s, err));
    WD_TRY(compare_pictures(j, err));
    j->report.sigma = j->schedule.sigma;
    j->report.timestep = j->schedule.timestep;
    if (o->out) WD_TRY(write_files(j, err));
    if (!o->json) return wd_eval_text(text, &j->report, err);
    json_t *json;
    WD_TRY(wd_eval_json(&json, &j->report, err));
    const wd_status status = wd_json_text_of(text, json, err);
    json_decref(json);
    return status;
}

wd_status wd_eval(char **text, const wd_eval_options *options, wd_err *err)
{
    job j = {.options = options};
    WD_TRY(wd_run_open(&j.run, WD_JOB_EVAL, options, options->num_threads, err));
    const wd_status status = run(text, &j, err);
    for (int64_t i = 0; j.states && i <= options->steps; i++) wd_free(j.states[i]);
    for (int64_t i = 0; j.velocities && i < options->steps; i++) wd_free(j.velocities[i]);
    for (int s = 0; s < SIDES; s++) {
        wd_free(j.latents[s]);
        wd_free(j.image[s]);
    }
    wd_free(j.states);
    wd_free(j.velocities);
    wd_free(j.report.velocity_error);
    wd_schedule_close(&j.schedule);
    wd_prompt_embeds_close(&j.embeds);
    wd_prompts_close(&j.prompts);
    json_decref(j.trained);
    wd_run_close(&j.run);
    return status;
}
