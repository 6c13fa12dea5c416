/* A network's pass: ten steps as PyTorch takes them; the same bits for any number of threads,
 * with and without checkpointing, on a device whose memory only its kernels may touch; memory to
 * the byte as planned. */
#include "train/network/loss.h"

#include "train/network/init.h"
#include "train/network/optimizer.h"
#include "train/network/readback.h"
#include "aborts.h"
#include "student_fixture.h"
#include "failing.h"

/* Of loss and gradient norm at each step, and of the weights' change after ten: what fp32 sums in
 * another order amount to, which AdamW's first steps (sign of the gradient) amplify. */
static const double loss_tolerance = 1e-4, change_tolerance = 1e-2;

static const wd_dit_shape small_shape = {
    .samples = 2, .texts = 2, .frames = 1, .height = 6, .width = 4, .text_tokens = 5};

/* Inputs of a pass, in device memory. */
typedef struct inputs {
    float *latents, *timestep, *target, *loss;
    void *text;
} inputs;

static void *to_device(const bench *b, const void *from, size_t bytes)
{
    void *to;
    wd_err err;
    wd_test_ok(wd_device_alloc(&to, b->device, bytes, "test input", &err), &err);
    wd_queue_copy_and_wait(b->queue, to, from, bytes);
    wd_queue_wait(b->queue);
    return to;
}

static float *normal_floats(int64_t n, uint64_t seed)
{
    float *out;
    wd_err err;
    wd_test_ok(wd_alloc((void **)&out, (size_t)n, sizeof *out, "test input", &err), &err);
    wd_random_normal(out, n, (wd_random){seed, WD_RANDOM_TEST, 0}, 0);
    return out;
}

/* The same numbers for every bench; `first`: from which sample on. */
static inputs make_inputs(const bench *b, const wd_dit_config *config, const wd_dit_shape *shape,
                          wd_dtype dtype, int64_t first)
{
    int64_t x = config->in_channels * shape->frames * shape->height * shape->width;
    int64_t c = shape->text_tokens * config->text_dim, end = first + shape->samples;
    float *latents = normal_floats(end * x, 1), *target = normal_floats(end * x, 2);
    float *text = normal_floats(end * c, 3);
    float timestep[8] = {999, 12.5f, 500, 250, 3, 875, 700, 1};
    inputs in = {0};
    in.latents = to_device(b, latents + first * x, (size_t)((end - first) * x) * 4);
    in.target = to_device(b, target + first * x, (size_t)((end - first) * x) * 4);
    in.timestep = to_device(b, timestep + first, (size_t)(end - first) * 4);
    in.loss = to_device(b, timestep, (size_t)(end - first) * 4);
    uint16_t *half = (uint16_t *)text;
    if (dtype == WD_BF16) {
        for (int64_t i = 0; i < end * c; i++) half[i] = wd_f32_to_bf16(text[i]);
    }
    size_t element = wd_dtype_bytes(dtype);
    in.text = to_device(b, (char *)text + (size_t)(first * c) * element,
                        (size_t)((end - first) * c) * element);
    wd_free(latents);
    wd_free(target);
    wd_free(text);
    return in;
}

static void free_inputs(const bench *b, inputs *in)
{
    void *blocks[] = {in->latents, in->timestep, in->target, in->loss, in->text};
    for (int i = 0; i < 5; i++) wd_device_free(b->device, blocks[i]);
}

static wd_pass_inputs inputs_of(const inputs *in)
{
    return (wd_pass_inputs){in->latents, in->timestep, in->text};
}

/* Forward, loss, backward. */
static void train(wd_pass *s, const inputs *in, float factor, wd_pass_ready_fn *ready,
                  void *context, wd_queue *queue)
{
    const wd_pass_inputs pass = inputs_of(in);
    const wd_pass_outputs outputs = wd_pass_forward(s, &pass);
    wd_loss_velocity(in->loss, &outputs, in->target, NULL, factor, queue);
    wd_pass_backward(s, ready, context);
}

/* ---- bits ---- */

/* Gradients and losses of one pass over random weights, on the host. */
typedef struct outcome {
    float *g, *loss, *velocity;
    int64_t count, velocities;
    int stages[16], stage_count;
} outcome;

static void note_stage(void *context, int stage)
{
    outcome *o = context;
    o->stages[o->stage_count++] = stage;
}

