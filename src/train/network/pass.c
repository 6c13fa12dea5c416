/* A network's pass over a micro-batch: see train/network/pass.h.
 *
 * wd_pass_open first runs the pass on a dry device, with an arena that has no end: what it used
 * then is what the real arena gets, to the byte. */
#include "train/network/pass.h"

#include <assert.h>
#include <inttypes.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/ops.h"

struct wd_pass {
    wd_params *params;
    wd_pass_mode mode;
    wd_pass_plan plan;
    wd_dit_context context;
    wd_arena arena;
    void *arena_block; /* device; owned */
    /* what a forward pass keeps until its backward pass is over */
    size_t mark; /* of the arena: from here on it is all theirs */
    wd_dit_stream stream;
    wd_dit_stream_grad grad;
    wd_dit_embed_saved embed;
    wd_dit_block_saved *block; /* [layers]; owned */
    wd_dit_head_saved head;
    void *dvelocity;
    wd_dit_stage weights, dweights; /* of the stage at work: large, so not on the stack */
};

static int64_t velocity_width(const wd_pass *s)
{
    const wd_dit_shape *shape = &s->context.shape;
    return s->params->config.out_channels * shape->frames * shape->height * shape->width;
}

static void *push_velocity(wd_pass *s)
{
    size_t elements = (size_t)(s->context.shape.samples * velocity_width(s));
    return wd_arena_push(&s->arena, elements * wd_dtype_bytes(s->context.dtype));
}

static wd_dit_stage *weights_of(wd_pass *s, int stage)
{
    wd__params_weights(&s->weights, s->params, stage);
    return &s->weights;
}

/* Zeros, to which a stage adds. */
static wd_dit_stage *grads_of(wd_pass *s, int stage)
{
    wd__params_begin_grads(s->params, stage, s->context.queue);
    wd__params_grads(&s->dweights, s->params, stage);
    return &s->dweights;
}

/* The stage's gradients are final. */
static void end_grads(wd_pass *s, int stage, wd_pass_ready_fn *ready, void *ready_context)
{
    wd__params_end_grads(s->params, stage, s->context.queue);
    if (ready) ready(ready_context, stage);
}

static wd_pass_outputs run_forward(wd_pass *s, const wd_pass_inputs *in)
{
    const wd_dit_context *c = &s->context;
    const int layers = (int)s->params->config.layers;
    s->mark = wd_arena_mark(&s->arena);
    wd_dit_stream_grad_push(&s->grad, c);
    wd_dit_stream_push(&s->stream, c);
    wd_dit_embed_forward(&s->stream, &s->embed, in->latents, in->timestep, in->text,
                         weights_of(s, 0), c);
    for (int i = 0; i < layers; i++)
        wd_dit_block_forward(&s->stream, &s->block[i], weights_of(s, 1 + i), c);
    void *velocity = push_velocity(s);
    wd_dit_head_forward(velocity, &s->head, &s->stream, weights_of(s, layers + 1), c);
    s->dvelocity = push_velocity(s);
    return (wd_pass_outputs){.velocity = velocity,
                             .dvelocity = s->dvelocity,
                             .dtype = c->dtype,
                             .samples = c->shape.samples,
                             .width = velocity_width(s)};
}

static void run_backward(wd_pass *s, wd_pass_ready_fn *ready, void *ready_context)
{
    const wd_dit_context *c = &s->context;
    const int layers = (int)s->params->config.layers, head = layers + 1;
    wd_dit_head_backward(&s->grad, grads_of(s, head), s->dvelocity, &s->head, &s->stream,
                         weights_of(s, head), c);
    end_grads(s, head, ready, ready_context);
    for (int stage = layers; stage >= 1; stage--) {
        wd_dit_block_backward(&s->grad, grads_of(s, stage), &s->block[stage - 1], &s->stream,
                              weights_of(s, stage), c);
        end_grads(s, stage, ready, ready_context);
    }
    wd_dit_embed_backward(NULL, NULL, grads_of(s, 0), &s->grad, &s->embed, &s->stream,
                          weights_of(s, 0), c);
    end_grads(s, 0, ready, ready_context);
    wd_arena_reset(&s->arena, s->mark);
}

