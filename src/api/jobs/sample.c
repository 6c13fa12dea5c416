/* `sample` makes pictures from prompts.
 *
 * Data flow: headers -> plan (api/plan/drawing_plan.h) -> prompts -> ids and embeddings (the text
 * encoder is loaded only for these) -> for each batch: noise -> latents -> pictures -> PNG files ->
 * at the end a contact sheet. So a job that is stopped or fails keeps what it has drawn. With
 * --trace the results of all stages are kept and written, to compare them with a reference.
 *
 * Guidance and negative prompt are by default those that the model's authors recommend, as in
 * `train` and `eval`. A student of this program, which has learnt guided velocities, is sampled
 * with guidance 1. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/jobs/gallery.h"
#include "api/jobs/tensor_file.h"
#include "api/options/options.h"
#include "api/plan/drawing_plan.h"
#include "api/setup/dtypes.h"
#include "api/setup/run.h"
#include "core/clock.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/writable.h"
#include "io/text/prompts.h"
#include "model/sampling/painter.h"
#include "train/output/export.h"

typedef struct job {
    const wd_sample_options *options;
    wd_run run;
    wd_pipeline pipeline;
    wd_merged merged;          /* of its LoRAs */
    wd_prompts file;           /* of --prompts */
    const char *const *prompt; /* [prompts] */
    int64_t prompts, each;     /* each has so many pictures, one after another */
    int64_t count;             /* of all pictures */
    wd_dtype dtype;
    int64_t height, width; /* of the latents */
    int64_t tokens;
    double guidance_scale[2];
    wd_scheduler_config scheduler;
    wd_prompt_embeds embeds;
    wd_drawing_model_options model_options;
    wd_drawing_plan plan;
    wd_drawing_model *model;
    wd_gallery gallery;
    char *made_by;  /* the gallery's */
    float *given;   /* [count, C, 1, H, W], of --latents; NULL: none */
    float *latents; /* [batch, C, 1, H, W] */
    int64_t steps, batch;
    float **trace; /* [steps + 1][count, C, 1, H, W]; NULL: none */
    float *image;  /* [batch, 3, H s, W s] in [0, 1]; of all pictures if there is a trace */
    double paint_s, decode_s;
} job;

/* ---- set-up ---- */

static wd_status read_prompts(job *j, wd_err *err)
{
    const wd_sample_options *o = j->options;
    if (o->prompts && o->prompt.count)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--prompts and --prompt: expected one of the two, found both");
    if (o->prompts) {
        WD_TRY(wd_prompts_open(&j->file, o->prompts, NULL, err));
        j->prompt = (const char *const *)j->file.text;
        j->prompts = j->file.count;
    } else {
        j->prompt = o->prompt.item;
        j->prompts = o->prompt.count;
    }
    j->each = o->images_per_prompt;
    j->count = j->prompts * j->each;
    if (!j->count)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "sample needs --prompts FILE or --prompt TEXT: what to paint");
    return WD_OK;
}

static wd_status choose_size(job *j, wd_err *err)
{
    const wd_sample_options *o = j->options;
    const int64_t height = o->height ? o->height : j->pipeline.default_height;
    const int64_t width = o->width ? o->width : j->pipeline.default_width;
    const int64_t unit = wd_pipeline_size_multiple(&j->pipeline);
    if (height % unit || width % unit)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--height, --width: expected multiples of %" PRId64 " for this model, found "
                       "%" PRId64 " x %" PRId64,
                       unit, height, width);
    j->height = height / wd_pipeline_vae_scale(&j->pipeline);
    j->width = width / wd_pipeline_vae_scale(&j->pipeline);
    j->steps = o->steps ? o->steps : j->pipeline.default_steps;
    j->tokens = o->max_sequence_length ? o->max_sequence_length : j->pipeline.text_tokens;
    return WD_OK;
}

static wd_status choose_guidance(job *j, wd_err *err)
{
    const wd_sample_options *o = j->options;
    bool student;
    WD_TRY(wd_export_is_student(&student, j->pipeline.path, err));
    if (!isnan(o->guidance_scale_2) && j->pipeline.boundary_ratio <= 0)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--guidance_scale_2: %s has no boundary_ratio, so there is no low-noise "
                       "expert; leave it out",
                       j->pipeline.path);
    double *scale = j->guidance_scale;
    for (int e = 0; e < 2; e++) scale[e] = student ? 1 : j->pipeline.guidance_scale[e];
    if (!isnan(o->guidance_scale)) scale[0] = scale[1] = o->guidance_scale;
    if (!isnan(o->guidance_scale_2)) scale[1] = o->guidance_scale_2;
    if (student) wd_export_warn_of_guidance(j->pipeline.path, scale[0]);
    return WD_OK;
}