/* `more`: WD_PARAMS_GRADIENTS_IN_BF16 or 0. */
static outcome run_with(wd_status (*open)(wd_device **, int, wd_err *), int threads, wd_dtype dtype,
                        wd_pass_mode mode, unsigned more)
{
    wd_err err;
    outcome o = {0};
    bench b = bench_on(open, threads);
    wd_dit_config config = small_config();
    wd_params p;
    wd_pass *s;
    wd_test_ok(wd_params_open(&p, &config, dtype, WD_PARAMS_TRAINED | more, b.device, &err), &err);
    fill_buffer(&b, &p, WD_PARAMS_P, 5, 0.2f, 0.05f);
    wd_params_show(&p, WD_PARAMS_P, b.queue);
    wd_test_ok(wd_pass_open(&s, &p, &small_shape, mode, b.queue, &err), &err);
    inputs in = make_inputs(&b, &config, &small_shape, dtype, 0);
    const wd_pass_inputs pass = inputs_of(&in);
    int64_t device_allocations = wd__device_alloc_count(b.device), allocations = wd__alloc_count();
    wd_params_zero_grads(&p, b.queue);
    train(s, &in, 0.5f, note_stage, &o, b.queue);
    o.velocities = small_shape.samples * 4 * small_shape.height * small_shape.width;
    wd_pass_velocity(in.target, s, &pass);
    wd_queue_wait(b.queue);
    assert_int_equal(wd__device_alloc_count(b.device), device_allocations);
    assert_int_equal(wd__alloc_count(), allocations);
    o.count = p.count;
    o.g = read_floats(&b, p.buffer[WD_PARAMS_G], more ? p.count / 2 : p.count);
    o.loss = read_floats(&b, in.loss, small_shape.samples);
    o.velocity = read_floats(&b, in.target, o.velocities);
    free_inputs(&b, &in);
    wd_pass_close(s);
    wd_params_close(&p);
    bench_close(&b);
    return o;
}

static outcome run_once(wd_status (*open)(wd_device **, int, wd_err *), int threads, wd_dtype dtype,
                        wd_pass_mode mode)
{
    return run_with(open, threads, dtype, mode, 0);
}

static void free_outcome(outcome *o)
{
    wd_free(o->g);
    wd_free(o->loss);
    wd_free(o->velocity);
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, (size_t)small_shape.samples * sizeof(float));
    assert_memory_equal(a->velocity, b->velocity, (size_t)a->velocities * sizeof(float));
    for (int64_t i = 0; i < a->count; i++) {
        if (memcmp(&a->g[i], &b->g[i], sizeof(float))) {
            fail_msg("gradient element %lld is %.9g and %.9g", (long long)i, a->g[i], b->g[i]);
        }
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    const wd_dtype dtypes[] = {WD_F32, WD_BF16};
    for (int i = 0; i < 2; i++) {
        outcome plain = run_once(wd_device_open_cpu, 1, dtypes[i], WD_PASS_TRAIN);
        outcome threads = run_once(wd_device_open_cpu, 2, dtypes[i], WD_PASS_TRAIN);
        outcome kept = run_once(wd_device_open_guard, 2, dtypes[i], WD_PASS_TRAIN_CHECKPOINT);
        const int order[] = {3, 2, 1, 0}; /* head, blocks, embedding */
        assert_int_equal(plain.stage_count, 4);
        assert_memory_equal(plain.stages, order, sizeof order);
        assert_same(&plain, &threads);
        assert_same(&plain, &kept);
        double sum = 0;
        for (int64_t j = 0; j < plain.count; j++) sum += fabs((double)plain.g[j]);
        assert_true(sum > 0 && isfinite(sum) && plain.loss[0] > 0);
        free_outcome(&plain);
        free_outcome(&threads);
        free_outcome(&kept);
    }
}

/* Gradients in BF16 are those in F32, rounded once. */
static void test_gradients_in_bf16(void **state)
{
    (void)state;
    outcome wide = run_with(wd_device_open_cpu, 2, WD_BF16, WD_PASS_TRAIN, 0);
    outcome narrow = run_with(wd_device_open_guard, 2, WD_BF16, WD_PASS_TRAIN_CHECKPOINT,
                              WD_PARAMS_GRADIENTS_IN_BF16);
    const uint16_t *rounded = (const uint16_t *)narrow.g;
    assert_int_equal(narrow.stage_count, wide.stage_count);
    for (int64_t i = 0; i < wide.count; i++)
        assert_int_equal(rounded[i], wd_f32_to_bf16(wide.g[i]));
    free_outcome(&wide);
    free_outcome(&narrow);
}

/* ---- micro-batches ---- */

