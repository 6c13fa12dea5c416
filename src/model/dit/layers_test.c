/* Every backward pass of nn is compared with finite differences of its forward pass, along random
 * directions, on the guard device. A layer consists of a forward function, a backward function, and
 * the sizes of its inputs; all layers share the rest of the test. */
#include "testing.h"

#include "core/random.h"
#include "model/dit/layers.h"

enum { INPUTS_MAX = 7, DIRECTIONS = 3, ROWS = 6, SAMPLES = 2, WIDTH = 24, HEADS = 2, KEYS = 5 };

/* A central difference of fp32 values over 2 * step: rounding costs about 1e-7 / step, the third
 * derivative step^2, both relative to a gradient of the loss of about 1. */
static const float step = 4e-3f;
static const double tolerance = 1e-3;
static const float start = 0.25f; /* initial value of gradients: += keeps it, = does not */

typedef struct layer {
    const char *name;
    int inputs;
    int64_t count[INPUTS_MAX], outputs, scratch; /* elements */
    unsigned adds; /* bit i: backward adds to the gradient of input i */
    void (*forward)(float *y, float *const *x, float *scratch, wd_queue *queue);
    /* dx: gradients of the inputs; y: as forward left it. */
    void (*backward)(float *const *dx, float *dy, const float *y, float *const *x, float *scratch,
                     wd_queue *queue);
} layer;

/* ---- layers ---- */

static wd_tensor matrix(float *data, int64_t rows, int64_t columns)
{
    return (wd_tensor){.data = data, .dtype = WD_F32, .ndim = 2, .dim = {rows, columns}};
}

static wd_tensor vector(float *data, int64_t count)
{
    return (wd_tensor){.data = data, .dtype = WD_F32, .ndim = 1, .dim = {count}};
}

enum { OUT = 10, OUT_STRIDE = 13 };

static wd_linear linear_of(float *const *x)
{
    wd_tensor w = matrix(x[1], OUT, WIDTH), b = vector(x[2], OUT);
    return wd_linear_of(&w, &b);
}

static void linear_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    (void)scratch;
    wd_linear_forward(y, OUT_STRIDE, x[0], linear_of(x), ROWS, WD_ACT_NONE, queue);
}

static void linear_backward(float *const *dx, float *dy, const float *y, float *const *x,
                            float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    wd_tensor dw = matrix(dx[1], OUT, WIDTH), db = vector(dx[2], OUT);
    wd_linear l = linear_of(x);
    wd__linear_backward_weights(wd__linear_grad_of(&dw, &db), dy, OUT_STRIDE, x[0], l, ROWS, queue);
    wd__linear_backward_input(dx[0], dy, OUT_STRIDE, l, WD_F32, 0, ROWS, queue);
}

/* Three layers; the guard device gives each weight a mapping of its own, so they stay three. */
static wd_linear_group group_of(float *const *x, float *const *dx)
{
    wd_tensor w[3], b[3], dw[3], db[3];
    for (int i = 0; i < 3; i++) {
        w[i] = matrix(x[1 + i], OUT, WIDTH);
        b[i] = vector(x[4 + i], OUT);
        if (!dx) continue;
        dw[i] = matrix(dx[1 + i], OUT, WIDTH);
        db[i] = vector(dx[4 + i], OUT);
    }
    return wd__linear_group_of(w, b, dx ? dw : NULL, dx ? db : NULL, 3);
}

static void group_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    (void)scratch;
    wd_linear_group group = group_of(x, NULL);
    assert_int_equal(group.layers, 3);
    assert_int_equal(group.out, 3 * OUT);
    wd__linear_group_forward(y, x[0], &group, ROWS, queue);
}

static void group_backward(float *const *dx, float *dy, const float *y, float *const *x,
                           float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    wd_linear_group group = group_of(x, dx);
    wd__linear_group_backward_weights(dy, x[0], &group, ROWS, queue);
    wd__linear_group_backward_input(dx[0], dy, &group, WD_F32, 1, ROWS, queue);
}

/* Three layers whose weights and biases are in one block each: x[1] and x[2]. */
static wd_linear_group joined_of(float *const *x, float *const *dx)
{
    wd_tensor w[3], b[3], dw[3], db[3];
    for (int i = 0; i < 3; i++) {
        w[i] = matrix(x[1] + i * OUT * WIDTH, OUT, WIDTH);
        b[i] = vector(x[2] + i * OUT, OUT);
        if (!dx) continue;
        dw[i] = matrix(dx[1] + i * OUT * WIDTH, OUT, WIDTH);
        db[i] = vector(dx[2] + i * OUT, OUT);
    }
    wd_linear_group group = wd__linear_group_of(w, b, dx ? dw : NULL, dx ? db : NULL, 3);
    assert_int_equal(group.layers, 1);
    return group;
}

