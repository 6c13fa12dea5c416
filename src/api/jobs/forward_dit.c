/* `forward` of a transformer: the velocity, and on request every gradient of sum(sample *
 * grad_sample).
 *
 * Data flow: file -> device -> embedding, blocks, head, stage by stage through a residency ->
 * sample; with --grad each stage saves the activations of its backward pass, and the stages run
 * backward from the head to the embedding. The same code runs on a dry device first, to find the
 * memory that it needs. */
#include <string.h>

#include "api/jobs/forward.h"
#include "api/jobs/tensor_file.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/text.h"
#include "dev/ops.h"
#include "model/dit/dit.h"
#include "teacher/plan/stage_layout.h"
#include "teacher/run/residency.h"

/* The inputs from the file, and the results: all on the host. */
typedef struct host {
    float *latents, *timestep, *text, *grad_sample; /* [B, C, F, H, W] [B] [T, S, text_dim] */
    float *sample, *dlatents, *dtext, *grads;       /* grads: see pass.grad_offset */
    wd_dit_shape shape;
} host;

/* One pass on one device, dry or not. */
typedef struct pass {
    const wd_dit_config *config;
    wd_dtype dtype;
    bool backward;
    wd_residency *residency;
    wd_queue *queue;
    wd_device *device;
    wd_tensor_table table;
    int64_t *grad_offset; /* [table.count] offset of each gradient in `grads`, in elements */
    int64_t in, out, text, grads_count; /* elements */
    float *d_latents, *d_timestep, *d_sample, *d_dlatents, *d_dtext, *d_grads;
    void *d_text, *d_velocity, *d_dvelocity;
    float *d_staging; /* [largest of text, out]: fp32 before or after conversion to `dtype` */
    void *arena_block;
    wd_arena arena;
    wd_dit_block_saved *saved; /* [layers] */
    wd_dit_context context;
} pass;

/* ---- input ---- */

static wd_status mismatch(wd_err *err, const wd_forward_call *call, const char *name,
                          const char *expected, const int64_t *dim, int ndim)
{
    char text[128];
    return wd_fail(err, WD_MISMATCH, "%s: %s: expected %s, found %s", call->options->in, name,
                   expected, wd_dims_text(text, sizeof text, dim, ndim));
}

static wd_status check_latents(const wd_forward_call *call, const int64_t *x, wd_err *err)
{
    const wd_dit_config *c = &call->pipeline->dit;
    char text[160];
    snprintf(text, sizeof text, "[B, %lld, F, H, W] with F, H, W in multiples of %lld, %lld, %lld",
             (long long)c->in_channels, (long long)c->patch[0], (long long)c->patch[1],
             (long long)c->patch[2]);
    const bool good = x[0] > 0 && x[1] == c->in_channels && x[2] > 0 && x[2] % c->patch[0] == 0 &&
                      x[3] > 0 && x[3] % c->patch[1] == 0 && x[4] > 0 && x[4] % c->patch[2] == 0;
    return good ? WD_OK : mismatch(err, call, "hidden_states", text, x, 5);
}

static wd_status read_input(host *h, const wd_forward_call *call, wd_err *err)
{
    const wd_dit_config *c = &call->pipeline->dit;
    const wd_safetensors *in = call->in;
    int64_t x[5], t[1], text[3], g[5];
    char expected[96];
    WD_TRY(wd__tensor_file_floats(&h->latents, x, 5, in, "hidden_states", err));
    WD_TRY(check_latents(call, x, err));
    WD_TRY(wd__tensor_file_floats(&h->timestep, t, 1, in, "timestep", err));
    snprintf(expected, sizeof expected, "[%lld]", (long long)x[0]);
    if (t[0] != x[0]) return mismatch(err, call, "timestep", expected, t, 1);
    WD_TRY(wd__tensor_file_floats(&h->text, text, 3, in, "encoder_hidden_states", err));
    snprintf(expected, sizeof expected, "[%lld, S, %lld]", (long long)x[0], (long long)c->text_dim);
    if (text[0] != x[0] || text[1] < 1 || text[2] != c->text_dim)
        return mismatch(err, call, "encoder_hidden_states", expected, text, 3);
    h->shape = (wd_dit_shape){.samples = x[0],
                              .texts = x[0],
                              .frames = x[2],
                              .height = x[3],
                              .width = x[4],
                              .text_tokens = text[1]};
    if (!call->options->grad) return WD_OK;
    WD_TRY(wd__tensor_file_floats(&h->grad_sample, g, 5, in, "grad_sample", err));
    snprintf(expected, sizeof expected, "[%lld, %lld, %lld, %lld, %lld]", (long long)x[0],
             (long long)c->out_channels, (long long)x[2], (long long)x[3], (long long)x[4]);
    const bool same = g[0] == x[0] && g[1] == c->out_channels && !memcmp(g + 2, x + 2, 24);
    return same ? WD_OK : mismatch(err, call, "grad_sample", expected, g, 5);
}