/* Gradients of samples [first, first + shape->samples) with weight 1/4 each are added. */
static void add_pass(const bench *b, wd_params *p, int64_t first, int64_t samples)
{
    wd_err err;
    wd_pass *s;
    wd_dit_shape shape = small_shape;
    shape.samples = shape.texts = samples;
    wd_test_ok(wd_pass_open(&s, p, &shape, WD_PASS_TRAIN, b->queue, &err), &err);
    inputs in = make_inputs(b, &p->config, &shape, WD_F32, first);
    train(s, &in, 0.25f, NULL, NULL, b->queue);
    wd_queue_wait(b->queue);
    free_inputs(b, &in);
    wd_pass_close(s);
}

static float *gradients(const bench *b, wd_params *p, int64_t samples)
{
    wd_params_zero_grads(p, b->queue);
    for (int64_t first = 0; first < 4; first += samples) add_pass(b, p, first, samples);
    return read_floats(b, p->buffer[WD_PARAMS_G], p->count);
}

static void test_micro_batches(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 2);
    wd_dit_config config = small_config();
    wd_params p;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, WD_PARAMS_TRAINED, b.device, &err), &err);
    fill_buffer(&b, &p, WD_PARAMS_P, 5, 0.2f, 0.05f);
    float *whole = gradients(&b, &p, 4), *halves = gradients(&b, &p, 2);
    float *again = gradients(&b, &p, 2), *ones = gradients(&b, &p, 1);
    assert_memory_equal(halves, again, (size_t)p.count * sizeof(float));
    assert_true(wd_test_rel_error(halves, whole, p.count) < 1e-6);
    assert_true(wd_test_rel_error(ones, whole, p.count) < 1e-6);
    wd_free(whole);
    wd_free(halves);
    wd_free(again);
    wd_free(ones);
    wd_params_close(&p);
    bench_close(&b);
}

/* ---- memory ---- */

static void test_memory(void **state)
{
    (void)state;
    const wd_pass_mode modes[] = {WD_PASS_TRAIN, WD_PASS_TRAIN_CHECKPOINT, WD_PASS_FORWARD};
    wd_err err;
    size_t arena[3];
    double flops[3];
    wd_dit_config config = small_config();
    config.layers = 6;
    for (int i = 0; i < 3; i++) {
        bench b = bench_on(wd_device_open_cpu, 2);
        wd_params p;
        wd_pass *s;
        wd_pass_plan plan;
        unsigned kinds = modes[i] == WD_PASS_FORWARD ? 0 : WD_PARAMS_TRAINED;
        wd_test_ok(
            wd__pass_plan_for(&plan, &config, &small_shape, WD_F32, modes[i], b.device, &err),
            &err);
        assert_int_equal(wd_device_bytes_peak(b.device), 0); /* a plan touches nothing */
        wd_test_ok(wd_params_open(&p, &config, WD_F32, kinds, b.device, &err), &err);
        inputs in = make_inputs(&b, &config, &small_shape, WD_F32, 0);
        size_t before = wd_device_bytes(b.device);
        wd_test_ok(wd_pass_open(&s, &p, &small_shape, modes[i], b.queue, &err), &err);
        assert_memory_equal(wd_pass_planned(s), &plan, sizeof plan);
        size_t opened = wd_device_bytes(b.device);
        double flops_before = wd_queue_total(b.queue).flops;
        const wd_pass_inputs pass = inputs_of(&in);
        if (kinds)
            train(s, &in, 1, NULL, NULL, b.queue);
        else
            wd_pass_velocity(in.target, s, &pass);
        wd_queue_wait(b.queue);
        assert_true(wd_queue_total(b.queue).flops - flops_before == plan.flops);
        assert_int_equal(wd_device_bytes_peak(b.device), opened);
        assert_int_equal(opened - before,
                         plan.arena_bytes + plan.rope_bytes + plan.workspace_bytes);
        arena[i] = plan.arena_bytes;
        flops[i] = plan.flops;
        free_inputs(&b, &in);
        wd_pass_close(s);
        wd_params_close(&p);
        bench_close(&b);
    }
    assert_true(arena[1] < arena[0] * 2 / 3 && arena[2] < arena[1]);
    assert_true(flops[1] > flops[0] && flops[0] > 2.5 * flops[2]);
}

typedef struct opening {
    const bench *b;
    wd_params params;
    size_t device_bytes;
} opening;

static wd_status open_and_close(void *context, wd_err *err)
{
    opening *o = context;
    wd_pass *s;
    WD_TRY(wd_pass_open(&s, &o->params, &small_shape, WD_PASS_TRAIN, o->b->queue, err));
    wd_pass_close(s);
    return WD_OK;
}

