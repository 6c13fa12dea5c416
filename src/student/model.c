/* The pass of the student over a micro-batch.
 *
 * One function, run_training, is the pass. wd_student_open first runs it on a dry device, with an
 * arena that has no end: what it used then is what the real arena gets, to the byte. */
#include "student/model.h"

#include <assert.h>

#include "core/memory.h"
#include "core/require.h"
#include "dev/ops.h"

struct wd_student {
    wd_params *params;
    wd_student_mode mode;
    wd_student_plan plan;
    wd_dit_context context;
    wd_arena arena;
    void *arena_block;         /* device; owned */
    wd_dit_embed_saved embed;  /* what the current pass keeps */
    wd_dit_block_saved *block; /* [layers]; owned */
    wd_dit_head_saved head;
    wd_dit_stage weights, dweights; /* of the stage at work: large, so not on the stack */
};

static int64_t velocity_width(const wd_student *s)
{
    const wd_dit_shape *shape = &s->context.shape;
    return s->params->config.out_channels * shape->frames * shape->height * shape->width;
}

static void *push_velocity(wd_student *s)
{
    size_t elements = (size_t)(s->context.shape.samples * velocity_width(s));
    return wd_arena_push(&s->arena, elements * wd_dtype_bytes(s->context.dtype));
}

static wd_dit_stage *weights_of(wd_student *s, int stage)
{
    wd_params_weights(&s->weights, s->params, stage);
    return &s->weights;
}

static wd_dit_stage *grads_of(wd_student *s, int stage)
{
    wd_params_grads(&s->dweights, s->params, stage);
    return &s->dweights;
}

/* Embedding and blocks; what backward needs goes to s->embed and s->block. */
static void forward_kept(wd_dit_stream *stream, wd_student *s, const wd_student_batch *batch)
{
    const wd_dit_context *c = &s->context;
    int layers = (int)s->params->config.layers;
    wd_dit_embed_forward(stream, &s->embed, batch->latents, batch->timestep, batch->text,
                         weights_of(s, 0), c);
    for (int i = 0; i < layers; i++) {
        wd_dit_block_forward(stream, &s->block[i], weights_of(s, 1 + i), c);
    }
}

static void run_training(float *loss, wd_student *s, const wd_student_batch *batch,
                         wd_student_ready_fn *ready, void *ready_context)
{
    const wd_dit_context *c = &s->context;
    int layers = (int)s->params->config.layers, head = layers + 1;
    size_t mark = wd_arena_mark(&s->arena);
    wd_dit_stream stream;
    wd_dit_stream_grad grad;
    wd_dit_stream_grad_push(&grad, c);
    wd_dit_stream_push(&stream, c);
    forward_kept(&stream, s, batch);
    void *velocity = push_velocity(s);
    wd_dit_head_forward(velocity, &s->head, &stream, weights_of(s, head), c);
    void *dvelocity = push_velocity(s);
    wd_op_mse(c->queue, &(wd_mse_args){.loss = loss,
                                       .dy = dvelocity,
                                       .y = velocity,
                                       .target = batch->target,
                                       .type = c->dtype,
                                       .samples = c->shape.samples,
                                       .width = velocity_width(s),
                                       .factor = batch->factor});

    wd_dit_head_backward(&grad, grads_of(s, head), dvelocity, &s->head, &stream,
                         weights_of(s, head), c);
    if (ready) ready(ready_context, head);
    for (int stage = layers; stage >= 1; stage--) {
        wd_dit_block_backward(&grad, grads_of(s, stage), &s->block[stage - 1], &stream,
                              weights_of(s, stage), c);
        if (ready) ready(ready_context, stage);
    }
    wd_dit_embed_backward(NULL, NULL, grads_of(s, 0), &grad, &s->embed, &stream, weights_of(s, 0),
                          c);
    if (ready) ready(ready_context, 0);
    wd_arena_reset(&s->arena, mark);
}