/* ---- the pass ---- */

static void close_pass(pass *p)
{
    void *const blocks[] = {p->d_latents,   p->d_timestep, p->d_sample,   p->d_dlatents,
                            p->d_dtext,     p->d_grads,    p->d_text,     p->d_velocity,
                            p->d_dvelocity, p->d_staging,  p->arena_block};
    if (p->queue) wd_queue_wait(p->queue);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        wd_device_free(p->device, blocks[i]);
    wd_dit_rope_close(&p->context.rope);
    wd_free(p->saved);
    wd_free(p->grad_offset);
    wd_dit_table_close(&p->table);
}

static wd_status floats(float **out, const pass *p, int64_t count, wd_err *err)
{
    return wd_device_alloc((void **)out, p->device, (size_t)count * sizeof(float),
                           "tensors of forward", err);
}

static wd_status values(void **out, const pass *p, int64_t count, wd_err *err)
{
    return wd_device_alloc(out, p->device, (size_t)count * wd_dtype_bytes(p->dtype),
                           "tensors of forward", err);
}

/* Opens a pass whose config, dtype, backward, residency and queue are set, and allocates an arena
 * of `arena_bytes`. */
static wd_status open_pass(pass *p, const wd_dit_shape *shape, size_t arena_bytes, wd_err *err)
{
    const int64_t pixels = shape->samples * shape->frames * shape->height * shape->width;
    p->device = wd_queue_device(p->queue);
    p->in = pixels * p->config->in_channels;
    p->out = pixels * p->config->out_channels;
    p->text = shape->texts * shape->text_tokens * p->config->text_dim;
    WD_TRY(wd_dit_table_open(&p->table, p->config, err));
    WD_TRY(wd_alloc((void **)&p->saved, (size_t)p->config->layers, sizeof *p->saved,
                    "saved activations", err));
    WD_TRY(wd_alloc((void **)&p->grad_offset, (size_t)p->table.count, sizeof *p->grad_offset,
                    "gradient offsets", err));
    for (int64_t i = 0; i < p->table.count; i++) {
        const wd_tensor_spec *spec = &p->table.spec[i];
        wd_tensor t = {.ndim = spec->ndim};
        memcpy(t.dim, spec->dim, sizeof t.dim);
        p->grad_offset[i] = p->grads_count;
        p->grads_count += (int64_t)wd_round_up((size_t)wd_tensor_count(&t), WD_ARENA_ALIGN);
    }
    WD_TRY(floats(&p->d_latents, p, p->in, err));
    WD_TRY(floats(&p->d_timestep, p, shape->samples, err));
    WD_TRY(floats(&p->d_sample, p, p->out, err));
    WD_TRY(floats(&p->d_staging, p, p->text > p->out ? p->text : p->out, err));
    WD_TRY(values(&p->d_text, p, p->text, err));
    WD_TRY(values(&p->d_velocity, p, p->out, err));
    if (p->backward) {
        WD_TRY(values(&p->d_dvelocity, p, p->out, err));
        WD_TRY(floats(&p->d_dlatents, p, p->in, err));
        WD_TRY(floats(&p->d_dtext, p, p->text, err));
        WD_TRY(floats(&p->d_grads, p, p->grads_count, err));
    }
    if (!wd_device_is_dry(p->device))
        WD_TRY(wd_device_alloc(&p->arena_block, p->device, arena_bytes, "activations", err));
    p->arena = wd_arena_over(p->arena_block, arena_bytes);
    p->context = (wd_dit_context){.config = p->config,
                                  .shape = *shape,
                                  .dtype = p->dtype,
                                  .queue = p->queue,
                                  .arena = &p->arena};
    return wd_dit_rope_open(&p->context.rope, p->config, shape, p->queue, err);
}

static void cast(const pass *p, void *to, wd_dtype to_type, const void *from, wd_dtype from_type,
                 int64_t count)
{
    wd_op_cast(
        p->queue,
        &(wd_cast_args){
            .to = to, .from = from, .to_type = to_type, .from_type = from_type, .count = count});
}

static void upload(const pass *p, const host *h)
{
    wd_queue_copy_and_wait(p->queue, p->d_latents, h->latents, (size_t)p->in * 4);
    wd_queue_copy_and_wait(p->queue, p->d_timestep, h->timestep, (size_t)h->shape.samples * 4);
    wd_queue_copy_and_wait(p->queue, p->d_staging, h->text, (size_t)p->text * 4);
    cast(p, p->d_text, p->dtype, p->d_staging, WD_F32, p->text);
    if (!p->backward) return;
    wd_queue_copy_and_wait(p->queue, p->d_staging, h->grad_sample, (size_t)p->out * 4);
    cast(p, p->d_dvelocity, p->dtype, p->d_staging, WD_F32, p->out);
    const wd_fill_args zero = {.to = p->d_grads, .type = WD_F32, .count = p->grads_count};
    wd_op_fill(p->queue, &zero);
}

