/* Functions of the transformer's tests: a fixture's model and inputs on a device, one pass, its
 * results on the host. All data is copied to and from the device, so that the tests run on the
 * guard device, too. */
#ifndef WD_TESTS_HARNESS_DIT_H
#define WD_TESTS_HARNESS_DIT_H

#include "testing.h"

#include "core/random.h"
#include "model/dit/dit.h"
#include "model/tables/config.h"

/* The layout of weights: adjacent in table order, as in flat parameters, so that Q, K and V are one
 * block; or with a gap after each. */
typedef enum harness_layout { HARNESS_FLAT, HARNESS_GAPS } harness_layout;

typedef wd_status harness_opener(wd_device **out, int threads, wd_err *err);

typedef struct harness {
    wd_dit_config config;
    wd_dtype dtype;
    wd_device *device;
    wd_queue *queue;
    wd_tensor_table table;
    wd_tensor *weight, *grad; /* [table.count], device views */
    char *weights, *grads;    /* device blocks of both */
    size_t weight_bytes, grad_bytes;
} harness;

/* Inputs on the host, all F32. */
typedef struct harness_inputs {
    wd_dit_shape shape;
    float *latents, *timestep, *text, *grad_sample;
} harness_inputs;

typedef struct harness_results {
    float *sample;
    float **grad; /* [table.count], NULL where a tensor has no element */
    float *dlatents, *dtext;
    int64_t count;                       /* of grad */
    size_t arena_bytes, workspace_bytes; /* used */
    int64_t allocs;                      /* of the device, during the pass */
    wd_queue_totals totals;
} harness_results;

/* How a pass is run. */
typedef struct harness_mode {
    bool backward, checkpoint;
    size_t arena_bytes; /* 0: measured by a dry run first */
} harness_mode;

static inline void *harness_host(size_t bytes)
{
    void *out;
    wd_err err;
    wd_test_ok(wd_alloc(&out, 1, bytes ? bytes : 1, "test data", &err), &err);
    return out;
}

static inline void *harness_alloc(wd_device *device, size_t bytes)
{
    void *out;
    wd_err err;
    wd_test_ok(wd_device_alloc(&out, device, bytes, "test data", &err), &err);
    return out;
}

/* Copies `count` values to the device, rounded to `type`. */
static inline void harness_put(wd_queue *queue, void *to, const float *from, wd_dtype type,
                               int64_t count)
{
    size_t bytes = (size_t)count * wd_dtype_bytes(type);
    void *staging = harness_host(bytes);
    for (int64_t i = 0; i < count; i++) {
        if (type == WD_BF16)
            ((uint16_t *)staging)[i] = wd_f32_to_bf16(from[i]);
        else
            ((float *)staging)[i] = from[i];
    }
    wd_queue_copy_and_wait(queue, to, staging, bytes);
    wd_queue_wait(queue);
    wd_free(staging);
}

/* Copies `count` values to a new host array of fp32. */
static inline float *harness_get(wd_queue *queue, const void *from, wd_dtype type, int64_t count)
{
    size_t bytes = (size_t)count * wd_dtype_bytes(type);
    void *staging = harness_host(bytes);
    float *out = harness_host((size_t)count * sizeof *out);
    wd_queue_copy_and_wait(queue, staging, from, bytes);
    wd_queue_wait(queue);
    for (int64_t i = 0; i < count; i++)
        out[i] = type == WD_BF16 ? wd_bf16_to_f32(((uint16_t *)staging)[i]) : ((float *)staging)[i];
    wd_free(staging);
    return out;
}

/* ---- model ---- */

