/* A cuda device that is opened, computes with each of its libraries, and is closed, twice in one
 * process: what the first time leaves in the libraries or in the driver must not hinder the second.
 * How long each phase takes is printed and not judged. On the stand-ins of driver and libraries,
 * and, built once more, on a GPU (kernels/tested_gpu.h). */
#include "testing.h"

#include "core/clock.h"
#include "dev/cuda/impl.h"
#include "kernels/tested_gpu.h"
#ifdef WD_ON_STANDIN
#include "standin/libraries.h"
#endif

enum { SIDE = 64, COUNT = SIDE * SIDE, LAUNCHES = 4 };

typedef struct rig {
    wd_device *device;
    wd_queue *queue;
    uint16_t *in, *out; /* [COUNT], [LAUNCHES][COUNT] bf16, device */
    float *lse;         /* [SIDE] device */
    double begun;       /* of a phase */
} rig;

static void phase(rig *r, const char *what)
{
    const double now = wd_clock_s();
    printf("  %-40s %8.1f ms\n", what, 1e3 * (now - r->begun));
    fflush(stdout);
    r->begun = wd_clock_s();
}

static void open_rig(rig *r)
{
    wd_err err = {0};
    uint16_t numbers[COUNT];
    *r = (rig){.begun = wd_clock_s()};
    tested_gpu_require(wd_device_open_cuda(&r->device, tested_gpu_number(), &err), "a GPU", &err);
    phase(r, "open, with the check of products");
    wd_test_ok(wd_queue_open(&r->queue, r->device, &err), &err);
    wd_test_ok(wd_device_alloc((void **)&r->in, r->device, sizeof numbers, "in", &err), &err);
    wd_test_ok(wd_device_alloc((void **)&r->out, r->device, LAUNCHES * sizeof numbers, "out", &err),
               &err);
    wd_test_ok(wd_device_alloc((void **)&r->lse, r->device, SIDE * sizeof(float), "lse", &err),
               &err);
    for (int i = 0; i < COUNT; i++) numbers[i] = wd_f32_to_bf16((float)(i * 37 % 101 - 50) / 50);
    wd_queue_copy_and_wait(r->queue, r->in, numbers, sizeof numbers);
    phase(r, "a queue, memory, a copy");
}

static void close_rig(rig *r)
{
    wd_device_free(r->device, r->lse);
    wd_device_free(r->device, r->out);
    wd_device_free(r->device, r->in);
    wd_queue_close(r->queue);
    wd_device_close(r->device);
    phase(r, "close");
}

static void finish(rig *r, const char *what)
{
    wd_err err = {0};
    wd_queue_wait(r->queue);
    wd_test_ok(wd_device_fault(r->device, &err), &err);
    phase(r, what);
}

static void multiply(rig *r, int launch)
{
    wd_op_matmul(r->queue, &(wd_matmul_args){.c = r->out + launch * COUNT,
                                             .a = r->in,
                                             .b = r->in,
                                             .c_type = WD_BF16,
                                             .a_type = WD_BF16,
                                             .b_type = WD_BF16,
                                             .m = SIDE,
                                             .n = SIDE,
                                             .k = SIDE,
                                             .lda = SIDE,
                                             .ldb = SIDE,
                                             .ldc = SIDE,
                                             .batch = 1});
}

/* One head of SIDE, of SIDE tokens. */
static void attend(rig *r, int launch)
{
    wd_op_attention(r->queue, &(wd_attention_args){.o = r->out + launch * COUNT,
                                                   .lse = r->lse,
                                                   .q = r->in,
                                                   .k = r->in,
                                                   .v = r->in,
                                                   .type = WD_BF16,
                                                   .samples = 1,
                                                   .kv_samples = 1,
                                                   .heads = 1,
                                                   .head_dim = SIDE,
                                                   .q_tokens = SIDE,
                                                   .kv_tokens = SIDE,
                                                   .q_stride = SIDE,
                                                   .kv_stride = SIDE,
                                                   .o_stride = SIDE,
                                                   .scale = 0.125f});
}

/* A picture of 8 x 8 with SIDE channels, one tap. */
static void convolve(rig *r, int launch)
{
    wd_op_conv(r->queue, &(wd_conv_args){.y = r->out + launch * COUNT,
                                         .x = r->in,
                                         .w = r->in,
                                         .type = WD_BF16,
                                         .w_type = WD_BF16,
                                         .samples = 1,
                                         .in = {1, 8, 8},
                                         .out = {1, 8, 8},
                                         .ci = SIDE,
                                         .co = SIDE,
                                         .kernel = {1, 1, 1},
                                         .stride = {1, 1, 1},
                                         .tap1 = 1});
}

/* Everything once; what came of it goes to `out`. */
static void live(uint16_t out[LAUNCHES * COUNT])
{
    rig r;
    open_rig(&r);
    multiply(&r, 0);
    finish(&r, "a product, the first");
    attend(&r, 1);
    finish(&r, "attention, with its plan");
    convolve(&r, 2);
    finish(&r, "a convolution, with its plan");
    attend(&r, 3);
    finish(&r, "attention once more");
    wd_queue_copy_and_wait(r.queue, out, r.out, LAUNCHES * COUNT * sizeof *out);
    close_rig(&r);
}

static void a_device_lives_twice(void **state)
{
    (void)state;
    static uint16_t first[LAUNCHES * COUNT], second[LAUNCHES * COUNT];
    tested_gpu_begin(false);
    printf("first:\n");
    live(first);
    printf("second:\n");
    live(second);
    assert_memory_equal(first, second, sizeof first);
    assert_memory_equal(first + COUNT, first + 3 * COUNT, COUNT * sizeof *first);
#ifdef WD_ON_STANDIN
    assert_int_equal(wd_standin_remove(), 0);
#endif
}

#ifdef WD_ON_STANDIN
/* What cuBLASLt refuses while its products are checked is done by the device's own kernels: a GELU,
 * a launch, an algorithm with few rows. Only a library without any algorithm is refused. */
static void a_device_opens_where_cublaslt_refuses_products(void **state)
{
    (void)state;
    static const wd_standin_faults cases[] = {
        {.lt_rows_least = 16},
        {.lt_gelu_none = {true}},
        {.lt_fail_matmul = 1, .lt_fail_with = WD_LT_STATUS_NOT_SUPPORTED},
    };
    wd_device *device;
    wd_err err;
    tested_gpu_begin(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_the_standin_faults = cases[i];
        wd_test_ok(wd_device_open_cuda(&device, tested_gpu_number(), &err), &err);
        wd_device_close(device);
    }
    wd_the_standin_faults = (wd_standin_faults){.lt_none = true};
    wd_test_refused(wd_device_open_cuda(&device, tested_gpu_number(), &err), &err, WD_UNSUPPORTED,
                    "has no algorithm for the products by which it is checked");
    wd_the_standin_faults = (wd_standin_faults){0};
    assert_int_equal(wd_standin_remove(), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_lives_twice),
#ifdef WD_ON_STANDIN
        cmocka_unit_test(a_device_opens_where_cublaslt_refuses_products),
#endif
    };
    return cmocka_run_group_tests_name("reopen", tests, NULL, NULL);
}
