/* `eval` measures how closely a student agrees with its teacher.
 *
 * Data flow: headers -> plan (api/plan/drawing_plan.h) -> prompts are encoded; for each seed: the
 * teacher samples in as many steps as the student, and its states and velocities are kept for a
 * batch -> the student samples with the same prompts and noise, and computes its velocities at the
 * teacher's states -> the teacher samples in its own number of steps -> all are decoded ->
 * differences, summed up by eval_report.h. The velocity error shows how well each noise level was
 * learnt; latents and pictures show the total error; sheet and agreement compare with the teacher's
 * own steps. Loading is not timed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/jobs/eval_job.h"
#include "api/jobs/gallery.h"
#include "api/options/options.h"
#include "core/clock.h"
#include "core/locale.h"
#include "core/memory.h"
#include "model/sampling/painter.h"
#include "teacher/run/residency.h"

static wd_status arrays(float ***out, int64_t n, size_t elements, wd_err *err)
{
    WD_TRY(wd_alloc((void **)out, (size_t)n, sizeof **out, "trace", err));
    for (int64_t i = 0; i < n; i++)
        WD_TRY(wd_alloc((void **)&(*out)[i], elements, sizeof(float), "trace", err));
    return WD_OK;
}

static bool has_reference(const wd_eval_job *j)
{
    return j->report.reference_steps != j->report.steps;
}

static wd_status allocate(wd_eval_job *j, wd_err *err)
{
    const size_t all = (size_t)(j->count * j->each), batch = (size_t)(j->batch * j->each);
    const int64_t values = 3 * j->report.height * j->report.width, steps = j->report.steps;
    const int pictures = has_reference(j) ? PICTURES : SIDES;
    for (int s = 0; s < pictures; s++) {
        WD_TRY(wd_alloc((void **)&j->latents[s], all, sizeof(float), "latents", err));
        WD_TRY(wd_alloc((void **)&j->image[s], (size_t)(j->count * values), sizeof(float),
                        "pictures", err));
    }
    for (int s = 0; s < pictures && j->options->seeds > 1; s++)
        WD_TRY(wd__diversity_open(&j->diversity[s], j->count, values, err));
    WD_TRY(wd_alloc((void **)&j->velocity, batch, sizeof(float), "velocities", err));
    WD_TRY(wd_alloc((void **)&j->mean, (size_t)j->batch, sizeof *j->mean, "errors", err));
    WD_TRY(arrays(&j->states, steps + 1, batch, err));
    WD_TRY(arrays(&j->velocities, steps, batch, err));
    WD_TRY(wd_alloc((void **)&j->by_level, (size_t)steps, sizeof *j->by_level, "errors", err));
    WD_TRY(
        wd_alloc((void **)&j->report.velocity_error, (size_t)steps, sizeof(double), "errors", err));
    return wd_schedule_open(&j->schedule, &j->pipeline[TEACHER].scheduler, steps, err);
}

static wd_eval_side *side_of(wd_eval_job *j, int side)
{
    return side == TEACHER ? &j->report.teacher : &j->report.student;
}

/* ---- painting ---- */

static wd_status describe_side(wd_eval_job *j, int side, wd_err *err)
{
    const wd_pipeline *pipeline = &j->pipeline[side];
    wd_eval_side *s = side_of(j, side);
    wd_tensor_table table;
    WD_TRY(wd_dit_table_open(&table, &pipeline->dit, err));
    for (int64_t i = 0; i < table.count; i++) {
        wd_tensor t = {.ndim = table.spec[i].ndim};
        memcpy(t.dim, table.spec[i].dim, sizeof t.dim);
        s->weights += wd_tensor_count(&t);
    }
    wd_dit_table_close(&table);
    s->experts = wd_teacher_experts(pipeline);
    s->dtype = j->dtype[side];
    j->model_options[side] = (wd_drawing_model_options){
        .pipeline = pipeline,
        .embeds = &j->embeds,
        .dtype = j->dtype[side],
        .steps = j->report.steps,
        .guidance_scale = {s->guidance_scale[0], s->guidance_scale[1]},
        .height = j->height,
        .width = j->width,
    };
    return WD_OK;
}