/* Nothing but what the queue keeps is left on the device. */
static void check_device(void *context, wd_status status)
{
    (void)status;
    const opening *o = context;
    const size_t workspace = wd_queue_workspace_bytes(o->b->queue);
    assert_int_equal(wd_device_bytes(o->b->device), o->device_bytes + workspace);
}

static void test_allocation_fails(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    const wd_dit_config config = small_config();
    opening o = {.b = &b};
    wd_test_ok(wd_params_open(&o.params, &config, WD_F32, WD_PARAMS_TRAINED, b.device, &err), &err);
    o.device_bytes = wd_device_bytes(b.device);
    wd_test_failing_allocations(open_and_close, check_device, &o, 8);
    wd_params_close(&o.params);
    bench_close(&b);
}

/* ---- the reference's ten steps ---- */

enum { STEPS = 10 };

typedef struct recipe {
    double lr, loss[STEPS], norm[STEPS];
    wd_optimizer_options options;
} recipe;

static recipe read_recipe(void)
{
    wd_err err;
    json_t *log;
    recipe r = {.options = wd_optimizer_defaults()};
    wd_test_ok(wd_json_load(&log, WD_SOURCE_DIR "/tests/fixtures/training/log.json", &err), &err);
    json_t *steps;
    int failed =
        json_unpack(log, "{s:F, s:[FF], s:F, s:F, s:F, s:o}", "lr", &r.lr, "betas",
                    &r.options.beta1, &r.options.beta2, "eps", &r.options.eps, "weight_decay",
                    &r.options.decay, "clip_grad_norm", &r.options.grad_norm_max, "steps", &steps);
    assert_false(failed);
    r.options.decay_scope = WD_DECAY_ALL; /* what torch.optim.AdamW does with m.parameters() */
    assert_int_equal(json_array_size(steps), STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        failed = json_unpack(json_array_get(steps, i), "{s:F, s:F}", "loss", &r.loss[i],
                             "grad_norm", &r.norm[i]);
        assert_false(failed);
    }
    json_decref(log);
    return r;
}

/* [STEPS, B, ...] on the device; integers become floats. */
static float *fixture_input(const bench *b, const char *name, wd_tensor *t)
{
    *t = wd_test_load("tests/fixtures/training/in.safetensors", name);
    int64_t count = wd_tensor_count(t);
    if (t->dtype == WD_I64) {
        int64_t *from = t->data;
        float *to = t->data;
        for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
    }
    float *device = to_device(b, t->data, (size_t)count * sizeof(float));
    wd_free(t->data);
    return device;
}

static void take_step(const recipe *r, wd_readback *ring, int64_t samples)
{
    wd_readback_values v = wd_readback_take(ring);
    double loss = 0, norm = v.value[samples];
    for (int64_t i = 0; i < samples; i++) loss += (double)v.value[i] / (double)samples;
    if (fabs(loss / r->loss[v.tag] - 1) > loss_tolerance ||
        fabs(norm / r->norm[v.tag] - 1) > loss_tolerance) {
        fail_msg("step %lld: loss %.7g, gradient norm %.7g; expected %.7g, %.7g", (long long)v.tag,
                 loss, norm, r->loss[v.tag], r->norm[v.tag]);
    }
}

static void compare_change(const bench *b, const wd_params *p, const float *start)
{
    float *end = read_floats(b, p->buffer[WD_PARAMS_P], p->count);
    for (int64_t line = 0; line < p->table.count; line++) {
        wd_tensor want =
            wd_test_load("tests/fixtures/training/out.safetensors", p->table.spec[line].name);
        int64_t n = wd_tensor_count(&want), at = p->offset[line];
        float *change = want.data;
        for (int64_t i = 0; i < n; i++) {
            change[i] -= start[at + i];
            end[at + i] -= start[at + i];
        }
        double error = wd_test_rel_error(end + at, change, n);
        if (error > change_tolerance) {
            fail_msg("%s: change after %d steps is off by %.3g", p->table.spec[line].name, STEPS,
                     error);
        }
        wd_free(want.data);
    }
    wd_free(end);
}