/* Allocates the blocks of weights and gradients, and sets the views; values are not set. */
static inline void harness_layout_tensors(harness *h, harness_layout layout)
{
    size_t gap = layout == HARNESS_GAPS ? 192 : 0, w = 0, g = 0;
    h->weight = harness_host((size_t)h->table.count * sizeof *h->weight);
    h->grad = harness_host((size_t)h->table.count * sizeof *h->grad);
    for (int64_t i = 0; i < h->table.count; i++) {
        const wd_tensor_spec *spec = &h->table.spec[i];
        wd_tensor t = {.data = (void *)w, .dtype = wd_spec_dtype(spec, h->dtype)};
        t.ndim = spec->ndim;
        memcpy(t.dim, spec->dim, sizeof t.dim);
        h->weight[i] = h->grad[i] = t;
        h->grad[i].data = (void *)g;
        h->grad[i].dtype = WD_F32;
        w = (w + wd_tensor_bytes(&h->weight[i]) + gap + 63) / 64 * 64;
        g = (g + wd_tensor_bytes(&h->grad[i]) + gap + 63) / 64 * 64;
    }
    h->weights = harness_alloc(h->device, w);
    h->grads = harness_alloc(h->device, g);
    h->weight_bytes = w;
    h->grad_bytes = g;
    for (int64_t i = 0; i < h->table.count; i++) {
        h->weight[i].data = h->weights + (size_t)h->weight[i].data;
        h->grad[i].data = h->grads + (size_t)h->grad[i].data;
    }
}

/* Opens a model without values on the caller's device. */
static inline void harness_open_empty(harness *h, const wd_dit_config *config, wd_dtype dtype,
                                      wd_device *device, harness_layout layout)
{
    wd_err err;
    *h = (harness){.config = *config, .dtype = dtype, .device = device};
    wd_test_ok(wd_queue_open(&h->queue, device, &err), &err);
    wd_test_ok(wd_dit_table_open(&h->table, config, &err), &err);
    harness_layout_tensors(h, layout);
}

/* Opens the fixture's model. */
static inline void harness_open(harness *h, const char *fixture, wd_dtype dtype,
                                harness_opener *opener, int threads, harness_layout layout)
{
    char folder[WD_PATH_MAX], path[WD_PATH_MAX + 16];
    wd_err err;
    json_t *json;
    wd_dit_config config;
    wd_device *device;
    wd_safetensors *set;
    snprintf(folder, sizeof folder, "%s/tests/fixtures/%s/transformer", WD_SOURCE_DIR, fixture);
    snprintf(path, sizeof path, "%s/config.json", folder);
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    wd_test_ok(wd_dit_config_read(&config, json, path, &err), &err);
    json_decref(json);
    wd_test_ok(opener(&device, threads, &err), &err);
    harness_open_empty(h, &config, dtype, device, layout);
    wd_test_ok(wd_safetensors_open_stem(&set, folder, "diffusion_pytorch_model", &err), &err);
    for (int64_t i = 0; i < h->table.count; i++) {
        wd_tensor file, *to = &h->weight[i];
        if (wd_tensor_count(to) == 0) continue;
        wd_test_ok(wd_safetensors_expect(&file, set, &h->table.spec[i], &err), &err);
        assert_int_equal(file.dtype, WD_F32);
        harness_put(h->queue, to->data, file.data, to->dtype, wd_tensor_count(to));
    }
    wd_safetensors_close(set);
}

/* Closes all but the device. */
static inline void harness_close_model(harness *h)
{
    wd_device_free(h->device, h->grads);
    wd_device_free(h->device, h->weights);
    wd_queue_close(h->queue);
    wd_dit_table_close(&h->table);
    wd_free(h->weight);
    wd_free(h->grad);
}

static inline void harness_close(harness *h)
{
    harness_close_model(h);
    wd_device_close(h->device);
}

static inline void harness_stage(wd_dit_stage *out, const harness *h, const wd_tensor *tensors,
                                 int stage)
{
    memcpy(out->t, tensors + wd_dit_stage_first(&h->config, stage),
           (size_t)wd_dit_stage_slots(&h->config, stage) * sizeof *tensors);
}

/* ---- inputs ---- */

static inline float *harness_load(const char *fixture, const char *name, wd_tensor *view)
{
    char file[WD_PATH_MAX];
    snprintf(file, sizeof file, "tests/fixtures/%s/in.safetensors", fixture);
    *view = wd_test_load(file, name);
    return view->data;
}

static inline void harness_inputs_load(harness_inputs *in, const char *fixture)
{
    wd_tensor x, t, text, g;
    in->latents = harness_load(fixture, "hidden_states", &x);
    int64_t *steps = (int64_t *)(void *)harness_load(fixture, "timestep", &t);
    in->text = harness_load(fixture, "encoder_hidden_states", &text);
    in->grad_sample = harness_load(fixture, "grad_sample", &g);
    in->timestep = harness_host((size_t)t.dim[0] * sizeof(float));
    for (int64_t i = 0; i < t.dim[0]; i++) in->timestep[i] = (float)steps[i];
    wd_free(steps);
    in->shape = (wd_dit_shape){.samples = x.dim[0],
                               .texts = x.dim[0],
                               .frames = x.dim[2],
                               .height = x.dim[3],
                               .width = x.dim[4],
                               .text_tokens = text.dim[1]};
}

