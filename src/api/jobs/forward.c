/* `forward` runs a component on the tensors of a file and writes its results. This file has the
 * text encoder and the VAE.
 *
 * The tensors have the names of the reference implementations, so that files of diffusers or
 * transformers can be used and compared without changes. */
#include "api/jobs/forward.h"

#include <string.h>

#include "api/jobs/tensor_file.h"
#include "api/options/options.h"
#include "api/setup/dtypes.h"
#include "api/setup/memory_report.h"
#include "api/setup/run.h"
#include "core/checked.h"
#include "core/host.h"
#include "core/locale.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/writable.h"
#include "model/text/umt5.h"
#include "model/vae/vae.h"

/* ---- memory ---- */

wd_status wd__forward_check_fits(const wd_forward_call *call, size_t pool, size_t host, wd_err *err)
{
    char needed[32], there[32];
    const wd_device *device = call->run->device;
    const bool is_host = wd_device_traits(device)->reads_host;
    const size_t free = wd_host_memory_available();
    const size_t most = is_host ? SIZE_MAX : wd_device_bytes_max(device);
    const size_t in_host = host + (is_host ? pool : 0);
    if (pool > most)
        return wd_fail(err, WD_DOES_NOT_FIT,
                       "%s: %s needs %s of %s, and %s are there; nothing was loaded. Take "
                       "%s--device cpu, or smaller inputs",
                       call->options->in, call->options->component,
                       wd_bytes_text(needed, sizeof needed, pool), wd_device_name(device),
                       wd_bytes_text(there, sizeof there, most),
                       call->dtype == WD_F32 ? "--dtype bfloat16, " : "");
    if (in_host <= free) return WD_OK;
    return wd_fail(err, WD_DOES_NOT_FIT,
                   "%s: %s needs %s of host memory, and %s are free; nothing was loaded. Take "
                   "%ssmaller inputs",
                   call->options->in, call->options->component,
                   wd_bytes_text(needed, sizeof needed, in_host),
                   wd_bytes_text(there, sizeof there, free),
                   call->dtype == WD_F32 ? "--dtype bfloat16, or " : "");
}

/* Something that is run on a dry queue before it is run on the job's. */
typedef wd_status run_fn(void *context, wd_queue *queue, wd_err *err);

static wd_status rehearse(const wd_forward_call *call, run_fn *fn, void *context, wd_err *err)
{
    wd_device *dry = NULL;
    wd_queue *queue = NULL;
    wd_status status;
    const int64_t before = wd_memory_held();
    size_t pool = 0, host = 0;
    WD_TRY_OUT(wd_device_open_dry(&dry, call->run->device, err));
    wd_memory_restart_peak();
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    WD_TRY_OUT(fn(context, queue, err));
    pool = wd_device_bytes_peak(dry) + wd_queue_workspace_bytes(queue);
    host = (size_t)(wd_memory_peak() - before);
    WD_TRY_OUT(wd_device_check_kernels(err));
    status = wd_device_check_planned(dry, err);
out:
    wd_queue_close(queue);
    wd_device_close(dry);
    return status == WD_OK ? wd__forward_check_fits(call, pool, host, err) : status;
}

/* Runs `fn` on a dry queue and then on the job's. WD_DOES_NOT_FIT, before the second run: there is
 * not so much memory. */
static wd_status run_dry_first(const wd_forward_call *call, run_fn *fn, void *context, wd_err *err)
{
    WD_TRY(rehearse(call, fn, context, err));
    return fn(context, call->run->queue, err);
}

/* ---- text encoder ---- */

/* Sets rows after a text's end to zero, as the pipeline does; transformers leaves meaningless
 * values there. */
static void zero_masked(float *rows, const int32_t *mask, int64_t count, int64_t width)
{
    for (int64_t i = 0; i < count; i++)
        if (!mask[i]) memset(rows + i * width, 0, (size_t)width * sizeof *rows);
}

/* Prompts [count, tokens] and their embeddings. */
typedef struct encoding {
    const wd_forward_call *call;
    const wd_safetensors *weights;
    float *rows;
    const int32_t *ids, *mask;
    int64_t count, tokens;
} encoding;

static wd_status encode(void *context, wd_queue *queue, wd_err *err)
{
    const encoding *e = context;
    const wd_forward_call *call = e->call;
    wd_umt5 *encoder;
    WD_TRY(wd_umt5_open(&encoder, &call->pipeline->umt5, e->weights, call->dtype, queue, err));
    const wd_status status =
        wd_umt5_encode(encoder, e->rows, e->ids, e->mask, e->count, e->tokens, err);
    wd_umt5_close(encoder);
    return status;
}