static void joined_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    (void)scratch;
    wd_linear_group group = joined_of(x, NULL);
    wd__linear_group_forward(y, x[0], &group, ROWS, queue);
}

static void joined_backward(float *const *dx, float *dy, const float *y, float *const *x,
                            float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    wd_linear_group group = joined_of(x, dx);
    wd__linear_group_backward_weights(dy, x[0], &group, ROWS, queue);
    wd__linear_group_backward_input(dx[0], dy, &group, WD_F32, 0, ROWS, queue);
}

static const wd_norm_shape norm_shape = {.type = WD_F32,
                                         .rows = ROWS,
                                         .width = WIDTH,
                                         .rows_per_sample = ROWS / SAMPLES,
                                         .modulation_stride = WIDTH,
                                         .eps = 1e-6f};

static void modulate_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    (void)scratch;
    wd__modulate_forward(y, x[0], x[1], x[2], &norm_shape, queue);
}

static void modulate_backward(float *const *dx, float *dy, const float *y, float *const *x,
                              float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    wd__modulate_backward(dx[0], dx[1], dx[2], dy, x[0], x[2], &norm_shape, queue);
}

static void layernorm_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    (void)scratch;
    wd__layernorm_forward(y, x[0], x[1], x[2], &norm_shape, queue);
}

static void layernorm_backward(float *const *dx, float *dy, const float *y, float *const *x,
                               float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    wd__layernorm_backward(dx[0], dx[1], dx[2], dy, x[0], x[1], &norm_shape, queue);
}

/* Inputs: branch, gate; the stream is the scratch memory. */
static void residual_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    wd__residual_forward(y, scratch, x[0], x[1], &norm_shape, queue);
}

static void residual_backward(float *const *dx, float *dy, const float *y, float *const *x,
                              float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    wd__residual_backward(dx[0], dx[1], dy, x[0], x[1], &norm_shape, queue);
}

enum { RMS_STRIDE = WIDTH + 8, HALF = WIDTH / HEADS / 2, TOKENS = ROWS / SAMPLES };

static const wd_rms_shape rms_shape = {.type = WD_F32,
                                       .w_type = WD_F32,
                                       .rows = ROWS,
                                       .width = WIDTH,
                                       .head_dim = WIDTH / HEADS,
                                       .tokens = TOKENS,
                                       .x_stride = WIDTH,
                                       .y_stride = RMS_STRIDE,
                                       .eps = 1e-6f};

/* Writes cosines and sines of token + pair into the scratch memory. */
static void put_turns(float *scratch, wd_queue *queue)
{
    float turns[2 * TOKENS * HALF];
    for (int i = 0; i < TOKENS * HALF; i++) {
        turns[i] = cosf((float)(i / HALF + i % HALF));
        turns[TOKENS * HALF + i] = sinf((float)(i / HALF + i % HALF));
    }
    wd_queue_copy_and_wait(queue, scratch, turns, sizeof turns);
    wd_queue_wait(queue);
}

static void rms_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    put_turns(scratch, queue);
    wd__rms_rope_forward(y, x[0], x[1], scratch, scratch + TOKENS * HALF, &rms_shape, queue);
}

/* Computes dx in place of dy, and then copies it to where the test expects it. */
static void rms_backward(float *const *dx, float *dy, const float *y, float *const *x,
                         float *scratch, wd_queue *queue)
{
    (void)y;
    wd__rms_rope_backward(dy, dx[1], dy, x[0], x[1], scratch, scratch + TOKENS * HALF, &rms_shape,
                          queue);
    wd_op_strided_copy(queue, &(wd_strided_copy_args){.to = dx[0],
                                                      .from = dy,
                                                      .to_type = WD_F32,
                                                      .from_type = WD_F32,
                                                      .ndim = 2,
                                                      .dim = {ROWS, WIDTH},
                                                      .to_stride = {WIDTH, 1},
                                                      .from_stride = {RMS_STRIDE, 1},
                                                      .alpha = 1});
}

/* x[0]: queries [B, L, D]; x[1]: keys and values side by side [B, S, 2 D]. */
static const wd_attention_shape attention_shape = {.type = WD_F32,
                                                   .samples = SAMPLES,
                                                   .kv_samples = SAMPLES,
                                                   .heads = HEADS,
                                                   .head_dim = WIDTH / HEADS,
                                                   .q_tokens = TOKENS,
                                                   .kv_tokens = KEYS,
                                                   .q_stride = WIDTH,
                                                   .kv_stride = 2 * WIDTH};