static void choose_scheduler(job *j)
{
    const wd_sample_options *o = j->options;
    j->scheduler = j->pipeline.scheduler;
    if (o->scheduler) {
        const bool euler = !strcmp(o->scheduler, "euler");
        const wd_scheduler_kind kind = euler ? WD_SCHEDULER_EULER : WD_SCHEDULER_UNIPC;
        if (j->scheduler.kind != kind)
            j->scheduler = (wd_scheduler_config){.kind = kind,
                                                 .num_train_timesteps =
                                                     j->pipeline.scheduler.num_train_timesteps,
                                                 .flow_shift = j->pipeline.scheduler.flow_shift,
                                                 .solver_order = 2,
                                                 .lower_order_final = true,
                                                 .predict_x0 = true,
                                                 .final_sigma_zero = true};
    }
    if (!isnan(o->flow_shift)) j->scheduler.flow_shift = o->flow_shift;
}

static wd_status choose(job *j, wd_err *err)
{
    const wd_pipeline_parts parts = WD_PARTS_OF(j->options);
    WD_TRY(wd_pipeline_open_parts(&j->pipeline, j->options->model, &parts, err));
    WD_TRY(wd_drawing_model_check(&j->pipeline, err));
    WD_TRY(wd_pipeline_check_weights(&j->pipeline, WD_COMPONENT_TEXT_ENCODER, err));
    WD_TRY(wd_compute_dtype(&j->dtype, j->options->dtype, &j->pipeline, WD_COMPONENT_TRANSFORMER,
                            j->run.device, err));
    WD_TRY(read_prompts(j, err));
    WD_TRY(choose_size(j, err));
    WD_TRY(choose_guidance(j, err));
    choose_scheduler(j);
    if (j->options->trace)
        WD_TRY(wd__tensor_file_check(j->options->trace, "--trace", j->options->latents, err));
    return wd__gallery_check(j->options->out, j->count, err);
}

/* ---- painting ---- */

static int64_t latents_each(const job *j)
{
    return j->pipeline.dit.in_channels * j->height * j->width;
}

static int64_t pixels_each(const job *j)
{
    return 3 * j->gallery.height * j->gallery.width;
}

static wd_status read_latents(job *j, wd_err *err)
{
    char expected[128], found[128];
    wd_safetensors *file;
    int64_t dim[5];
    const int64_t want[5] = {j->count, j->pipeline.dit.in_channels, 1, j->height, j->width};
    WD_TRY(wd_safetensors_open(&file, j->options->latents, err));
    wd_status status = wd__tensor_file_floats(&j->given, dim, 5, file, "latents", err);
    if (status == WD_OK && memcmp(dim, want, sizeof want))
        status = wd_fail(err, WD_MISMATCH, "%s: latents: expected %s, found %s",
                         j->options->latents, wd_dims_text(expected, sizeof expected, want, 5),
                         wd_dims_text(found, sizeof found, dim, 5));
    wd_safetensors_close(file);
    if (status != WD_OK) return status;
    return wd_pictures_check(j->given, 0, j->count, latents_each(j), "latents", j->options->latents,
                             err);
}

static wd_status open_trace(job *j, wd_err *err)
{
    const size_t all = (size_t)(j->count * latents_each(j)), states = (size_t)j->steps + 1;
    if (!j->options->trace) return WD_OK;
    WD_TRY(wd_alloc((void **)&j->trace, states, sizeof *j->trace, "trace", err));
    for (size_t i = 0; i < states; i++)
        WD_TRY(wd_alloc((void **)&j->trace[i], all, sizeof(float), "trace", err));
    return WD_OK;
}

/* ---- the plan ---- */

/* Plans before anything is loaded. A batch has one more copy of its latents, since decoding
 * overwrites them; a trace has all latents and pictures. */