/* Plans before anything is loaded: both models stay open, and the job has all latents and pictures
 * of a seed, of several seeds the sums of their pictures, and a batch's states and velocities. */
static wd_status plan(wd_eval_job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    const size_t latents = (size_t)j->each * sizeof(float);
    const size_t pixels = (size_t)(3 * j->report.height * j->report.width) * sizeof(float);
    const size_t pictures = has_reference(j) ? PICTURES : SIDES;
    const wd_drawing drawing = {
        .job = WD_JOB_EVAL,
        .options = o,
        .run = &j->run,
        .text = j->embeds.cache,
        .model = {&j->model_options[TEACHER], &j->model_options[STUDENT]},
        .models = SIDES,
        .alike = !o->student, /* the same model, quantised */
        .vae = &j->pipeline[TEACHER],
        .batch = o->batch_size,
        .decodes_beside = true,
        .host_bytes = (size_t)j->count * pictures * (latents + (o->seeds > 1 ? 2 : 1) * pixels) +
                      pixels / 3, /* whose details are looked at */
        .host_bytes_each = (size_t)(2 * j->report.steps + 2) * latents,
        .strategy = o->teacher_device_strategy,
        .host_memory = o->host_memory,
    };
    for (int s = 0; s < SIDES; s++) WD_TRY(describe_side(j, s, err));
    WD_TRY(wd_drawing_plan_open(&j->plan, &drawing, err));
    for (int s = 0; s < SIDES; s++) wd_drawing_follow(&j->model_options[s], &j->plan, &j->run, s);
    return WD_OK;
}

static wd_status open_side(wd_eval_job *j, int side, wd_err *err)
{
    WD_TRY(wd_drawing_model_open(&j->model[side], &j->model_options[side], j->plan.sampler, err));
    j->batch = wd_drawing_model_batch(j->model[side]);
    return WD_OK;
}

/* Samples pictures [first, first + n) from the noise of `seed`. */
static wd_status paint(wd_eval_job *j, int picture, uint64_t seed, int64_t first, int64_t n,
                       wd_err *err)
{
    const int side = picture == STUDENT ? STUDENT : TEACHER;
    const wd_painter_trace trace = {.latents = j->states, .velocity = j->velocities};
    float *latents = j->latents[picture] + first * j->each;
    wd_drawing_model *model = j->model[side];
    wd_sampler_noise(latents, seed, first, n, j->each);
    const double begun_s = wd_clock_s();
    WD_TRY(wd_drawing_model_run(model, latents, picture == TEACHER ? &trace : NULL, first, n, err));
    const int timed = side == TEACHER && has_reference(j) ? REFERENCE : side;
    if (picture != timed) return WD_OK; /* the teacher's time is that of its own steps */
    side_of(j, side)->paint_s += (wd_clock_s() - begun_s) / (double)(j->count * j->options->seeds);
    return WD_OK;
}

/* Compares the student's velocities at the teacher's states for pictures [first, first + n). */
static wd_status compare_velocities(wd_eval_job *j, int64_t first, int64_t n, wd_err *err)
{
    memset(j->mean, 0, (size_t)n * sizeof *j->mean);
    for (int64_t k = 0; k < j->report.steps; k++) {
        WD_TRY(wd_drawing_model_velocity(j->model[STUDENT], j->velocity, j->states[k],
                                         j->schedule.timestep[k], first, n, err));
        for (int64_t i = 0; i < n; i++) {
            const wd_difference d = wd_difference_of(j->velocity + i * j->each,
                                                     j->velocities[k] + i * j->each, j->each);
            wd_difference_add(&j->by_level[k], d);
            j->mean[i] += wd_difference_relative(d) / (double)j->report.steps;
        }
    }
    for (int64_t i = 0; i < n; i++) wd__tally_add(&j->by_picture[VELOCITY], j->mean[i]);
    return WD_OK;
}

static int64_t batch_size(const wd_eval_job *j, int64_t first)
{
    return j->count - first < j->batch ? j->count - first : j->batch;
}