static wd_status run_text_encoder(const wd_forward_call *call, wd_err *err)
{
    const wd_umt5_config *config = &call->pipeline->umt5;
    int64_t dim[2], mask_dim[2];
    int32_t *ids = NULL, *mask = NULL;
    float *rows = NULL;
    wd_safetensors *weights = NULL;
    wd_status status;
    WD_TRY_OUT(wd__tensor_file_ints(&ids, dim, 2, call->in, "input_ids", err));
    WD_TRY_OUT(wd__tensor_file_ints(&mask, mask_dim, 2, call->in, "attention_mask", err));
    if (dim[0] != mask_dim[0] || dim[1] != mask_dim[1]) {
        status = wd_fail(err, WD_MISMATCH,
                         "%s: attention_mask: expected the shape of input_ids, [%lld, %lld], found "
                         "[%lld, %lld]",
                         call->options->in, (long long)dim[0], (long long)dim[1],
                         (long long)mask_dim[0], (long long)mask_dim[1]);
        goto out;
    }
    WD_TRY_OUT(wd_alloc((void **)&rows, (size_t)(dim[0] * dim[1]),
                        (size_t)config->d_model * sizeof *rows, "last_hidden_state", err));
    WD_TRY_OUT(wd_pipeline_open_weights(&weights, call->pipeline, WD_COMPONENT_TEXT_ENCODER, err));
    WD_TRY_OUT(run_dry_first(call, encode,
                             &(encoding){call, weights, rows, ids, mask, dim[0], dim[1]}, err));
    zero_masked(rows, mask, dim[0] * dim[1], config->d_model);
    const wd_tensor_out out = wd__tensor_out_of("last_hidden_state", WD_F32, rows,
                                                (int64_t[]){dim[0], dim[1], config->d_model}, 3);
    status = wd__tensor_file_write(call->options->out, &out, 1, err);
out:
    wd_safetensors_close(weights);
    wd_free(rows);
    wd_free(mask);
    wd_free(ids);
    return status;
}

/* ---- VAE ---- */

/* What goes through the VAE: `in` of shape `dim`. */
typedef struct coding {
    const wd_forward_call *call;
    const wd_safetensors *weights;
    wd_vae_part part;
    float *out, *in;
    const int64_t *dim;
} coding;

static wd_status code(void *context, wd_queue *queue, wd_err *err)
{
    const coding *c = context;
    wd_vae *vae;
    WD_TRY(wd_vae_open(&vae, &c->call->pipeline->vae, c->weights, c->part, queue, err));
    const wd_status status = c->part == WD_VAE_DECODER
                                 ? wd_vae_decode(vae, c->out, c->in, c->dim, err)
                                 : wd_vae_encode(vae, c->out, c->in, c->dim, err);
    wd_vae_close(vae);
    return status;
}

/* Checks that C of a VAE's input [B, C, F, H, W] is `channels`. */
static wd_status check_channels(const wd_forward_call *call, const char *name, const int64_t dim[5],
                                int64_t channels, wd_err *err)
{
    char text[128];
    if (dim[1] == channels && dim[0] > 0 && dim[2] > 0 && dim[3] > 0 && dim[4] > 0) return WD_OK;
    return wd_fail(err, WD_MISMATCH, "%s: %s: expected [B, %lld, F, H, W], found %s",
                   call->options->in, name, (long long)channels,
                   wd_dims_text(text, sizeof text, dim, 5));
}

static wd_status alloc_floats(float **out, const int64_t dim[5], const char *what, wd_err *err)
{
    size_t count = 1;
    for (int i = 0; i < 5; i++)
        if (dim[i] < 1 || !wd_mul_size(&count, count, (size_t)dim[i]))
            return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for more than 2^63 %s", what);
    return wd_alloc((void **)out, count, sizeof **out, what, err);
}

static wd_status run_vae_decoder(const wd_forward_call *call, wd_err *err)
{
    const wd_vae_config *config = &call->pipeline->vae;
    const int64_t s = wd_pipeline_vae_scale(call->pipeline);
    int64_t dim[5];
    float *latents = NULL, *image = NULL;
    wd_safetensors *weights = NULL;
    wd_status status;
    WD_TRY_OUT(wd__tensor_file_floats(&latents, dim, 5, call->in, "latents", err));
    WD_TRY_OUT(check_channels(call, "latents", dim, config->z_dim, err));
    const int64_t out_dim[5] = {dim[0], 3, config->scale_factor_temporal * (dim[2] - 1) + 1,
                                dim[3] * s, dim[4] * s};
    WD_TRY_OUT(alloc_floats(&image, out_dim, "values of pictures", err));
    WD_TRY_OUT(wd_pipeline_open_weights(&weights, call->pipeline, WD_COMPONENT_VAE, err));
    WD_TRY_OUT(run_dry_first(call, code,
                             &(coding){call, weights, WD_VAE_DECODER, image, latents, dim}, err));
    const wd_tensor_out out = wd__tensor_out_of("sample", WD_F32, image, out_dim, 5);
    status = wd__tensor_file_write(call->options->out, &out, 1, err);
out:
    wd_safetensors_close(weights);
    wd_free(image);
    wd_free(latents);
    return status;
}

