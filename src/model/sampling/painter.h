/* A painter makes pictures with a model that computes velocities: noise becomes latents, and these
 * become pixels. `sample`, `eval` and the sample sheets of training runs draw with it. */
#ifndef WD_MODEL_SAMPLING_PAINTER_H
#define WD_MODEL_SAMPLING_PAINTER_H

#include "core/progress.h"
#include "model/files/pipeline.h"
#include "model/sampling/sampler.h"

/* ---- from noise to latents ---- */

/* A model, its schedule and the number of pictures. The caller sets all members but `progress`. */
typedef struct wd_painter {
    wd_queue *queue;             /* where the model computes; borrowed */
    const wd_schedule *schedule; /* borrowed */
    wd_velocity_fn *velocity;    /* of the pictures of the current run */
    void *context;               /* of `velocity` */
    wd_dtype model_dtype;        /* of the velocity's values */
    int64_t each;                /* elements of a picture's latents */
    int64_t pictures, batch;     /* of all runs, and of one run at most */
    bool padded;                 /* the model always computes `batch` pictures: the latents of a
                                    smaller run are padded with zeros */
    const char *task;            /* reported to the user; NULL: nothing is */
    wd_progress_task progress;
} wd_painter;

/* Host arrays for the intermediate results of a run, each [count, C, 1, H, W] fp32; NULL: they are
 * not stored. */
typedef struct wd_painter_trace {
    float *const *latents;  /* [steps + 1]: before the first step and after each */
    float *const *velocity; /* [steps]: velocity at latents[i] */
} wd_painter_trace;

/* Draws pictures [first, first + count) together; `first` is a multiple of painter->batch, and
 * count is at most that. Runs go from the first picture to the last. latents [count, C, 1, H, W]
 * fp32 (host) are noise before the call and clean latents after it. `trace` may be NULL. */
wd_status wd_painter_run(wd_painter *painter, float *latents, const wd_painter_trace *trace,
                         int64_t first, int64_t count, wd_err *err);

/* ---- from latents to pictures, the last step of the pipeline ---- */

/* Computes pixels [count, 3, H s, W s] fp32 in [0, 1] (host) from diffusion latents [count, C, 1,
 * H, W] fp32 (host, overwritten). It un-normalises, decodes with the pipeline's VAE, which is
 * loaded for this call only, and maps [-1, 1] to [0, 1] as diffusers' postprocess_video does.
 * WD_NOT_FINITE: a pixel is NaN or infinite, because the latents or the VAE's weights are. */
wd_status wd_pictures_decode(float *image, float *latents, int64_t count, int64_t height,
                             int64_t width, const wd_pipeline *pipeline, wd_queue *queue,
                             wd_err *err);

/* Checks the values of pictures [first, first + count), `each` values per picture: WD_NOT_FINITE if
 * one is not finite. The error calls the values `what` ("latents") and their origin `from`. */
wd_status wd_pictures_check(const float *values, int64_t first, int64_t count, int64_t each,
                            const char *what, const char *from, wd_err *err);

#endif
