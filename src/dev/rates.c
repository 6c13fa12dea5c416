/* Rates of devices: see dev/rates.h. */
#include "dev/rates.h"

#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/clock.h"
#include "core/memory.h"
#include "dev/fill_random.h"
#include "dev/ops.h"

enum {
    SIDE_MAX = 1024,
    SIDE_SATURATING =
        8192,           /* of devices that work while the host goes on: a GPU is not full below */
    LAUNCHES_MOST = 64, /* one after another on such a device, so that the first one's way there
                         * does not count */
    ROWS_LEAST = 16,
    COPY_LEAST = 64 << 10,
    COPY_MOST = 16 << 20,
    COPY_SATURATING = 64 << 20,
    COPIES = 5 /* within host memory, of which the fastest counts */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- products ---- */

typedef struct product {
    wd_queue *queue;
    wd_matmul_args args;
    int64_t rows_max; /* of a launch */
} product;

static wd_status sample_product(double *seconds, void *context, int64_t rows, wd_err *err)
{
    product *p = context;
    (void)err;
    const double begun = wd_clock_s();
    for (int64_t left = rows; left > 0; left -= p->args.m) {
        p->args.m = least(left, p->rows_max);
        wd_op_matmul(p->queue, &p->args);
    }
    wd_queue_wait(p->queue);
    *seconds = wd_clock_s() - begun;
    return WD_OK;
}

/* The largest side of which three matrices have room in the pool. */
static int64_t saturating_side(const wd_device *device, size_t item)
{
    const size_t free = wd_device_bytes_max(device) - wd_device_bytes(device);
    const size_t granule = wd_device_traits(device)->granule;
    const size_t random = wd_round_up(WD_FILL_RANDOM_BLOCK * sizeof(float), granule);
    int64_t side = SIDE_SATURATING;
    while (side > SIDE_MAX && 3 * (size_t)(side * side) * item + random > free) side /= 2;
    return side;
}

wd_status wd_rate_of_products(double *flops_per_s, wd_queue *queue, wd_dtype dtype, int64_t m,
                              int64_t k, int64_t n, wd_err *err)
{
    wd_status status;
    wd_device *device = wd_queue_device(queue);
    void *a = NULL, *b = NULL, *c = NULL;
    size_t item = wd_dtype_bytes(dtype);
    const bool at_once = wd_device_traits(device)->synchronous;
    const int64_t side = at_once ? SIDE_MAX : saturating_side(device, item);
    m = least(m, side), k = least(k, side), n = least(n, side);
    WD_TRY_OUT(wd_device_alloc(&a, device, (size_t)(m * k) * item, "a measurement", err));
    WD_TRY_OUT(wd_device_alloc(&b, device, (size_t)(n * k) * item, "a measurement", err));
    WD_TRY_OUT(wd_device_alloc(&c, device, (size_t)(m * n) * item, "a measurement", err));
    WD_TRY_OUT(wd_fill_random(queue, a, dtype, m * k, 1, err));
    WD_TRY_OUT(wd_fill_random(queue, b, dtype, n * k, 1, err));
    product p = {queue,
                 {.c = c,
                  .a = a,
                  .b = b,
                  .c_type = dtype,
                  .a_type = dtype,
                  .b_type = dtype,
                  .transpose_b = true,
                  .n = n,
                  .k = k,
                  .lda = k,
                  .ldb = k,
                  .ldc = n,
                  .batch = 1},
                 m};
    double rows_per_s;
    WD_TRY_OUT(wd_rate_measure(&rows_per_s, sample_product, &p, ROWS_LEAST,
                               at_once ? m : m * LAUNCHES_MOST, err));
    *flops_per_s = 2.0 * rows_per_s * (double)n * (double)k;
out:
    wd_device_free(device, a);
    wd_device_free(device, b);
    wd_device_free(device, c);
    return status;
}

/* ---- AdamW and EMA ---- */

enum { WEIGHTS_LEAST = 1 << 16, WEIGHTS_MOST = 1 << 22 };

typedef struct update {
    wd_queue *queue;
    wd_adamw_args args;
    bool ema_alone;
} update;

static wd_status sample_update(double *seconds, void *context, int64_t weights, wd_err *err)
{
    update *u = context;
    (void)err;
    const double begun = wd_clock_s();
    u->args.count = weights;
    if (u->ema_alone)
        wd_op_ema(u->queue, &(wd_ema_args){.ema = u->args.ema,
                                           .p = u->args.p,
                                           .factor = u->args.factor,
                                           .step = u->args.step,
                                           .count = weights,
                                           .ema_decay = u->args.ema_decay});
    else
        wd_op_adamw(u->queue, &u->args);
    wd_queue_wait(u->queue);
    *seconds = wd_clock_s() - begun;
    return WD_OK;
}

typedef enum update_kind { UPDATE_ADAMW, UPDATE_ADAMW_8_BIT, UPDATE_EMA } update_kind;

static wd_status rate_of_update(double *weights_per_s, update_kind kind, wd_queue *queue,
                                wd_err *err)
{
    enum { BUFFERS = 5 }; /* p, m, v, EMA, gradients; then the copy */
    void *block;
    wd_device *device = wd_queue_device(queue);
    const size_t bytes = WEIGHTS_MOST * (BUFFERS * sizeof(float) + sizeof(uint16_t));
    const float one = 1;
    const int64_t step = 1;
    WD_TRY(wd_device_alloc(&block, device, bytes, "a measurement", err));
    float *x = block;
    update u = {queue,
                {.p = x,
                 .m = x + WEIGHTS_MOST,
                 .v = x + 2 * WEIGHTS_MOST,
                 .ema = x + 3 * WEIGHTS_MOST,
                 .grad = x + 4 * WEIGHTS_MOST,
                 .copy = x + BUFFERS * WEIGHTS_MOST,
                 .copy_type = WD_BF16,
                 .factor = &one,
                 .step = &step,
                 .lr = &one,
                 .beta1 = 0.9f,
                 .beta2 = 0.99f,
                 .eps = 1e-8f,
                 .ema_decay = 0.999f},
                kind == UPDATE_EMA};
    if (kind == UPDATE_ADAMW_8_BIT) {
        uint16_t *scales = (uint16_t *)(x + 2 * WEIGHTS_MOST);
        u.args.m8 = (wd_moments8){u.args.m, scales};
        u.args.v8 = (wd_moments8){u.args.m + WEIGHTS_MOST / 2, scales + WEIGHTS_MOST / 2};
        u.args.m = u.args.v = NULL;
    }
    wd_op_fill(queue, &(wd_fill_args){.to = x + 4 * WEIGHTS_MOST, /* groups of zeros are fast */
                                      .type = WD_F32,
                                      .count = WEIGHTS_MOST,
                                      .value = 1});
    int64_t most = WEIGHTS_MOST;
    if (u.ema_alone) { /* the whole block, of which caches hold less */
        most = WEIGHTS_MOST * BUFFERS / 2;
        u.args.p = x;
        u.args.ema = x + most;
    }
    const wd_status status =
        wd_rate_measure(weights_per_s, sample_update, &u, WEIGHTS_LEAST, most, err);
    wd_device_free(device, block);
    return status;
}

wd_status wd_rate_of_adamw(double *weights_per_s, wd_queue *queue, wd_err *err)
{
    return rate_of_update(weights_per_s, UPDATE_ADAMW, queue, err);
}

wd_status wd_rate_of_adamw8bit(double *weights_per_s, wd_queue *queue, wd_err *err)
{
    return rate_of_update(weights_per_s, UPDATE_ADAMW_8_BIT, queue, err);
}

wd_status wd_rate_of_ema(double *weights_per_s, wd_queue *queue, wd_err *err)
{
    return rate_of_update(weights_per_s, UPDATE_EMA, queue, err);
}

/* ---- links ---- */

typedef struct copy {
    wd_queue *queue;
    void *to, *from;
} copy;

static wd_status sample_copy(double *seconds, void *context, int64_t bytes, wd_err *err)
{
    const copy *c = context;
    (void)err;
    const double begun = wd_clock_s();
    wd_queue_copy(c->queue, c->to, c->from, (size_t)bytes);
    wd_queue_wait(c->queue);
    *seconds = wd_clock_s() - begun;
    return WD_OK;
}

wd_status wd_rate_of_link(double *bytes_per_s, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_device *device = wd_queue_device(queue);
    copy c = {.queue = queue};
    size_t most = wd_device_traits(device)->synchronous ? COPY_MOST : COPY_SATURATING;
    size_t free = wd_device_bytes_max(device) - wd_device_bytes(device);
    if (free < most) most = free;
    WD_TRY_OUT(wd_device_alloc(&c.to, device, most, "a measurement", err));
    WD_TRY_OUT(wd_host_alloc(&c.from, device, most, "a measurement", err));
    WD_TRY_OUT(wd_rate_measure(bytes_per_s, sample_copy, &c, COPY_LEAST, (int64_t)most, err));
out:
    wd_host_free(device, c.from);
    wd_device_free(device, c.to);
    return status;
}

wd_status wd_rate_of_memory(double *bytes_per_s, wd_err *err)
{
    char *to;
    double seconds = INFINITY;
    WD_TRY(wd_alloc((void **)&to, 2, COPY_MOST, "a measurement", err));
    for (int i = 0; i < COPIES; i++) {
        const double begun = wd_clock_s();
        memcpy(to + i % 2 * COPY_MOST, to + (i + 1) % 2 * COPY_MOST, COPY_MOST);
        seconds = fmin(seconds, wd_clock_s() - begun);
    }
    *bytes_per_s = COPY_MOST / seconds;
    wd_free(to);
    return WD_OK;
}
