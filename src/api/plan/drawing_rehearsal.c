/* Dry runs of drawing: see api/plan/drawing_impl.h. They launch what the real run launches, on a
 * dry device, which counts the bytes of its blocks. The meter of core/memory.h counts host memory
 * meanwhile. */
#include "api/plan/drawing_impl.h"

#include "core/memory.h"
#include "dev/ops.h"
#include "model/sampling/picture.h"

enum { STEPS = 2 }; /* of the sampler: further steps take the same memory */

/* A dry device that stands for another one, and the memory meter since it was opened. */
typedef struct rehearsal {
    wd_device *device;
    wd_queue *queue;
    int64_t held_before;
    size_t host; /* host memory that the meter does not see */
} rehearsal;

static wd_status begin(rehearsal *r, wd_device *target, wd_err *err)
{
    *r = (rehearsal){0};
    WD_TRY(wd_device_open_dry(&r->device, target, err));
    r->held_before = wd_memory_held();
    wd_memory_restart_peak();
    wd_memory_plan_only(true);
    return wd_queue_open(&r->queue, r->device, err);
}

/* Adds up what was counted, if `status` is WD_OK; closes the device in any case. */
static wd_status end(wd_drawing_need *out, rehearsal *r, wd_status status, wd_err *err)
{
    wd_memory_plan_only(false);
    if (status == WD_OK) status = wd_device_check_kernels(err);
    if (status == WD_OK) status = wd_device_check_planned(r->device, err);
    if (status == WD_OK) {
        const size_t pool = wd_device_bytes_peak(r->device) + wd_queue_workspace_bytes(r->queue);
        const bool is_host = wd_device_traits(r->device)->reads_host;
        out->device = is_host ? 0 : pool;
        out->host = (size_t)(wd_memory_peak() - r->held_before) + r->host + (is_host ? pool : 0);
    }
    wd_queue_close(r->queue);
    wd_device_close(r->device);
    return status;
}

wd_status wd_drawing_rehearse_encoding(wd_drawing_need *out, const wd_drawing *drawing,
                                       wd_dtype dtype, wd_device *device, wd_err *err)
{
    rehearsal r;
    const wd_painter_options *m = drawing->model[0];
    *out = (wd_drawing_need){0};
    wd_status status = begin(&r, device, err);
    if (status == WD_OK && dtype == WD_DTYPE_COUNT)
        status = wd_text_cache_encode(drawing->text, r.queue, err);
    else if (status == WD_OK)
        status = wd_text_cache_rehearse(m->pipeline, m->embeds->tokens, dtype, r.queue, err);
    return end(out, &r, status, err);
}

/* A batch's latents and pictures in host memory, which are zeros. */
typedef struct arrays {
    float *latents, *image;
} arrays;

static wd_status alloc_arrays(arrays *a, const wd_drawing *d, int64_t batch, wd_err *err)
{
    const wd_painter_options *m = d->model[0];
    const int64_t scale = wd_pipeline_vae_scale(d->vae), pixels = m->height * m->width;
    *a = (arrays){0};
    WD_TRY(wd_alloc((void **)&a->latents, (size_t)(batch * pixels),
                    (size_t)m->pipeline->dit.in_channels * sizeof(float), "latents", err));
    return wd_alloc((void **)&a->image, (size_t)(batch * pixels),
                    (size_t)(3 * scale * scale) * sizeof(float), "pictures", err);
}

static void free_arrays(arrays *a)
{
    wd_free(a->latents);
    wd_free(a->image);
}

static wd_status decode(const arrays *a, const wd_drawing *d, int64_t batch, wd_queue *queue,
                        wd_err *err)
{
    return wd_pictures_decode(a->image, a->latents, batch, d->model[0]->height, d->model[0]->width,
                              d->vae, queue, err);
}

wd_status wd_drawing_rehearse_decoding(wd_drawing_need *out, const wd_drawing *drawing,
                                       wd_device *device, int64_t batch, wd_err *err)
{
    rehearsal r;
    arrays a = {0};
    *out = (wd_drawing_need){0};
    wd_status status = begin(&r, device, err);
    if (status == WD_OK) status = alloc_arrays(&a, drawing, batch, err);
    if (status == WD_OK) status = decode(&a, drawing, batch, r.queue, err);
    free_arrays(&a);
    return end(out, &r, status, err);
}

wd_status wd_drawing_rehearse(wd_drawing_need *out, const wd_drawing *drawing,
                              const wd_drawing_plan *plan, wd_err *err)
{
    rehearsal r;
    arrays a = {0};
    wd_painter *painter[WD_DRAWING_MODELS_MAX] = {NULL};
    wd_status status;
    *out = (wd_drawing_need){0};
    WD_TRY_OUT(begin(&r, wd_queue_device(plan->painter), err));
    WD_TRY_OUT(alloc_arrays(&a, drawing, plan->batch, err));
    for (int i = 0; i < drawing->models; i++) {
        wd_painter_options o = *drawing->model[i];
        wd_drawing_follow(&o, plan, drawing->run, i);
        o.steps = o.steps < STEPS ? o.steps : STEPS;
        WD_TRY_OUT(wd_painter_open(&painter[i], &o, r.queue, err));
        r.host += wd_painter_weights(painter[i])->host_bytes;
        out->mapped += wd_painter_weights(painter[i])->mapped_bytes;
    }
    for (int i = 0; i < drawing->models; i++)
        WD_TRY_OUT(
            wd_painter_run(painter[i], a.latents, NULL, 0, wd_painter_batch(painter[i]), err));
    if (!plan->in_turn && plan->decoder == plan->painter)
        WD_TRY_OUT(decode(&a, drawing, plan->batch, r.queue, err));
out:
    for (int i = 0; i < drawing->models; i++) wd_painter_close(painter[i]);
    free_arrays(&a);
    return end(out, &r, status, err);
}