static wd_status run_batch(wd_eval_job *j, uint64_t seed, int64_t first, int64_t n, wd_err *err)
{
    WD_TRY(paint(j, TEACHER, seed, first, n, err));
    WD_TRY(paint(j, STUDENT, seed, first, n, err));
    return compare_velocities(j, first, n, err);
}

/* ---- pictures ---- */

static wd_status decode(wd_eval_job *j, int picture, wd_err *err)
{
    const int side = picture == STUDENT ? STUDENT : TEACHER;
    const wd_pipeline *pipeline = &j->pipeline[side];
    const double begun_s = wd_clock_s();
    WD_TRY(wd_pictures_decode(j->image[picture], j->latents[picture], j->count, j->height, j->width,
                              pipeline, j->plan.decoder, err));
    if (picture != REFERENCE)
        side_of(j, side)->decode_s +=
            (wd_clock_s() - begun_s) / (double)(j->count * j->options->seeds);
    return WD_OK;
}

static void compare_latents(wd_eval_job *j)
{
    for (int64_t i = 0; i < j->count; i++) {
        const wd_difference d = wd_difference_of(j->latents[STUDENT] + i * j->each,
                                                 j->latents[TEACHER] + i * j->each, j->each);
        wd_difference_add(&j->of_latents, d);
        wd__tally_add(&j->by_picture[LATENTS], wd_difference_relative(d));
    }
}

static wd_status compare_pictures(wd_eval_job *j, wd_err *err)
{
    const int pictures = has_reference(j) ? PICTURES : SIDES;
    const int64_t values = 3 * j->report.height * j->report.width;
    const float *teacher = j->image[TEACHER];
    const float *reference = has_reference(j) ? j->image[REFERENCE] : teacher;
    for (int64_t i = 0; i < j->count; i++) {
        const float *student = j->image[STUDENT] + i * values;
        const double to_teacher =
            wd_difference_of(student, teacher + i * values, values).difference2;
        const double to_reference =
            wd_difference_of(student, reference + i * values, values).difference2;
        j->squares[0] += to_teacher;
        j->squares[1] += to_reference;
        wd__tally_add(&j->by_picture[PSNR], wd__psnr_db(to_teacher / (double)values));
        wd__tally_add(&j->by_picture[REFERENCE_PSNR], wd__psnr_db(to_reference / (double)values));
        wd__tally_add(&j->by_picture[CORRELATION],
                      wd__correlation(student, teacher + i * values, values));
        wd__tally_add(&j->by_picture[REFERENCE_CORRELATION],
                      wd__correlation(student, reference + i * values, values));
    }
    for (int s = 0; s < pictures && j->options->seeds > 1; s++)
        wd__diversity_add(&j->diversity[s], j->image[s]);
    for (int s = 0; s < pictures; s++)
        WD_TRY(wd__details_add(&j->details[s], j->image[s], 3 * j->count, j->report.height,
                               j->report.width, err));
    return WD_OK;
}

/* The sheet shows the teacher's pictures in its own number of steps. */
static wd_status write_sheet(const wd_eval_job *j, wd_err *err)
{
    char teacher[48], student[48];
    const char *const titles[] = {teacher, student};
    char path[WD_PATH_MAX];
    snprintf(teacher, sizeof teacher, "teacher, %" PRId64 " steps", j->report.reference_steps);
    snprintf(student, sizeof student, "student, %" PRId64 " step%s", j->report.steps,
             j->report.steps == 1 ? "" : "s");
    WD_TRY(wd_folder_make(j->options->out, err));
    WD_TRY(wd_path_join(path, j->options->out, "side-by-side.png", err));
    return wd__gallery_write_pair(path, j->image[has_reference(j) ? REFERENCE : TEACHER],
                                  j->image[STUDENT], j->count, j->report.height, j->report.width,
                                  titles, (const char *const *)j->prompts.text, err);
}

/* Samples the teacher's pictures in its own number of steps. */
static wd_status paint_references(wd_eval_job *j, uint64_t seed, wd_err *err)
{
    wd_drawing_model *teacher = j->model[TEACHER];
    WD_TRY(wd_drawing_model_set_steps(teacher, j->report.reference_steps, err));
    for (int64_t i = 0, n; i < j->count; i += n) {
        n = batch_size(j, i);
        WD_TRY(paint(j, REFERENCE, seed, i, n, err));
    }
    return wd_drawing_model_set_steps(teacher, j->report.steps, err);
}