static inline void harness_inputs_free(harness_inputs *in)
{
    wd_free(in->latents);
    wd_free(in->timestep);
    wd_free(in->text);
    wd_free(in->grad_sample);
}

/* ---- passes ---- */

/* A pass' inputs and outputs on the device. */
typedef struct harness_io {
    float *latents, *timestep, *dlatents, *dtext;
    void *text, *velocity, *dvelocity;
    int64_t in, out, texts; /* elements of latents, velocity, text */
} harness_io;

static inline harness_io harness_io_open(const harness *h, const harness_inputs *in)
{
    const wd_dit_shape *s = &in->shape;
    int64_t pixels = s->samples * s->frames * s->height * s->width;
    size_t bytes = wd_dtype_bytes(h->dtype);
    harness_io io = {.in = pixels * h->config.in_channels,
                     .out = pixels * h->config.out_channels,
                     .texts = s->texts * s->text_tokens * h->config.text_dim};
    io.latents = harness_alloc(h->device, (size_t)io.in * 4);
    io.timestep = harness_alloc(h->device, (size_t)s->samples * 4);
    io.dlatents = harness_alloc(h->device, (size_t)io.in * 4);
    io.dtext = harness_alloc(h->device, (size_t)io.texts * 4);
    io.text = harness_alloc(h->device, (size_t)io.texts * bytes);
    io.velocity = harness_alloc(h->device, (size_t)io.out * bytes);
    io.dvelocity = harness_alloc(h->device, (size_t)io.out * bytes);
    if (wd_device_is_dry(h->device)) return io;
    /* diffusers casts the latents to the compute dtype */
    float *latents = harness_host((size_t)io.in * 4);
    for (int64_t i = 0; i < io.in; i++)
        latents[i] =
            h->dtype == WD_BF16 ? wd_bf16_to_f32(wd_f32_to_bf16(in->latents[i])) : in->latents[i];
    harness_put(h->queue, io.latents, latents, WD_F32, io.in);
    wd_free(latents);
    harness_put(h->queue, io.timestep, in->timestep, WD_F32, s->samples);
    harness_put(h->queue, io.text, in->text, h->dtype, io.texts);
    harness_put(h->queue, io.dvelocity, in->grad_sample, h->dtype, io.out);
    return io;
}

static inline void harness_io_close(const harness *h, harness_io *io)
{
    void *blocks[] = {io->latents, io->timestep, io->dlatents, io->dtext,
                      io->text,    io->velocity, io->dvelocity};
    for (int i = 0; i < 7; i++) wd_device_free(h->device, blocks[i]);
}

/* The pass itself, as the student runs it. */
static inline void harness_pass(const harness *h, const harness_io *io, const harness_mode *mode,
                                const wd_dit_context *c)
{
    const bool backward = mode->backward;
    int layers = (int)h->config.layers;
    wd_dit_stage w, dw;
    wd_dit_stream stream;
    wd_dit_stream_grad grad;
    wd_dit_embed_saved embed;
    wd_dit_block_saved block[8];
    wd_dit_head_saved head;
    assert_true(layers <= 8);
    if (backward) wd_dit_stream_grad_push(&grad, c);
    wd_dit_stream_push(&stream, c);
    harness_stage(&w, h, h->weight, 0);
    wd_dit_embed_forward(&stream, backward ? &embed : NULL, io->latents, io->timestep, io->text, &w,
                         c);
    for (int i = 0; i < layers; i++) {
        harness_stage(&w, h, h->weight, 1 + i);
        wd_dit_block_forward(&stream, backward ? &block[i] : NULL, &w, c);
    }
    harness_stage(&w, h, h->weight, layers + 1);
    wd_dit_head_forward(io->velocity, backward ? &head : NULL, &stream, &w, c);
    if (!backward) return;

    harness_stage(&dw, h, h->grad, layers + 1);
    wd_dit_head_backward(&grad, &dw, io->dvelocity, &head, &stream, &w, c);
    for (int i = layers - 1; i >= 0; i--) {
        harness_stage(&w, h, h->weight, 1 + i);
        harness_stage(&dw, h, h->grad, 1 + i);
        wd_dit_block_backward(&grad, &dw, &block[i], &stream, &w, c);
    }
    harness_stage(&w, h, h->weight, 0);
    harness_stage(&dw, h, h->grad, 0);
    wd_dit_embed_backward(io->dlatents, io->dtext, &dw, &grad, &embed, &stream, &w, c);
}