static wd_status plan(job *j, wd_err *err)
{
    const wd_sample_options *o = j->options;
    const size_t latents = (size_t)latents_each(j) * sizeof(float);
    const size_t pixels = (size_t)pixels_each(j) * sizeof(float);
    j->model_options = (wd_drawing_model_options){
        .pipeline = &j->pipeline,
        .embeds = &j->embeds,
        .scheduler = &j->scheduler,
        .dtype = j->dtype,
        .steps = j->steps,
        .guidance_scale = {j->guidance_scale[0], j->guidance_scale[1]},
        .height = j->height,
        .width = j->width,
        .images_per_prompt = j->each,
    };
    const wd_drawing drawing = {
        .job = WD_JOB_SAMPLE,
        .options = o,
        .run = &j->run,
        .text = j->embeds.cache,
        .model = {&j->model_options},
        .models = 1,
        .vae = &j->pipeline,
        .batch = o->batch_size,
        .host_bytes = o->trace ? (size_t)j->count * ((size_t)(j->steps + 1) * latents + pixels) : 0,
        .host_bytes_each = latents,
        .strategy = o->teacher_device_strategy,
        .host_memory = o->host_memory,
    };
    WD_TRY(wd_drawing_plan_open(&j->plan, &drawing, err));
    wd_drawing_follow(&j->model_options, &j->plan, &j->run, 0);
    return WD_OK;
}

static void close_model(job *j)
{
    wd_drawing_model_close(j->model);
    j->model = NULL;
}

/* Noise, or what --latents gives, becomes the latents of pictures [first, first + count). */
static wd_status paint(job *j, int64_t first, int64_t count, wd_err *err)
{
    const int64_t each = latents_each(j);
    const double begun = wd_clock_s();
    float *at[WD_SCHEDULE_STEPS_MAX + 1];
    for (int64_t i = 0; j->trace && i <= j->steps; i++) at[i] = j->trace[i] + first * each;
    const wd_painter_trace trace = {.latents = j->trace ? at : NULL};
    if (j->given)
        memcpy(j->latents, j->given + first * each, (size_t)(count * each) * sizeof(float));
    for (int64_t i = first; i < first + count && !j->given; i++)
        wd_sampler_noise(j->latents + (i - first) * each,
                         j->options->seed + (uint64_t)(i % j->each), i / j->each, 1, each);
    WD_TRY(wd_drawing_model_run(j->model, j->latents, &trace, first, count, err));
    j->paint_s += wd_clock_s() - begun;
    return WD_OK;
}

/* Decodes `count` pictures and writes them. */
static wd_status finish(job *j, const float *latents, int64_t first, int64_t count, wd_err *err)
{
    const size_t values = (size_t)(count * latents_each(j));
    float *image = j->image + (j->trace ? first * pixels_each(j) : 0);
    const double begun = wd_clock_s();
    float *copy; /* decoding overwrites latents */
    WD_TRY(wd_alloc((void **)&copy, values, sizeof *copy, "latents", err));
    memcpy(copy, latents, values * sizeof *copy);
    const wd_status status = wd_pictures_decode(image, copy, count, j->height, j->width,
                                                &j->pipeline, j->plan.decoder, err);
    wd_free(copy);
    j->decode_s += wd_clock_s() - begun;
    return status == WD_OK ? wd__gallery_add(&j->gallery, image, count, err) : status;
}

static int64_t batch_at(const job *j, int64_t first)
{
    return j->count - first < j->batch ? j->count - first : j->batch;
}

/* Where transformer and VAE do not fit on the device together, all pictures are painted before the
 * first of them is decoded. */
static wd_status draw_in_turn(job *j, wd_err *err)
{
    const int64_t each = latents_each(j);
    float *all;
    wd_status status = WD_OK;
    WD_TRY(wd_alloc((void **)&all, (size_t)(j->count * each), sizeof *all, "latents", err));
    for (int64_t i = 0; i < j->count; i += j->batch) {
        const int64_t count = batch_at(j, i);
        WD_TRY_OUT(paint(j, i, count, err));
        memcpy(all + i * each, j->latents, (size_t)(count * each) * sizeof *all);
    }
    close_model(j);
    for (int64_t i = 0; i < j->count; i += j->batch)
        WD_TRY_OUT(finish(j, all + i * each, i, batch_at(j, i), err));
out:
    wd_free(all);
    return status;
}

