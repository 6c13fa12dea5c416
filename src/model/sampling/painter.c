/* Making pictures: see model/sampling/painter.h. */
#include "model/sampling/painter.h"

#include <inttypes.h>
#include <math.h>

#include "core/error.h"
#include "model/vae/vae.h"

/* ---- from noise to latents ---- */

/* One run of a painter over pictures [first, first + count). */
typedef struct run {
    wd_painter *painter;
    const wd_painter_trace *trace; /* NULL: nothing is stored */
    int64_t batches;               /* before this run */
    int64_t step;
    size_t bytes; /* of the latents of its pictures */
} run;

static wd_status velocity(void *context, float *out, const float *latents, float timestep,
                          wd_err *err)
{
    run *r = context;
    wd_painter *p = r->painter;
    WD_TRY(p->velocity(p->context, out, latents, timestep, err));
    if (r->trace && r->trace->velocity)
        wd_queue_copy_and_wait(p->queue, r->trace->velocity[r->step], out, r->bytes);
    return WD_OK;
}

static wd_status look(void *context, int64_t step, const float *latents, wd_err *err)
{
    run *r = context;
    wd_painter *p = r->painter;
    (void)err;
    r->step = step;
    wd_progress_at(&p->progress, r->batches * p->schedule->steps + step);
    if (r->trace && r->trace->latents)
        wd_queue_copy_and_wait(p->queue, r->trace->latents[step], latents, r->bytes);
    return WD_OK;
}

wd_status wd_painter_run(wd_painter *p, float *latents, const wd_painter_trace *trace,
                         int64_t first, int64_t count, wd_err *err)
{
    run r = {.painter = p,
             .trace = trace,
             .batches = first / p->batch,
             .bytes = (size_t)(count * p->each) * sizeof(float)};
    wd_device *device = wd_queue_device(p->queue);
    const int64_t values = (p->padded ? p->batch : count) * p->each;
    float *x;
    WD_REQUIRE(count <= p->batch && first % p->batch == 0,
               "a run of pictures %lld to %lld is no batch of %lld", (long long)first,
               (long long)(first + count - 1), (long long)p->batch);
    if (p->task && !first && !wd_device_is_dry(device))
        p->progress = wd_progress_begin(
            p->task, "step", 0, (p->pictures + p->batch - 1) / p->batch * p->schedule->steps);
    WD_TRY(wd_device_alloc((void **)&x, device, (size_t)values * sizeof(float), "latents", err));
    wd_queue_copy_and_wait(p->queue, x, latents, r.bytes);
    const wd_status status = wd_sampler_run(x, values, p->schedule, p->model_dtype, velocity, &r,
                                            look, &r, p->queue, err);
    if (status == WD_OK) wd_queue_copy_and_wait(p->queue, latents, x, r.bytes);
    wd_device_free(device, x);
    return status;
}

/* ---- from latents to pictures ---- */

/* The maximal number of latent pixels per call: small pictures are decoded in batches. */
enum { LATENTS_PER_CALL_MAX = 64 * 64 };

static void to_unit(float *image, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float v = image[i] * 0.5f + 0.5f;
        image[i] = v < 0 ? 0 : v > 1 ? 1 : v;
    }
}

wd_status wd_pictures_decode(float *image, float *latents, int64_t count, int64_t height,
                             int64_t width, const wd_pipeline *pipeline, wd_queue *queue,
                             wd_err *err)
{
    wd_status status;
    wd_safetensors *weights = NULL;
    wd_vae *vae = NULL;
    int64_t scale = wd_pipeline_vae_scale(pipeline);
    int64_t in = pipeline->vae.z_dim * height * width;
    int64_t out = 3 * height * width * scale * scale;
    int64_t group = LATENTS_PER_CALL_MAX / (height * width);
    if (group < 1) group = 1;
    WD_TRY_OUT(wd_pipeline_open_weights(&weights, pipeline, WD_COMPONENT_VAE, err));
    WD_TRY_OUT(wd_vae_open(&vae, &pipeline->vae, weights, WD_VAE_DECODER, queue, err));
    wd_progress_task progress = {0};
    if (!wd_device_is_dry(wd_queue_device(queue)))
        progress = wd_progress_begin("decoding", "picture", 0, count);
    for (int64_t i = 0; i < count; i += group) {
        int64_t n = count - i < group ? count - i : group;
        const int64_t dim[5] = {n, pipeline->vae.z_dim, 1, height, width};
        wd_vae_unnormalize(latents + i * in, &pipeline->vae, dim);
        WD_TRY_OUT(wd_vae_decode(vae, image + i * out, latents + i * in, dim, err));
        wd_progress_at(&progress, i + n);
    }
    WD_TRY_OUT(wd_pictures_check(image, 0, count, out, "pixels", pipeline->path, err));
    to_unit(image, count * out);
out:
    wd_vae_close(vae);
    wd_safetensors_close(weights);
    return status;
}

wd_status wd_pictures_check(const float *values, int64_t first, int64_t count, int64_t each,
                            const char *what, const char *from, wd_err *err)
{
    for (int64_t i = 0; i < count * each; i++) {
        if (isfinite(values[i])) continue;
        return wd_fail(err, WD_NOT_FINITE,
                       "%s: %s of picture %" PRId64 ": expected finite numbers, found %g at value "
                       "%" PRId64,
                       from, what, first + i / each + 1, (double)values[i], i % each);
    }
    return WD_OK;
}