static void run_velocity(float *velocity, wd_pass *s, const wd_pass_inputs *in, int64_t samples)
{
    wd_dit_context fewer = s->context;
    const wd_dit_context *c = &fewer;
    fewer.shape.samples = samples;
    if (fewer.shape.texts > 1) fewer.shape.texts = samples;
    int layers = (int)s->params->config.layers;
    size_t mark = wd_arena_mark(&s->arena);
    wd_dit_stream stream;
    wd_dit_stream_push(&stream, c);
    wd_dit_embed_forward(&stream, NULL, in->latents, in->timestep, in->text, weights_of(s, 0), c);
    for (int i = 0; i < layers; i++) {
        wd_dit_block_forward(&stream, NULL, weights_of(s, 1 + i), c);
    }
    bool cast = c->dtype != WD_F32;
    void *out = cast ? push_velocity(s) : velocity;
    wd_dit_head_forward(out, NULL, &stream, weights_of(s, layers + 1), c);
    if (cast) {
        wd_op_cast(c->queue, &(wd_cast_args){.to = velocity,
                                             .from = out,
                                             .to_type = WD_F32,
                                             .from_type = c->dtype,
                                             .count = c->shape.samples * velocity_width(s)});
    }
    wd_arena_reset(&s->arena, mark);
}

/* The members that a pass reads, with an arena without end and no memory of its own. */
static wd_status set_up(wd_pass *s, wd_params *params, const wd_dit_shape *shape, wd_pass_mode mode,
                        wd_queue *queue, wd_err *err)
{
    *s = (wd_pass){.params = params, .mode = mode, .arena = wd_arena_over(NULL, SIZE_MAX)};
    s->context = (wd_dit_context){.config = &params->config,
                                  .shape = *shape,
                                  .dtype = params->dtype,
                                  .checkpoint = mode == WD_PASS_TRAIN_CHECKPOINT,
                                  .queue = queue,
                                  .arena = &s->arena};
    WD_TRY(wd_alloc((void **)&s->block, (size_t)params->config.layers, sizeof *s->block,
                    "network pass", err));
    return wd_dit_rope_open(&s->context.rope, &params->config, shape, queue, err);
}

static void clean_up(wd_pass *s)
{
    wd_dit_rope_close(&s->context.rope);
    if (s->arena_block) wd_device_free(s->params->device, s->arena_block);
    wd_free(s->block);
}

/* Runs one pass of each kind that the mode allows with made-up addresses, and reads the meters. */
static wd_status measure(wd_pass_plan *out, wd_params *params, const wd_dit_shape *shape,
                         wd_pass_mode mode, wd_queue *queue, wd_err *err)
{
    size_t bytes_before = wd_device_bytes(params->device);
    wd_pass *s = NULL;
    wd_status status = WD_OK;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "network pass", err));
    WD_TRY_OUT(set_up(s, params, shape, mode, queue, err));
    *out = (wd_pass_plan){.rope_bytes = wd_device_bytes(params->device) - bytes_before};
    const int64_t step = wd_dit_samples_step(shape->samples);
    for (int64_t n = shape->samples - step; mode == WD_PASS_FORWARD && n > 0; n -= step)
        run_velocity(NULL, s, &(wd_pass_inputs){0}, n);
    double flops = wd_queue_total(queue).flops;
    run_velocity(NULL, s, &(wd_pass_inputs){0}, shape->samples);
    if (mode != WD_PASS_FORWARD) {
        flops = wd_queue_total(queue).flops;
        run_forward(s, &(wd_pass_inputs){0});
        run_backward(s, NULL, NULL);
    }
    out->flops = wd_queue_total(queue).flops - flops;
    out->arena_bytes = s->arena.peak;
    out->workspace_bytes = wd_queue_workspace_bytes(queue);
out:
    clean_up(s);
    wd_free(s);
    return status;
}