static wd_status run_seed(wd_eval_job *j, int64_t number, wd_err *err)
{
    const uint64_t seed = j->options->seed + (uint64_t)number;
    for (int64_t i = 0, n; i < j->count; i += n) {
        n = batch_size(j, i);
        WD_TRY(run_batch(j, seed, i, n, err));
    }
    if (has_reference(j)) WD_TRY(paint_references(j, seed, err));
    compare_latents(j); /* before decoding, which overwrites them */
    for (int picture = 0; picture < (has_reference(j) ? PICTURES : SIDES); picture++)
        WD_TRY(decode(j, picture, err));
    WD_TRY(compare_pictures(j, err));
    return number == 0 && j->options->out ? write_sheet(j, err) : WD_OK;
}

/* ---- the report ---- */

static void sum_up(wd_eval_job *j)
{
    wd_eval_report *r = &j->report;
    const double values = (double)(j->count * j->options->seeds * 3 * r->height * r->width);
    wd_eval_figure *figure[] = {&r->velocity,     &r->latents,     &r->psnr_db,
                                &r->reference_db, &r->correlation, &r->reference_correlation};
    for (int i = 0; i < WD_EVAL_FIGURES; i++) figure[i]->error = wd__tally_error(&j->by_picture[i]);
    for (int64_t k = 0; k < r->steps; k++)
        r->velocity_error[k] = wd_difference_relative(j->by_level[k]);
    r->velocity.value = wd_difference_mean_relative(j->by_level, r->steps);
    r->latents.value = wd_difference_relative(j->of_latents);
    r->psnr_db.value = wd__psnr_db(j->squares[0] / values);
    r->reference_db.value = wd__psnr_db(j->squares[1] / values);
    r->correlation.value = wd__tally_mean(&j->by_picture[CORRELATION]);
    r->reference_correlation.value = wd__tally_mean(&j->by_picture[REFERENCE_CORRELATION]);
    r->diversity = wd__diversity_distance(&j->diversity[TEACHER]);
    r->student_diversity = wd__diversity_distance(&j->diversity[STUDENT]);
    r->reference_diversity =
        has_reference(j) ? wd__diversity_distance(&j->diversity[REFERENCE]) : r->diversity;
    for (int k = 0; k < WD_DETAIL_SIZES; k++) {
        const wd_details *d = j->details, *own = &d[has_reference(j) ? REFERENCE : TEACHER];
        r->sharpness[k] = sqrt(d[STUDENT].energy[k] / own->energy[k]);
        r->sharpness_in_steps[k] = sqrt(d[STUDENT].energy[k] / d[TEACHER].energy[k]);
    }
    r->sigma = j->schedule.sigma;
    r->timestep = j->schedule.timestep;
}

static wd_status write_json(const wd_eval_job *j, wd_err *err)
{
    char path[WD_PATH_MAX];
    json_t *json;
    WD_TRY(wd_path_join(path, j->options->out, "eval.json", err));
    WD_TRY(wd__eval_json(&json, &j->report, err));
    const wd_status status = wd_json_save(json, path, err);
    json_decref(json);
    return status;
}

/* Sets *out if a weight of the expert is quantised to what the pipeline's overlay says, in a file
 * of its folder. */
static wd_status find_quantised(bool *out, const wd_pipeline *p, wd_component c, wd_err *err)
{
    wd_safetensors *set;
    if (!p->has[c]) return WD_OK;
    WD_TRY(wd_pipeline_open_weights(&set, p, c, err));
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        *out |= e->tensor.dtype == p->overlay.quantised &&
                !strncmp(e->file, p->overlay.folder, strlen(p->overlay.folder));
    }
    wd_safetensors_close(set);
    return WD_OK;
}