static void attention_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    wd__attention_forward(y, scratch, x[0], x[1], x[1] + WIDTH, &attention_shape, queue);
}

static void attention_backward(float *const *dx, float *dy, const float *y, float *const *x,
                               float *scratch, wd_queue *queue)
{
    wd__attention_backward(dx[0], dx[1], dx[1] + WIDTH, dy, x[0], x[1], x[1] + WIDTH, y, scratch,
                           &attention_shape, queue);
}

static void activate(float *y, const float *x, wd_act act, wd_queue *queue)
{
    wd_op_activation(queue, &(wd_activation_args){
                                .y = y, .x = x, .type = WD_F32, .count = ROWS * WIDTH, .act = act});
}

static void activate_backward(float *dx, const float *dy, const float *x, wd_act act,
                              wd_queue *queue)
{
    wd_op_activation_backward(
        queue, &(wd_activation_backward_args){
                   .dx = dx, .dy = dy, .x = x, .type = WD_F32, .count = ROWS * WIDTH, .act = act});
}

static void gelu_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    (void)scratch;
    activate(y, x[0], WD_ACT_GELU_TANH, queue);
}

static void gelu_backward(float *const *dx, float *dy, const float *y, float *const *x,
                          float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    activate_backward(dx[0], dy, x[0], WD_ACT_GELU_TANH, queue);
}

static void silu_forward(float *y, float *const *x, float *scratch, wd_queue *queue)
{
    (void)scratch;
    activate(y, x[0], WD_ACT_SILU, queue);
}

static void silu_backward(float *const *dx, float *dy, const float *y, float *const *x,
                          float *scratch, wd_queue *queue)
{
    (void)y, (void)scratch;
    activate_backward(dx[0], dy, x[0], WD_ACT_SILU, queue);
}

static const layer layers[] = {
    {"linear",
     3,
     {ROWS * WIDTH, OUT *WIDTH, OUT},
     ROWS *OUT_STRIDE,
     1,
     6,
     linear_forward,
     linear_backward},
    {"group",
     7,
     {ROWS * WIDTH, OUT *WIDTH, OUT *WIDTH, OUT *WIDTH, OUT, OUT, OUT},
     ROWS * 3 * OUT,
     1,
     0x7f,
     group_forward,
     group_backward},
    {"joined group",
     3,
     {ROWS * WIDTH, 3 * OUT *WIDTH, 3 * OUT},
     ROWS * 3 * OUT,
     1,
     6,
     joined_forward,
     joined_backward},
    {"modulate",
     3,
     {ROWS * WIDTH, SAMPLES *WIDTH, SAMPLES *WIDTH},
     ROWS *WIDTH,
     1,
     1,
     modulate_forward,
     modulate_backward},
    {"layer norm",
     3,
     {ROWS * WIDTH, WIDTH, WIDTH},
     ROWS *WIDTH,
     1,
     7,
     layernorm_forward,
     layernorm_backward},
    {"gated residual",
     2,
     {ROWS * WIDTH, SAMPLES *WIDTH},
     ROWS *WIDTH,
     ROWS *WIDTH,
     0,
     residual_forward,
     residual_backward},
    {"rms norm and rope",
     2,
     {ROWS * WIDTH, WIDTH},
     ROWS *RMS_STRIDE,
     2 * TOKENS *HALF,
     2,
     rms_forward,
     rms_backward},
    {"attention",
     2,
     {ROWS * WIDTH, SAMPLES *KEYS * 2 * WIDTH},
     ROWS *WIDTH,
     HEADS *ROWS,
     0,
     attention_forward,
     attention_backward},
    {"gelu", 1, {ROWS * WIDTH}, ROWS *WIDTH, 1, 0, gelu_forward, gelu_backward},
    {"silu", 1, {ROWS * WIDTH}, ROWS *WIDTH, 1, 0, silu_forward, silu_backward},
};

/* ---- the test ---- */

typedef struct bench {
    wd_device *device;
    wd_queue *queue;
    float *x[INPUTS_MAX], *dx[INPUTS_MAX], *y, *dy, *scratch; /* device */
    float *host[INPUTS_MAX], *weight, *out;                   /* host */
} bench;

static float *host_array(int64_t count, uint64_t index)
{
    void *out;
    wd_err err;
    wd_test_ok(wd_alloc(&out, (size_t)count, sizeof(float), "test data", &err), &err);
    if (index) wd_random_normal(out, count, (wd_random){1, WD_RANDOM_TEST, index}, 0);
    return out;
}