static void run_velocity(float *velocity, wd_student *s, const float *latents,
                         const float *timestep, const void *text)
{
    const wd_dit_context *c = &s->context;
    int layers = (int)s->params->config.layers;
    size_t mark = wd_arena_mark(&s->arena);
    wd_dit_stream stream;
    wd_dit_stream_push(&stream, c);
    wd_dit_embed_forward(&stream, NULL, latents, timestep, text, weights_of(s, 0), c);
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
static wd_status set_up(wd_student *s, wd_params *params, const wd_dit_shape *shape,
                        wd_student_mode mode, wd_queue *queue, wd_err *err)
{
    *s = (wd_student){.params = params, .mode = mode, .arena = wd_arena_over(NULL, SIZE_MAX)};
    s->context = (wd_dit_context){.config = &params->config,
                                  .shape = *shape,
                                  .dtype = params->dtype,
                                  .checkpoint = mode == WD_STUDENT_TRAIN_CHECKPOINT,
                                  .queue = queue,
                                  .arena = &s->arena};
    WD_TRY(wd_alloc((void **)&s->block, (size_t)params->config.layers, sizeof *s->block,
                    "student pass", err));
    return wd_dit_rope_open(&s->context.rope, &params->config, shape, queue, err);
}

static void clean_up(wd_student *s)
{
    wd_dit_rope_close(&s->context.rope);
    if (s->arena_block) wd_device_free(s->params->device, s->arena_block);
    wd_free(s->block);
}

/* Runs one pass of each kind that the mode allows with made-up addresses, and reads the meters. */
static wd_status measure(wd_student_plan *out, wd_params *params, const wd_dit_shape *shape,
                         wd_student_mode mode, wd_queue *queue, wd_err *err)
{
    size_t bytes_before = wd_device_bytes(params->device);
    wd_student *s = NULL;
    wd_status status = WD_OK;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "student pass", err));
    WD_TRY_OUT(set_up(s, params, shape, mode, queue, err));
    *out = (wd_student_plan){.rope_bytes = wd_device_bytes(params->device) - bytes_before};
    double flops = wd_queue_total(queue).flops;
    run_velocity(NULL, s, NULL, NULL, NULL);
    if (mode != WD_STUDENT_SAMPLE) {
        flops = wd_queue_total(queue).flops;
        run_training(NULL, s, &(wd_student_batch){.factor = 1}, NULL, NULL);
    }
    out->flops = wd_queue_total(queue).flops - flops;
    out->arena_bytes = s->arena.peak;
    out->workspace_bytes = wd_queue_workspace_bytes(queue);
out:
    clean_up(s);
    wd_free(s);
    return status;
}

wd_status wd_student_plan_pass(wd_student_plan *out, const wd_dit_config *config,
                               const wd_dit_shape *shape, wd_dtype dtype, wd_student_mode mode,
                               wd_device *target, wd_err *err)
{
    wd_device *dry = NULL;
    wd_queue *queue = NULL;
    wd_params params = {0};
    wd_status status = WD_OK;
    unsigned kinds = mode == WD_STUDENT_SAMPLE ? 0 : WD_PARAMS_TRAINED;
    WD_TRY_OUT(wd_device_open_dry(&dry, target, err));
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    WD_TRY_OUT(wd_params_open(&params, config, dtype, kinds, dry, err));
    WD_TRY_OUT(measure(out, &params, shape, mode, queue, err));
out:
    wd_params_close(&params);
    wd_queue_close(queue);
    wd_device_close(dry);
    return status;
}

wd_status wd_student_open(wd_student **out, wd_params *params, const wd_dit_shape *shape,
                          wd_student_mode mode, wd_queue *queue, wd_err *err)
{
    WD_REQUIRE(mode == WD_STUDENT_SAMPLE || params->kinds & WD_PARAMS_TRAINED,
               "a student without gradients is to be trained");
    wd_student *s = NULL;
    wd_status status = WD_OK;
    wd_student_plan plan;
    WD_TRY(wd_student_plan_pass(&plan, &params->config, shape, params->dtype, mode,
                                params->device, err));
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "student pass", err));
    WD_TRY_OUT(set_up(s, params, shape, mode, queue, err));
    s->plan = plan;
    WD_TRY_OUT(wd_device_alloc(&s->arena_block, params->device, plan.arena_bytes,
                               "student activations", err));
    s->arena = wd_arena_over(s->arena_block, plan.arena_bytes);
    WD_TRY_OUT(wd_queue_reserve_workspace(queue, plan.workspace_bytes, err));
out:
    if (status == WD_OK) *out = s;
    else wd_student_close(s);
    return status;
}

void wd_student_close(wd_student *student)
{
    if (!student) return;
    clean_up(student);
    wd_free(student);
}

const wd_student_plan *wd_student_planned(const wd_student *student) { return &student->plan; }

void wd_student_forward_backward(float *loss, wd_student *student, const wd_student_batch *batch,
                                 wd_student_ready_fn *ready, void *ready_context)
{
    WD_REQUIRE(student->mode != WD_STUDENT_SAMPLE,
               "a student that was opened to sample has no room to be trained");
    assert(student->params->shown == WD_PARAMS_P);
    run_training(loss, student, batch, ready, ready_context);
}

void wd_student_velocity(float *velocity, wd_student *student, const float *latents,
                         const float *timestep, const void *text)
{
    run_velocity(velocity, student, latents, timestep, text);
}