/* The ten steps; returns the final weights. */
static float *train_fixture(int threads, wd_pass_mode mode, int64_t *count)
{
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, threads);
    recipe r = read_recipe();
    wd_pipeline teacher;
    wd_test_ok(wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_dit_config config = teacher.dit;
    config.layers = 2;
    wd_params p;
    wd_optimizer *adamw;
    wd_readback *ring;
    wd_pass *s;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, WD_PARAMS_TRAINED, b.device, &err), &err);
    wd_test_ok(wd_optimizer_open(&adamw, &r.options, &p, &err), &err);
    wd_test_ok(wd_student_init(&p, &teacher, WD_COMPONENT_TRANSFORMER_2, b.queue, &err), &err);
    float *start = read_floats(&b, p.buffer[WD_PARAMS_P], p.count);

    wd_tensor x, t, c, y;
    float *latents = fixture_input(&b, "hidden_states", &x);
    float *timestep = fixture_input(&b, "timestep", &t);
    float *text = fixture_input(&b, "encoder_hidden_states", &c);
    float *target = fixture_input(&b, "target", &y), *loss;
    wd_dit_shape shape = {.samples = x.dim[1],
                          .texts = x.dim[1],
                          .frames = x.dim[3],
                          .height = x.dim[4],
                          .width = x.dim[5],
                          .text_tokens = c.dim[2]};
    wd_test_ok(wd_device_alloc((void **)&loss, b.device, 64, "loss", &err), &err);
    wd_test_ok(wd_pass_open(&s, &p, &shape, mode, b.queue, &err), &err);
    wd_test_ok(wd_readback_open(&ring, b.device, 3, shape.samples + 1, &err), &err);
    for (int64_t i = 0; i < STEPS; i++) {
        const inputs in = {.latents = latents + i * wd_tensor_count(&x) / STEPS,
                           .timestep = timestep + i * shape.samples,
                           .text = text + i * wd_tensor_count(&c) / STEPS,
                           .target = target + i * wd_tensor_count(&y) / STEPS,
                           .loss = loss};
        wd_params_zero_grads(&p, b.queue);
        train(s, &in, 1.0f / (float)shape.samples, NULL, NULL, b.queue);
        wd_optimizer_step(adamw, r.lr, 0, b.queue);
        wd_readback_gather(ring, loss, shape.samples, b.queue);
        wd_readback_gather(ring, wd_optimizer_norm(adamw), 1, b.queue);
        wd_readback_commit(ring, i, b.queue);
        if (wd_readback_pending(ring) > 1) take_step(&r, ring, shape.samples);
    }
    take_step(&r, ring, shape.samples);
    compare_change(&b, &p, start);
    float *end = read_floats(&b, p.buffer[WD_PARAMS_P], p.count);
    *count = p.count;
    wd_free(start);
    void *blocks[] = {latents, timestep, text, target, loss};
    for (int i = 0; i < 5; i++) wd_device_free(b.device, blocks[i]);
    wd_readback_close(ring);
    wd_pass_close(s);
    wd_optimizer_close(adamw);
    wd_params_close(&p);
    bench_close(&b);
    return end;
}

static void test_training(void **state)
{
    (void)state;
    int64_t count;
    float *one = train_fixture(1, WD_PASS_TRAIN, &count);
    float *two = train_fixture(2, WD_PASS_TRAIN_CHECKPOINT, &count);
    assert_memory_equal(one, two, (size_t)count * sizeof(float));
    wd_free(one);
    wd_free(two);
}

/* ---- order of passes ---- */

typedef struct misuse {
    wd_pass *pass;
    wd_pass_inputs inputs;
} misuse;

static void backward(void *context)
{
    const misuse *m = context;
    wd_pass_backward(m->pass, NULL, NULL);
}

static void forward_twice(void *context)
{
    const misuse *m = context;
    wd_pass_forward(m->pass, &m->inputs);
    wd_pass_forward(m->pass, &m->inputs);
}

static void passes_out_of_order_end_the_process(void **state)
{
    (void)state;
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    const wd_dit_config config = small_config();
    wd_params p;
    misuse m;
    wd_test_ok(wd_params_open(&p, &config, WD_F32, WD_PARAMS_TRAINED, b.device, &err), &err);
    wd_test_ok(wd_pass_open(&m.pass, &p, &small_shape, WD_PASS_TRAIN, b.queue, &err), &err);
    inputs in = make_inputs(&b, &config, &small_shape, WD_F32, 0);
    m.inputs = inputs_of(&in);
    wd_test_aborts(backward, &m, "a backward pass without a forward pass");
    wd_test_aborts(forward_twice, &m, "a pass begins before the last one's backward pass");
    free_inputs(&b, &in);
    wd_pass_close(m.pass);
    wd_params_close(&p);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_gradients_in_bf16),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_allocation_fails),
        cmocka_unit_test(test_training),
        cmocka_unit_test(passes_out_of_order_end_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