/* A teacher whose files are quantised stays as it is: there is nothing to compare it with. */
static wd_status require_quantised(const wd_pipeline *p, wd_err *err)
{
    bool found = false;
    WD_TRY(find_quantised(&found, p, WD_COMPONENT_TRANSFORMER, err));
    WD_TRY(find_quantised(&found, p, WD_COMPONENT_TRANSFORMER_2, err));
    if (found) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--quantisation %s: all matrices of the teacher's blocks are quantised in its "
                   "files already; give files of float32, float16 or bfloat16",
                   wd_dtype_option_name(p->overlay.quantised));
}

/* What LoRAs change, and what is quantised, are planned without data. */
static void choose_overlays(wd_eval_job *j)
{
    wd_pipeline *student = &j->pipeline[STUDENT];
    j->pipeline[TEACHER].overlay = (wd_overlay){.dtype = j->dtype[TEACHER]};
    if (!j->options->quantisation) return;
    student->overlay = j->pipeline[TEACHER].overlay;
    wd_dtype_parse(&student->overlay.quantised, j->options->quantisation);
}

/* Quantises what takes the student's place, below the temporary folder. */
static wd_status quantise(wd_eval_job *j, wd_err *err)
{
    wd_pipeline *student = &j->pipeline[STUDENT];
    if (!j->options->quantisation) return WD_OK;
    WD_TRY(wd_merged_add(&j->merged, student, err));
    return require_quantised(student, err);
}

static wd_status run(char **text, wd_eval_job *j, wd_err *err)
{
    const wd_eval_options *o = j->options;
    WD_TRY(wd__eval_choose(j, err));
    choose_overlays(j);
    WD_TRY(wd_prompt_embeds_open(&j->embeds, NULL, &j->pipeline[TEACHER],
                                 (const char *const *)j->prompts.text, j->count, j->negative_prompt,
                                 j->text_tokens, j->dtype[TEACHER], err));
    WD_TRY(plan(j, err));
    WD_TRY(wd_merged_open(&j->merged, &j->pipeline[TEACHER], j->dtype[TEACHER], err));
    WD_TRY(quantise(j, err));
    WD_TRY(wd_drawing_encode(&j->plan, j->embeds.cache, err));
    for (int s = 0; s < SIDES; s++) WD_TRY(open_side(j, s, err));
    WD_TRY(allocate(j, err));
    for (int64_t seed = 0; seed < o->seeds; seed++) WD_TRY(run_seed(j, seed, err));
    sum_up(j);
    if (o->out) WD_TRY(write_json(j, err));
    if (!o->json) return wd__eval_text(text, &j->report, err);
    json_t *json;
    WD_TRY(wd__eval_json(&json, &j->report, err));
    const wd_status status = wd_json_text_of(text, json, err);
    json_decref(json);
    return status;
}

wd_status wd_eval(char **text, const wd_eval_options *options, wd_err *err)
{
    WD_C_LOCALE;
    wd_eval_job *j;
    WD_TRY(wd_alloc((void **)&j, 1, sizeof *j, "a comparison", err));
    j->options = options;
    wd_status status =
        wd_run_open(&j->run, WD_JOB_EVAL, options, options->device, options->num_threads, err);
    if (status == WD_OK) status = run(text, j, err);
    for (int64_t i = 0; j->states && i <= j->report.steps; i++) wd_free(j->states[i]);
    for (int64_t i = 0; j->velocities && i < j->report.steps; i++) wd_free(j->velocities[i]);
    for (int s = 0; s < PICTURES; s++) {
        wd_free(j->latents[s]);
        wd_free(j->image[s]);
        wd__diversity_close(&j->diversity[s]);
    }
    for (int s = 0; s < SIDES; s++) wd_drawing_model_close(j->model[s]);
    wd_free(j->velocity);
    wd_free(j->mean);
    wd_free(j->by_level);
    wd_free(j->states);
    wd_free(j->velocities);
    wd_free(j->report.velocity_error);
    wd_schedule_close(&j->schedule);
    wd_merged_close(&j->merged);
    wd_prompt_embeds_close(&j->embeds);
    wd_prompts_close(&j->prompts);
    json_decref(j->trained);
    wd_run_close(&j->run);
    wd_free(j);
    return status;
}
