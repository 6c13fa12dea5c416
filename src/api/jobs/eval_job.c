/* The set-up of `eval`: see api/jobs/eval_job.h. */
#include "api/jobs/eval_job.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/options/options.h"
#include "api/setup/dtypes.h"
#include "core/log.h"
#include "io/file/writable.h"

static wd_status disagree(wd_err *err, const char *what, int64_t teacher, int64_t student)
{
    return wd_fail(err, WD_MISMATCH,
                   "teacher and student differ in %s: %" PRId64 " and %" PRId64
                   "; expected a student of this teacher",
                   what, teacher, student);
}

/* The student is a pipeline of its own, or the teacher, quantised. */
static wd_status check_student(const wd_eval_options *o, wd_err *err)
{
    if ((o->student != NULL) != (o->quantisation != NULL)) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "eval compares the teacher with a student (--student PATH) or with itself, "
                   "quantised (--quantisation); give one of them, found %s",
                   o->student ? "both" : "none");
}

static wd_status open_pipelines(wd_eval_job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    wd_pipeline_parts parts = WD_PARTS_OF(o);
    WD_TRY(check_student(o, err));
    if (o->student) WD_TRY(wd_pipeline_open(&j->pipeline[STUDENT], o->student, err));
    j->pipeline[STUDENT].ignores_unknown = o->ignore_unknown_tensors;
    if (o->student && !o->teacher && !o->tokenizer)
        parts.part[WD_COMPONENT_TOKENIZER] = j->pipeline[STUDENT].path;
    WD_TRY(wd_pipeline_open_parts(&j->pipeline[TEACHER], o->teacher, &parts, err));
    if (!o->student) j->pipeline[STUDENT] = j->pipeline[TEACHER];
    for (int s = 0; s < SIDES; s++) WD_TRY(wd_drawing_model_check(&j->pipeline[s], err));
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

/* Chooses guidance, negative prompt and text length of the teacher: those of the student's
 * run.json, unless the options give others. */
static wd_status choose_teacher(wd_eval_job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    double *scale = j->report.teacher.guidance_scale;
    char path[WD_PATH_MAX];
    memcpy(scale, j->pipeline[TEACHER].guidance_scale, 2 * sizeof *scale);
    j->negative_prompt = j->pipeline[TEACHER].negative_prompt;
    WD_TRY(wd_path_join(path, j->pipeline[STUDENT].path, "run.json", err));
    if (o->student && wd_path_exists(path))
        WD_TRY(wd_json_load(&j->trained, path, err));
    else if (o->student && isnan(o->guidance_scale))
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
    if (!j->text_tokens) j->text_tokens = j->pipeline[STUDENT].trained_text_tokens;
    if (!j->text_tokens) j->text_tokens = j->pipeline[TEACHER].text_tokens;
    return WD_OK;
}

wd_status wd__eval_choose(wd_eval_job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    const wd_pipeline *student = &j->pipeline[STUDENT];
    if (o->out) WD_TRY(wd_folder_check_writable(o->out, "--out", err));
    WD_TRY(open_pipelines(j, err));
    WD_TRY(wd_prompts_open(&j->prompts, o->prompts, NULL, err));
    j->count = o->count && o->count < j->prompts.count ? o->count : j->prompts.count;
    for (int m = 0; m < SIDES; m++)
        WD_TRY(wd_compute_dtype(&j->dtype[m], o->dtype, &j->pipeline[m], WD_COMPONENT_TRANSFORMER,
                                j->run.device, err));
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
    const double *guidance = j->report.teacher.guidance_scale;
    for (int e = 0; e < 2; e++)
        j->report.student.guidance_scale[e] = o->quantisation ? guidance[e] : 1;
    j->report.quantisation = o->quantisation;
    j->report.trained_steps = o->quantisation ? 0 : student->trained_steps;
    j->report.pictures = j->count;
    j->report.seeds = o->seeds;
    j->report.steps = o->steps ? o->steps : student->default_steps;
    j->report.reference_steps = o->reference_steps ? o->reference_steps
                                : o->quantisation
                                    ? j->report.steps /* the same model, in another dtype */
                                    : j->pipeline[TEACHER].default_steps;
    j->report.height = height;
    j->report.width = width;
    return WD_OK;
}