static wd_status draw(job *j, wd_err *err)
{
    WD_TRY(wd_drawing_model_open(&j->model, &j->model_options, j->plan.sampler, err));
    j->batch = wd_drawing_model_batch(j->model);
    const int64_t kept = j->trace ? j->count : j->batch;
    WD_TRY(wd_alloc((void **)&j->latents, (size_t)(j->batch * latents_each(j)), sizeof(float),
                    "latents", err));
    WD_TRY(wd_alloc((void **)&j->image, (size_t)(kept * pixels_each(j)), sizeof(float), "pictures",
                    err));
    if (j->plan.in_turn) return draw_in_turn(j, err);
    for (int64_t i = 0; i < j->count; i += j->batch) {
        WD_TRY(paint(j, i, batch_at(j, i), err));
        if (i + j->batch >= j->count) close_model(j); /* frees memory for decoding */
        WD_TRY(finish(j, j->latents, i, batch_at(j, i), err));
    }
    return WD_OK;
}

/* ---- results ---- */

typedef char trace_name[24];

/* Ids and embeddings of a trace, with one negative prompt per prompt, as in the pipeline. */
typedef struct text_trace {
    int64_t *ids;           /* [prompts, tokens] */
    float *rows, *negative; /* [prompts, tokens, width] */
} text_trace;

static wd_status trace_text(text_trace *t, const wd_prompt_embeds *e, wd_err *err)
{
    const size_t each = (size_t)(e->tokens * e->width), n = (size_t)e->count;
    int32_t *ids;
    WD_TRY(wd_alloc((void **)&t->ids, n * (size_t)e->tokens, sizeof *t->ids, "trace", err));
    WD_TRY(wd_alloc((void **)&t->rows, n, each * sizeof *t->rows, "trace", err));
    WD_TRY(wd_alloc((void **)&t->negative, n, each * sizeof *t->negative, "trace", err));
    WD_TRY(wd_alloc((void **)&ids, (size_t)e->tokens, sizeof *ids, "trace", err));
    for (int64_t i = 0; i < e->count; i++) {
        wd_text_cache_ids(ids, e->cache, i);
        for (int64_t k = 0; k < e->tokens; k++) t->ids[i * e->tokens + k] = ids[k];
        wd_text_cache_fill(t->rows + (size_t)i * each, e->cache, i, e->tokens, WD_F32);
        wd_text_cache_fill(t->negative + (size_t)i * each, e->cache, e->count, e->tokens, WD_F32);
    }
    wd_free(ids);
    return WD_OK;
}

static wd_status write_trace(const job *j, wd_err *err)
{
    const wd_prompt_embeds *e = &j->embeds;
    const int64_t steps = j->steps, n = j->count;
    const int64_t scale = wd_pipeline_vae_scale(&j->pipeline);
    const int64_t ids_dim[2] = {e->count, e->tokens};
    const int64_t rows_dim[3] = {e->count, e->tokens, e->width};
    const int64_t latents_dim[5] = {n, j->pipeline.dit.in_channels, 1, j->height, j->width};
    const int64_t image_dim[4] = {n, 3, j->height * scale, j->width * scale};
    text_trace text = {0};
    wd_tensor_out *out = NULL;
    trace_name *name = NULL;
    int64_t used = 0;
    wd_status status;
    WD_TRY_OUT(wd_alloc((void **)&out, (size_t)steps + 5, sizeof *out, "trace", err));
    WD_TRY_OUT(wd_alloc((void **)&name, (size_t)steps + 1, sizeof *name, "trace", err));
    WD_TRY_OUT(trace_text(&text, e, err));
    out[used++] = wd__tensor_out_of("input_ids", WD_I64, text.ids, ids_dim, 2);
    out[used++] = wd__tensor_out_of("prompt_embeds", WD_F32, text.rows, rows_dim, 3);
    out[used++] = wd__tensor_out_of("negative_prompt_embeds", WD_F32, text.negative, rows_dim, 3);
    for (int64_t i = 0; i <= steps; i++) {
        snprintf(name[i], sizeof name[i], "latents.%" PRId64, i);
        out[used++] = wd__tensor_out_of(name[i], WD_F32, j->trace[i], latents_dim, 5);
    }
    out[used++] = wd__tensor_out_of("sample", WD_F32, j->image, image_dim, 4);
    status = wd__tensor_file_write(j->options->trace, out, used, err);
out:
    wd_free(text.ids);
    wd_free(text.rows);
    wd_free(text.negative);
    wd_free(name);
    wd_free(out);
    return status;
}