static inline harness_results harness_run(harness *h, const harness_inputs *in, harness_mode mode);

/* Runs the pass on a dry device, to find the memory that it needs. */
static inline harness_results harness_plan(const harness *h, const harness_inputs *in,
                                           harness_mode mode)
{
    wd_err err;
    wd_device *dry;
    harness model;
    wd_test_ok(wd_device_open_dry(&dry, h->device, &err), &err);
    harness_open_empty(&model, &h->config, h->dtype, dry, HARNESS_FLAT);
    mode.arena_bytes = SIZE_MAX;
    harness_results plan = harness_run(&model, in, mode);
    harness_close(&model);
    return plan;
}

static inline void harness_collect(harness_results *r, const harness *h, const harness_io *io,
                                   bool backward)
{
    r->sample = harness_get(h->queue, io->velocity, h->dtype, io->out);
    if (!backward) return;
    r->dlatents = harness_get(h->queue, io->dlatents, WD_F32, io->in);
    r->dtext = harness_get(h->queue, io->dtext, WD_F32, io->texts);
    r->count = h->table.count;
    r->grad = harness_host((size_t)r->count * sizeof *r->grad);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t count = wd_tensor_count(&h->grad[i]);
        if (count) r->grad[i] = harness_get(h->queue, h->grad[i].data, WD_F32, count);
    }
}

static inline harness_results harness_run(harness *h, const harness_inputs *in, harness_mode mode)
{
    wd_err err;
    bool dry = wd_device_is_dry(h->device);
    harness_results r = {0};
    if (!dry) {
        harness_results plan = harness_plan(h, in, mode);
        if (!mode.arena_bytes) mode.arena_bytes = plan.arena_bytes;
        wd_test_ok(wd_queue_reserve_workspace(h->queue, plan.workspace_bytes, &err), &err);
    }
    harness_io io = harness_io_open(h, in);
    void *block = NULL;
    if (!dry) {
        block = harness_alloc(h->device, mode.arena_bytes);
        float *zeros = harness_host(h->grad_bytes); /* gradients are added to */
        wd_queue_copy_and_wait(h->queue, h->grads, zeros, h->grad_bytes);
        wd_queue_wait(h->queue);
        wd_free(zeros);
    }
    wd_arena arena = wd_arena_over(block, mode.arena_bytes);
    wd_dit_context c = {.config = &h->config,
                        .shape = in->shape,
                        .dtype = h->dtype,
                        .checkpoint = mode.checkpoint,
                        .queue = h->queue,
                        .arena = &arena};
    wd_test_ok(wd_dit_rope_open(&c.rope, &h->config, &in->shape, h->queue, &err), &err);
    int64_t allocs = wd__device_alloc_count(h->device);
    wd_queue_totals before = wd_queue_total(h->queue);
    harness_pass(h, &io, &mode, &c);
    wd_queue_wait(h->queue);
    r.allocs = wd__device_alloc_count(h->device) - allocs;
    r.totals = wd_queue_total(h->queue);
    r.totals.launches -= before.launches;
    r.totals.flops -= before.flops;
    r.arena_bytes = arena.peak;
    r.workspace_bytes = wd_queue_workspace_bytes(h->queue);
    if (!dry) harness_collect(&r, h, &io, mode.backward);
    wd_dit_rope_close(&c.rope);
    wd_device_free(h->device, block);
    harness_io_close(h, &io);
    return r;
}

static inline void harness_results_free(harness_results *r)
{
    for (int64_t i = 0; i < r->count; i++) wd_free(r->grad[i]);
    wd_free(r->grad);
    wd_free(r->sample);
    wd_free(r->dlatents);
    wd_free(r->dtext);
}

#endif