/* Closes `dry`. */
static wd_status plan_on(wd_pass_plan *out, const wd_dit_config *config, const wd_dit_shape *shape,
                         wd_dtype dtype, wd_pass_mode mode, wd_device *dry, wd_err *err)
{
    wd_queue *queue = NULL;
    wd_params params = {0};
    wd_status status = WD_OK;
    unsigned kinds = mode == WD_PASS_FORWARD ? 0 : WD_PARAMS_TRAINED;
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    WD_TRY_OUT(wd_params_open(&params, config, dtype, kinds, dry, err));
    WD_TRY_OUT(measure(out, &params, shape, mode, queue, err));
    WD_TRY_OUT(wd_device_check_planned(dry, err));
out:
    wd_params_close(&params);
    wd_queue_close(queue);
    wd_device_close(dry);
    return status;
}

wd_status wd__pass_plan_for(wd_pass_plan *out, const wd_dit_config *config,
                            const wd_dit_shape *shape, wd_dtype dtype, wd_pass_mode mode,
                            wd_device *target, wd_err *err)
{
    wd_device *dry;
    WD_TRY(wd_device_open_dry(&dry, target, err));
    return plan_on(out, config, shape, dtype, mode, dry, err);
}

wd_status wd_pass_open(wd_pass **out, wd_params *params, const wd_dit_shape *shape,
                       wd_pass_mode mode, wd_queue *queue, wd_err *err)
{
    WD_REQUIRE(mode == WD_PASS_FORWARD || params->kinds & WD_PARAMS_TRAINED,
               "a network without gradients is to be trained");
    wd_pass *s = NULL;
    wd_status status = WD_OK;
    wd_pass_plan plan;
    wd_device *dry;
    WD_TRY(wd_device_open_rehearsed(&dry, params->device, err));
    WD_TRY(plan_on(&plan, &params->config, shape, params->dtype, mode, dry, err));
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "network pass", err));
    WD_TRY_OUT(set_up(s, params, shape, mode, queue, err));
    s->plan = plan;
    WD_TRY_OUT(wd_device_alloc(&s->arena_block, params->device, plan.arena_bytes,
                               params->names->activations, err));
    s->arena = wd_arena_over(s->arena_block, plan.arena_bytes);
    WD_TRY_OUT(wd_queue_reserve_workspace(queue, plan.workspace_bytes, err));
out:
    if (status == WD_OK)
        *out = s;
    else
        wd_pass_close(s);
    return status;
}

void wd_pass_close(wd_pass *pass)
{
    if (!pass) return;
    clean_up(pass);
    wd_free(pass);
}

const wd_pass_plan *wd_pass_planned(const wd_pass *pass)
{
    return &pass->plan;
}

wd_pass_outputs wd_pass_forward(wd_pass *pass, const wd_pass_inputs *inputs)
{
    WD_REQUIRE(pass->mode != WD_PASS_FORWARD,
               "a network that was opened to sample has no room to be trained");
    WD_REQUIRE(!pass->dvelocity, "a pass begins before the last one's backward pass");
    assert(pass->params->shown == WD_PARAMS_P);
    return run_forward(pass, inputs);
}

void wd_pass_backward(wd_pass *pass, wd_pass_ready_fn *ready, void *ready_context)
{
    WD_REQUIRE(pass->dvelocity, "a backward pass without a forward pass");
    run_backward(pass, ready, ready_context);
    pass->dvelocity = NULL;
}

void wd_pass_velocity(float *velocity, wd_pass *pass, const wd_pass_inputs *inputs)
{
    wd_pass_velocity_of(velocity, pass, inputs, pass->context.shape.samples);
}

void wd_pass_velocity_of(float *velocity, wd_pass *pass, const wd_pass_inputs *inputs,
                         int64_t samples)
{
    WD_REQUIRE(!pass->dvelocity, "a pass begins before the last one's backward pass");
    WD_REQUIRE(samples >= 1 && samples <= pass->context.shape.samples,
               "a pass of %" PRId64 " samples, opened for %" PRId64, samples,
               pass->context.shape.samples);
    run_velocity(velocity, pass, inputs, samples);
}