static void say_what_is_written(const job *j, bool all)
{
    const wd_gallery *g = &j->gallery;
    const double n = (double)g->written;
    if (!g->written) return;
    if (!all) {
        wd_log(WD_LOG_INFO, "%" PRId64 " of %" PRId64 " pictures were drawn, and are in %s",
               g->written, g->count, g->path);
        return;
    }
    wd_log(WD_LOG_INFO,
           "%" PRId64 " picture%s of %" PRId64 "x%" PRId64 ", %" PRId64
           " step%s: %.3g s each, of which %.3g s decoding; written to %s",
           g->count, g->count == 1 ? "" : "s", g->width, g->height, j->steps,
           j->steps == 1 ? "" : "s", (j->paint_s + j->decode_s) / n, j->decode_s / n, g->path);
}

/* How the pictures are made, as pictures say it (wd_png_write_with). The model is named without its
 * folder. */
static wd_status describe(job *j, const char *negative, wd_err *err)
{
    const char *path = j->pipeline.path, *slash = strrchr(path, '/');
    const char *name = slash && slash[1] ? slash + 1 : path;
    const size_t bytes = strlen(negative) + strlen(name) + 320;
    const int64_t scale = wd_pipeline_vae_scale(&j->pipeline);
    WD_TRY(wd_alloc((void **)&j->made_by, bytes, 1, "a picture", err));
    snprintf(j->made_by, bytes,
             "%s%s%sSteps: %" PRId64 ", Sampler: %s, CFG scale: %g, Size: %" PRId64 "x%" PRId64
             ", Model: %s, Shift: %g, Version: WanDistiller %s",
             *negative ? "Negative prompt: " : "", negative, *negative ? "\n" : "", j->steps,
             j->scheduler.kind == WD_SCHEDULER_EULER ? "Euler" : "UniPC", j->guidance_scale[0],
             j->width * scale, j->height * scale, name, j->scheduler.flow_shift, wd_version());
    j->gallery.made_by = j->made_by;
    return WD_OK;
}

static wd_status run(job *j, wd_err *err)
{
    const wd_sample_options *o = j->options;
    WD_TRY(choose(j, err));
    const int64_t scale = wd_pipeline_vae_scale(&j->pipeline);
    j->gallery = (wd_gallery){.path = o->out,
                              .prompt = j->prompt,
                              .each = j->each,
                              .seed = o->seed,
                              .noise_is_given = o->latents != NULL,
                              .count = j->count,
                              .height = j->height * scale,
                              .width = j->width * scale};
    if (o->latents) WD_TRY(read_latents(j, err));
    j->pipeline.overlay = (wd_overlay){.dtype = j->dtype};
    const char *negative = o->negative_prompt ? o->negative_prompt : j->pipeline.negative_prompt;
    WD_TRY(
        describe(j, j->guidance_scale[0] != 1 || j->guidance_scale[1] != 1 ? negative : "", err));
    WD_TRY(wd_prompt_embeds_open(&j->embeds, NULL, &j->pipeline, j->prompt, j->prompts, negative,
                                 j->tokens, j->dtype, err));
    WD_TRY(plan(j, err));
    WD_TRY(wd_merged_open(&j->merged, &j->pipeline, j->dtype, err));
    WD_TRY(wd_drawing_encode(&j->plan, j->embeds.cache, err));
    WD_TRY(open_trace(j, err));
    WD_TRY(draw(j, err));
    if (o->trace) WD_TRY(write_trace(j, err));
    return wd__gallery_finish(&j->gallery, err);
}

wd_status wd_sample(const wd_sample_options *options, wd_err *err)
{
    WD_C_LOCALE;
    job j = {.options = options};
    WD_TRY(wd_run_open(&j.run, WD_JOB_SAMPLE, options, options->device, options->num_threads, err));
    const wd_status status = run(&j, err);
    say_what_is_written(&j, status == WD_OK);
    wd_drawing_model_close(j.model);
    wd_merged_close(&j.merged);
    wd_prompt_embeds_close(&j.embeds);
    wd_prompts_close(&j.file);
    for (int64_t i = 0; j.trace && i <= j.steps; i++) wd_free(j.trace[i]);
    wd_free(j.trace);
    wd_free(j.given);
    wd_free(j.latents);
    wd_free(j.image);
    wd__gallery_close(&j.gallery);
    wd_free(j.made_by);
    wd_run_close(&j.run);
    return status;
}