static float *device_array(bench *b, const float *from, int64_t count)
{
    void *out;
    wd_err err;
    wd_test_ok(wd_device_alloc(&out, b->device, (size_t)count * 4, "test data", &err), &err);
    if (from) wd_queue_copy_and_wait(b->queue, out, from, (size_t)count * 4);
    wd_queue_wait(b->queue);
    return out;
}

static void read_back(bench *b, float *to, const float *from, int64_t count)
{
    wd_queue_copy_and_wait(b->queue, to, from, (size_t)count * 4);
    wd_queue_wait(b->queue);
}

static void open_bench(bench *b, const layer *l)
{
    wd_err err;
    wd_test_ok(wd_device_open_guard(&b->device, 2, &err), &err);
    wd_test_ok(wd_queue_open(&b->queue, b->device, &err), &err);
    for (int i = 0; i < l->inputs; i++) {
        float *before = host_array(l->count[i], 0);
        for (int64_t j = 0; j < l->count[i]; j++) before[j] = start;
        b->host[i] = host_array(l->count[i], (uint64_t)i + 1);
        b->x[i] = device_array(b, b->host[i], l->count[i]);
        b->dx[i] = device_array(b, before, l->count[i]);
        wd_free(before);
    }
    b->weight = host_array(l->outputs, 100);
    b->out = host_array(l->outputs, 0);
    b->y = device_array(b, NULL, l->outputs);
    b->dy = device_array(b, b->weight, l->outputs);
    b->scratch = device_array(b, NULL, l->scratch);
}

static void close_bench(bench *b, const layer *l)
{
    for (int i = 0; i < l->inputs; i++) {
        wd_device_free(b->device, b->x[i]);
        wd_device_free(b->device, b->dx[i]);
        wd_free(b->host[i]);
    }
    wd_device_free(b->device, b->y);
    wd_device_free(b->device, b->dy);
    wd_device_free(b->device, b->scratch);
    wd_free(b->weight);
    wd_free(b->out);
    wd_queue_close(b->queue);
    wd_device_close(b->device);
}

/* The loss sum(y weight) after input i was moved by `by` along d. */
static double loss(bench *b, const layer *l, int i, const float *d, float by)
{
    float *moved = host_array(l->count[i], 0);
    double sum = 0;
    for (int64_t j = 0; j < l->count[i]; j++) moved[j] = b->host[i][j] + by * d[j];
    wd_queue_copy_and_wait(b->queue, b->x[i], moved, (size_t)l->count[i] * 4);
    wd_queue_wait(b->queue);
    wd_free(moved);
    l->forward(b->y, b->x, b->scratch, b->queue);
    read_back(b, b->out, b->y, l->outputs);
    for (int64_t j = 0; j < l->outputs; j++) sum += (double)b->out[j] * b->weight[j];
    return sum;
}

static void check_input(bench *b, const layer *l, int i)
{
    int64_t count = l->count[i];
    float *grad = host_array(count, 0);
    double norm = 0;
    read_back(b, grad, b->dx[i], count);
    for (int64_t j = 0; j < count; j++) {
        if (l->adds >> i & 1) grad[j] -= start;
        norm += (double)grad[j] * grad[j];
    }
    norm = sqrt(norm);
    assert_true(norm > 0);
    for (int k = 0; k < DIRECTIONS; k++) {
        float *d = host_array(count, (uint64_t)(200 + 10 * i + k));
        double expected = 0;
        for (int64_t j = 0; j < count; j++) expected += (double)grad[j] * d[j];
        double difference = loss(b, l, i, d, step) - loss(b, l, i, d, -step);
        double found = difference / (2 * (double)step);
        if (!(fabs(found - expected) <= tolerance * norm))
            fail_msg("%s, input %d: the gradient says %.6g, a difference %.6g (norm %.3g)", l->name,
                     i, expected, found, norm);
        loss(b, l, i, d, 0); /* restores the input */
        wd_free(d);
    }
    wd_free(grad);
}

static void gradients_are_differences(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof layers / sizeof *layers; n++) {
        const layer *l = &layers[n];
        bench b = {0};
        open_bench(&b, l);
        l->forward(b.y, b.x, b.scratch, b.queue);
        l->backward(b.dx, b.dy, b.y, b.x, b.scratch, b.queue);
        for (int i = 0; i < l->inputs; i++) check_input(&b, l, i);
        close_bench(&b, l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