static wd_status run_vae_encoder(const wd_forward_call *call, wd_err *err)
{
    const wd_vae_config *config = &call->pipeline->vae;
    const int64_t s = wd_pipeline_vae_scale(call->pipeline);
    int64_t dim[5];
    float *image = NULL, *mean = NULL;
    wd_safetensors *weights = NULL;
    wd_status status;
    WD_TRY_OUT(wd__tensor_file_floats(&image, dim, 5, call->in, "image", err));
    WD_TRY_OUT(check_channels(call, "image", dim, 3, err));
    if (dim[3] % s || dim[4] % s) {
        status =
            wd_fail(err, WD_MISMATCH,
                    "%s: image: expected a height and width in multiples of %lld, found %lld x "
                    "%lld",
                    call->options->in, (long long)s, (long long)dim[3], (long long)dim[4]);
        goto out;
    }
    const int64_t out_dim[5] = {dim[0], config->z_dim,
                                1 + (dim[2] - 1) / config->scale_factor_temporal, dim[3] / s,
                                dim[4] / s};
    WD_TRY_OUT(alloc_floats(&mean, out_dim, "values of latents", err));
    WD_TRY_OUT(wd_pipeline_open_weights(&weights, call->pipeline, WD_COMPONENT_VAE, err));
    WD_TRY_OUT(
        run_dry_first(call, code, &(coding){call, weights, WD_VAE_ENCODER, mean, image, dim}, err));
    const wd_tensor_out out = wd__tensor_out_of("encoded_mean", WD_F32, mean, out_dim, 5);
    status = wd__tensor_file_write(call->options->out, &out, 1, err);
out:
    wd_safetensors_close(weights);
    wd_free(mean);
    wd_free(image);
    return status;
}

/* The dtype of a transformer or the text encoder is that of its file, unless --dtype names one. */
static wd_status choose_dtype(wd_forward_call *call, wd_err *err)
{
    const wd_forward_options *o = call->options;
    static const wd_component components[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TRANSFORMER_2,
                                              WD_COMPONENT_TEXT_ENCODER};
    call->dtype = WD_F32;
    for (int i = 0; i < 3; i++) {
        if (strcmp(o->component, wd_component_name(components[i]))) continue;
        WD_TRY(wd_pipeline_require(call->pipeline, components[i], err));
        return wd_compute_dtype(&call->dtype, o->dtype, call->pipeline, components[i],
                                call->run->device, err);
    }
    return WD_OK;
}

/* Runs the component of the options, and checks which options it takes. */
static wd_status dispatch(const wd_forward_call *call, wd_err *err)
{
    const wd_forward_options *o = call->options;
    const char *name = o->component;
    if (!strcmp(name, "transformer"))
        return wd__forward_transformer(call, WD_COMPONENT_TRANSFORMER, err);
    if (!strcmp(name, "transformer_2"))
        return wd__forward_transformer(call, WD_COMPONENT_TRANSFORMER_2, err);
    if (o->grad)
        return wd_fail(err, WD_UNSUPPORTED,
                       "--grad: only transformers have gradients here, %s has none", name);
    if (!strcmp(name, "text_encoder")) {
        WD_TRY(wd_pipeline_require(call->pipeline, WD_COMPONENT_TEXT_ENCODER, err));
        return run_text_encoder(call, err);
    }
    WD_TRY(wd_pipeline_require(call->pipeline, WD_COMPONENT_VAE, err));
    if (o->dtype && strcmp(o->dtype, "float32"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "--dtype %s: the VAE computes in float32, as pipelines keep it", o->dtype);
    return !strcmp(name, "vae_decoder") ? run_vae_decoder(call, err) : run_vae_encoder(call, err);
}

wd_status wd__forward_on(wd_run *run, const wd_forward_options *options, wd_err *err)
{
    wd_pipeline pipeline;
    wd_merged merged = {0};
    wd_safetensors *in = NULL;
    wd_pipeline_parts parts = WD_PARTS_OF(options);
    wd_forward_call call = {.options = options, .pipeline = &pipeline, .run = run};
    wd_status status;
    parts.one_expert = true;
    WD_TRY_OUT(wd_pipeline_open_parts(&pipeline, options->model, &parts, err));
    WD_TRY_OUT(wd__tensor_file_check(options->out, "--out", options->in, err));
    WD_TRY_OUT(wd_safetensors_open(&in, options->in, err));
    WD_TRY_OUT(choose_dtype(&call, err));
    WD_TRY_OUT(wd_merged_open(&merged, &pipeline, call.dtype, err));
    call.in = in;
    status = dispatch(&call, err);
out:
    wd_merged_close(&merged);
    wd_safetensors_close(in);
    return status;
}

wd_status wd_forward(const wd_forward_options *options, wd_err *err)
{
    WD_C_LOCALE;
    wd_run run;
    WD_TRY(wd_run_open(&run, WD_JOB_FORWARD, options, options->device, options->num_threads, err));
    const wd_status status = wd__forward_on(&run, options, err);
    wd_run_close(&run);
    return status;
}