/* Views of a stage's gradients. */
static void grad_stage(wd_dit_stage *out, const pass *p, int stage)
{
    const int64_t first = wd_dit_stage_first(p->config, stage);
    memset(out, 0, sizeof *out);
    for (int i = 0; i < wd_dit_stage_slots(p->config, stage); i++) {
        const wd_tensor_spec *spec = &p->table.spec[first + i];
        out->t[i] = (wd_tensor){
            .data = p->d_grads + p->grad_offset[first + i], .dtype = WD_F32, .ndim = spec->ndim};
        memcpy(out->t[i].dim, spec->dim, sizeof out->t[i].dim);
    }
}

typedef struct saved {
    wd_dit_embed_saved embed;
    wd_dit_head_saved head;
    wd_dit_stream stream;
} saved;

/* Runs one stage forward. */
static void forward_stage(pass *p, saved *s, int stage, const wd_dit_stage *weights)
{
    const wd_dit_context *c = &p->context;
    if (stage == 0)
        wd_dit_embed_forward(&s->stream, p->backward ? &s->embed : NULL, p->d_latents,
                             p->d_timestep, p->d_text, weights, c);
    else if (stage <= (int)p->config->layers)
        wd_dit_block_forward(&s->stream, p->backward ? &p->saved[stage - 1] : NULL, weights, c);
    else
        wd_dit_head_forward(p->d_velocity, p->backward ? &s->head : NULL, &s->stream, weights, c);
}

static void backward_stage(pass *p, saved *s, wd_dit_stream_grad *grad, int stage,
                           const wd_dit_stage *weights)
{
    const wd_dit_context *c = &p->context;
    wd_dit_stage dweights;
    grad_stage(&dweights, p, stage);
    if (stage == 0)
        wd_dit_embed_backward(p->d_dlatents, p->d_dtext, &dweights, grad, &s->embed, &s->stream,
                              weights, c);
    else if (stage <= (int)p->config->layers)
        wd_dit_block_backward(grad, &dweights, &p->saved[stage - 1], &s->stream, weights, c);
    else
        wd_dit_head_backward(grad, &dweights, p->d_dvelocity, &s->head, &s->stream, weights, c);
}

static wd_status run_pass(pass *p, wd_err *err)
{
    saved s = {0};
    wd_dit_stream_grad grad;
    wd_dit_stage weights;
    const int stages = wd_dit_stages(p->config);
    if (p->backward) wd_dit_stream_grad_push(&grad, &p->context);
    wd_dit_stream_push(&s.stream, &p->context);
    for (int i = 0; i < stages; i++) {
        WD_TRY(wd_residency_acquire(p->residency, &weights, 0, i, p->queue, err));
        forward_stage(p, &s, i, &weights);
        wd_residency_release(p->residency, 0, i, p->queue);
    }
    for (int i = stages - 1; i >= 0 && p->backward; i--) {
        WD_TRY(wd_residency_acquire(p->residency, &weights, 0, i, p->queue, err));
        backward_stage(p, &s, &grad, i, &weights);
        wd_residency_release(p->residency, 0, i, p->queue);
    }
    cast(p, p->d_sample, WD_F32, p->d_velocity, p->dtype, p->out);
    return WD_OK;
}

/* Bytes of the arena and of the queue's workspace, by a dry run. WD_DOES_NOT_FIT: there is less
 * memory than weights, activations and results need. */
static wd_status plan(size_t *arena_bytes, size_t *workspace_bytes, const wd_forward_call *call,
                      wd_component component, const pass *like, const wd_dit_shape *shape,
                      wd_err *err)
{
    wd_device *dry = NULL;
    wd_queue *queue = NULL;
    pass p = {.config = like->config, .dtype = like->dtype, .backward = like->backward};
    wd_status status;
    size_t pool = 0;
    WD_TRY_OUT(wd_device_open_dry(&dry, wd_queue_device(like->queue), err));
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    p.queue = queue;
    WD_TRY_OUT(wd_residency_open_resident(&p.residency, call->pipeline, &component, call->dtype,
                                          queue, err));
    WD_TRY_OUT(open_pass(&p, shape, SIZE_MAX, err));
    WD_TRY_OUT(run_pass(&p, err));
    *arena_bytes = p.arena.peak;
    *workspace_bytes = wd_queue_workspace_bytes(queue);
    pool = wd_device_bytes_peak(dry) + *arena_bytes + *workspace_bytes;
    WD_TRY_OUT(wd_device_check_kernels(err));
    WD_TRY_OUT(wd_device_check_planned(dry, err));
    status = wd__forward_check_fits(call, pool,
                                    p.backward ? (size_t)p.grads_count * sizeof(float) : 0, err);
out:
    close_pass(&p);
    wd_residency_close(p.residency);
    wd_queue_close(queue);
    wd_device_close(dry);
    return status;
}

/* ---- output ---- */

static wd_status download(host *h, const pass *p, wd_err *err)
{
    WD_TRY(wd_alloc((void **)&h->sample, (size_t)p->out, 4, "sample", err));
    wd_queue_copy_and_wait(p->queue, h->sample, p->d_sample, (size_t)p->out * 4);
    if (p->backward) {
        WD_TRY(wd_alloc((void **)&h->dlatents, (size_t)p->in, 4, "gradients", err));
        WD_TRY(wd_alloc((void **)&h->dtext, (size_t)p->text, 4, "gradients", err));
        WD_TRY(wd_alloc((void **)&h->grads, (size_t)p->grads_count, 4, "gradients", err));
        wd_queue_copy_and_wait(p->queue, h->dlatents, p->d_dlatents, (size_t)p->in * 4);
        wd_queue_copy_and_wait(p->queue, h->dtext, p->d_dtext, (size_t)p->text * 4);
        wd_queue_copy_and_wait(p->queue, h->grads, p->d_grads, (size_t)p->grads_count * 4);
    }
    return WD_OK;
}

typedef char grad_name[WD_TENSOR_NAME_MAX + 8];

static wd_status write_output(const char *path, const host *h, const pass *p, wd_err *err)
{
    const wd_dit_shape *s = &h->shape;
    const wd_dit_config *c = p->config;
    wd_tensor_out *out = NULL;
    grad_name *name = NULL;
    int64_t n = 0;
    wd_status status;
    WD_TRY_OUT(wd_alloc((void **)&out, (size_t)p->table.count + 3, sizeof *out, "outputs", err));
    WD_TRY_OUT(wd_alloc((void **)&name, (size_t)p->table.count, sizeof *name, "names", err));
    out[n++] = wd__tensor_out_of(
        "sample", WD_F32, h->sample,
        (int64_t[]){s->samples, c->out_channels, s->frames, s->height, s->width}, 5);
    if (p->backward) {
        out[n++] = wd__tensor_out_of(
            "grad.hidden_states", WD_F32, h->dlatents,
            (int64_t[]){s->samples, c->in_channels, s->frames, s->height, s->width}, 5);
        out[n++] = wd__tensor_out_of("grad.encoder_hidden_states", WD_F32, h->dtext,
                                     (int64_t[]){s->texts, s->text_tokens, c->text_dim}, 3);
    }
    for (int64_t i = 0; i < p->table.count && p->backward; i++) {
        const wd_tensor_spec *spec = &p->table.spec[i];
        if (spec->ndim && spec->dim[0] == 0) continue; /* a line that this model does not have */
        snprintf(name[i], sizeof name[i], "grad.%s", spec->name);
        out[n++] =
            wd__tensor_out_of(name[i], WD_F32, h->grads + p->grad_offset[i], spec->dim, spec->ndim);
    }
    status = wd__tensor_file_write(path, out, n, err);
out:
    wd_free(name);
    wd_free(out);
    return status;
}

wd_status wd__forward_transformer(const wd_forward_call *call, wd_component component, wd_err *err)
{
    host h = {0};
    pass p = {.config = &call->pipeline->dit,
              .dtype = call->dtype,
              .backward = call->options->grad,
              .queue = call->run->queue};
    size_t arena_bytes, workspace_bytes;
    wd_residency *residency = NULL;
    wd_status status;
    WD_TRY(wd_pipeline_require(call->pipeline, component, err));
    WD_TRY_OUT(read_input(&h, call, err));
    WD_TRY_OUT(plan(&arena_bytes, &workspace_bytes, call, component, &p, &h.shape, err));
    WD_TRY_OUT(wd_residency_open_resident(&residency, call->pipeline, &component, call->dtype,
                                          p.queue, err));
    p.residency = residency;
    WD_TRY_OUT(wd_queue_reserve_workspace(p.queue, workspace_bytes, err));
    WD_TRY_OUT(open_pass(&p, &h.shape, arena_bytes, err));
    upload(&p, &h);
    WD_TRY_OUT(run_pass(&p, err));
    WD_TRY_OUT(download(&h, &p, err));
    status = write_output(call->options->out, &h, &p, err);
out:
    close_pass(&p);
    wd_residency_close(residency);
    float *const arrays[] = {h.latents, h.timestep, h.text,  h.grad_sample,
                             h.sample,  h.dlatents, h.dtext, h.grads};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) wd_free(arrays[i]);
    return status;
}
