/* Tests of simulated devices: the budget, the order of asynchronous work, and how long it takes.
 *
 * Times of work are computed, and then slept for. With a clock of its own the test compares
 * computed times exactly. Real times are only bounded from below, since a busy machine makes them
 * longer. Whether two pieces of work run at the same time is seen from which one ends first, with a
 * factor of three between their times. */
#include "testing.h"

#include "dev/ops.h"
#include "dev/sim/sim.h"

enum { SIZE = 32, TRIES = 5 };

static const double PRODUCT_FLOPS = 2.0 * SIZE * SIZE * SIZE;

static double bf16_speed = 1; /* times that of fp32, of devices that are opened */

static wd_device *open_device(int number, size_t bytes, double link, double flops)
{
    wd_device *device;
    wd_err err;
    const wd_sim_options options = {.number = number,
                                    .bytes = bytes,
                                    .link_bytes_per_s = link,
                                    .flops_per_s = {bf16_speed * flops, flops}};
    wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
    return device;
}

static wd_queue *open_queue(wd_device *device)
{
    wd_queue *queue;
    wd_err err;
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    return queue;
}

static void *alloc(wd_device *device, size_t bytes)
{
    void *block;
    wd_err err;
    wd_test_ok(wd_device_alloc(&block, device, bytes, "a block", &err), &err);
    return block;
}

/* Host memory that copies may name. */
static void *pinned(wd_device *device, size_t bytes)
{
    void *block;
    wd_err err;
    wd_test_ok(wd_host_alloc(&block, device, bytes, "host memory", &err), &err);
    return block;
}

static wd_event *open_event(wd_device *device)
{
    wd_event *event;
    wd_err err;
    wd_test_ok(wd_event_open(&event, device, &err), &err);
    return event;
}

static void fill(wd_queue *queue, float *x, float value)
{
    wd_op_fill(queue, &(wd_fill_args){.to = x, .type = WD_F32, .count = 1, .value = value});
}

/* Launches `times` products of PRODUCT_FLOPS each of the matrices in x [3, SIZE, SIZE] `type`. The
 * result is fp32. */
static void multiply_in(wd_dtype type, wd_queue *queue, float *x, int times)
{
    const wd_matmul_args args = {.c = x + 2 * SIZE * SIZE,
                                 .a_type = type,
                                 .b_type = type,
                                 .a = x,
                                 .b = x + SIZE * SIZE,
                                 .m = SIZE,
                                 .n = SIZE,
                                 .k = SIZE,
                                 .lda = SIZE,
                                 .ldb = SIZE,
                                 .ldc = SIZE,
                                 .batch = 1};
    for (int i = 0; i < times; i++) wd_op_matmul(queue, &args);
}

static void multiply(wd_queue *queue, float *x, int times)
{
    multiply_in(WD_F32, queue, x, times);
}

static const size_t PRODUCT_BYTES = 3 * SIZE * SIZE * sizeof(float);

/* ---- memory ---- */

static void budget_holds_to_the_byte(void **state)
{
    (void)state;
    wd_err err;
    void *none = NULL;
    wd_device *device = open_device(3, 10000, 0, 0), *other = open_device(1, 10000, 0, 0);
    assert_int_equal(wd_device_bytes_max(device), 10000);
    assert_false(wd_device_traits(device)->reads_host);
    void *a = alloc(device, 6000);
    wd_test_refused(wd_device_alloc(&none, device, 4001, "gradients", &err), &err, WD_OUT_OF_MEMORY,
                    "gradients: sim:3 (10000 B): 4001 bytes asked for, 4000 "
                    "free: 6000 of 10000 are allocated");
    assert_null(none);
    void *b = alloc(device, 4000), *empty = alloc(device, 0), *c = alloc(other, 10000);
    wd_test_refused(wd_device_alloc(&none, device, 1, "x", &err), &err, WD_OUT_OF_MEMORY, "0 free");
    assert_int_equal(wd_device_bytes_peak(device), 10000);
    wd_device_free(device, a);
    wd_device_free(device, empty);
    wd_queue *queue = open_queue(device);
    wd_test_refused(wd_queue_reserve_workspace(queue, 6001, &err), &err, WD_OUT_OF_MEMORY, "6001");
    wd_test_ok(wd_queue_reserve_workspace(queue, 6000, &err), &err);
    wd_queue_close(queue);
    assert_int_equal(wd_device_bytes(device), 4000);
    wd_device_free(device, b);
    wd_device_free(other, c);
    wd_device_close(device);
    wd_device_close(other);
}

static void names_say_what_they_are(void **state)
{
    (void)state;
    wd_device *plain = open_device(0, (size_t)24 << 30, 0, 0);
    wd_device *slow = open_device(12, 1500, 25e9, 2e10);
    assert_string_equal(wd_device_name(plain), "sim:0 (24 GiB)");
    assert_string_equal(wd_device_name(slow), "sim:12 (1500 B, link 25 GB/s, 20 GFLOP/s)");
    wd_device_close(plain);
    wd_device_close(slow);
}

/* ---- order ---- */

/* Launches use the arguments at the time of the call, and are done in order, however many are
 * queued. */
static void launches_are_queued(void **state)
{
    (void)state;
    enum { LAUNCHES = 5000 };
    wd_device *device = open_device(0, 1 << 20, 0, PRODUCT_FLOPS / 0.05);
    wd_queue *queue = open_queue(device);
    float *x = alloc(device, PRODUCT_BYTES), *sum = alloc(device, 3 * sizeof(float));
    float *got = pinned(device, sizeof *got);
    fill(queue, sum + 1, 1);
    multiply(queue, x, 1); /* what follows waits */
    wd_step_samples_args args = {.v = sum + 1, .dt = sum + 1, .samples = 1, .width = 1};
    for (int i = 0; i < LAUNCHES; i++) {
        args.x = sum;
        wd_op_step_samples(queue, &args);
        args.x = NULL;
    }
    wd_queue_copy(queue, got, sum, sizeof *got);
    wd_queue_wait(queue);
    assert_true(*got == LAUNCHES);
    wd_host_free(device, got);
    wd_device_free(device, x);
    wd_device_free(device, sum);
    wd_queue_close(queue);
    wd_device_close(device);
}

/* Queue 1 (of the same device, then of another) reads what queue 0 writes after 100 ms. */
static void events_order_queues_and_devices(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        wd_device *device[2];
        for (int i = 0; i < 2; i++) device[i] = open_device(i, 1 << 20, 0, PRODUCT_FLOPS / 0.1);
        wd_queue *first = open_queue(device[0]), *second = open_queue(device[other]);
        wd_event *written = open_event(device[0]), *read = open_event(device[other]);
        float *x = alloc(device[0], PRODUCT_BYTES), *y = alloc(device[1], sizeof *y);
        float *got = pinned(device[0], 2 * sizeof *got);
        wd_event_wait_on(second, read); /* never recorded */
        for (int round = 0; round < 2; round++) {
            wd_event_wait_on(first, read);
            multiply(first, x, 1);
            fill(first, x, (float)(round + 7));
            wd_event_record(written, first);
            wd_event_wait_on(second, written);
            wd_queue_copy(second, y, x, sizeof *x);
            wd_event_record(read, second);
            wd_queue_copy(second, got + round, y, sizeof *y);
        }
        wd_queue_wait(second);
        assert_true(got[0] == 7 && got[1] == 8);
        wd_host_free(device[0], got);
        wd_event_close(written);
        wd_event_close(read);
        wd_device_free(device[0], x);
        wd_device_free(device[1], y);
        wd_queue_close(first);
        wd_queue_close(second);
        for (int i = 0; i < 2; i++) wd_device_close(device[i]);
    }
}

/* From the third launch on the device computes nothing, reports it, and waits for it return. */
static void a_failed_device_says_so(void **state)
{
    (void)state;
    wd_err err;
    wd_device *device;
    const wd_sim_options options = {.number = 2, .bytes = 1024, .failing_launch = 3};
    wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
    wd_queue *queue = open_queue(device), *other = open_queue(device);
    wd_event *event = open_event(device);
    float *x = alloc(device, sizeof *x), *got = pinned(device, 2 * sizeof *got);
    got[1] = -1;
    fill(queue, x, 1);
    wd_queue_wait(queue);
    fill(other, x, 2);
    wd_queue_copy(other, got, x, sizeof *x);
    wd_queue_wait(other);
    wd_test_ok(wd_device_fault(device, &err), &err);
    fill(queue, x, 3);
    fill(queue, x, 4);
    wd_queue_copy(queue, got + 1, x, sizeof *x);
    wd_event_record(event, queue);
    wd_event_wait(event);
    assert_true(got[0] == 2 && got[1] == -1);
    for (int i = 0; i < 2; i++)
        wd_test_refused(wd_device_fault(device, &err), &err, WD_DEVICE_FAULT,
                        "sim:2 (1 KiB) failed at launch 3 (fill)");
    wd_host_free(device, got);
    wd_event_close(event);
    wd_queue_close(queue);
    wd_queue_close(other);
    wd_device_free(device, x);
    wd_device_close(device);
}

/* A queue of the cpu device waits for an event at once. */
static void the_processor_waits_too(void **state)
{
    (void)state;
    wd_device *device = open_device(0, 1 << 20, 0, PRODUCT_FLOPS / 0.1), *cpu;
    wd_err err;
    wd_test_ok(wd_device_open_cpu(&cpu, 1, &err), &err);
    wd_queue *queue = open_queue(device), *cpu_queue = open_queue(cpu);
    wd_event *event = open_event(device), *cpu_event = open_event(cpu);
    float *x = alloc(device, PRODUCT_BYTES), *got = pinned(device, sizeof *got);
    multiply(queue, x, 1);
    wd_queue_copy(queue, got, x, sizeof *got);
    fill(queue, x, 5);
    wd_queue_copy(queue, got, x, sizeof *got);
    wd_event_record(event, queue);
    wd_event_wait_on(cpu_queue, event);
    assert_true(*got == 5);
    wd_event_record(cpu_event, cpu_queue);
    wd_event_wait_on(queue, cpu_event);
    wd_host_free(device, got);
    wd_device_free(device, x);
    wd_event_close(event);
    wd_event_close(cpu_event);
    wd_queue_close(queue);
    wd_queue_close(cpu_queue);
    wd_device_close(device);
    wd_device_close(cpu);
}

static void events_outlive_their_queue(void **state)
{
    (void)state;
    wd_device *device = open_device(0, 1 << 20, 0, 0);
    wd_queue *gone = open_queue(device), *queue = open_queue(device);
    wd_event *event = open_event(device);
    float *x = alloc(device, sizeof *x), *got = pinned(device, sizeof *got);
    fill(gone, x, 4);
    wd_event_record(event, gone);
    wd_queue_close(gone);
    wd_event_wait(event);
    wd_event_wait_on(queue, event);
    wd_queue_copy(queue, got, x, sizeof *got);
    wd_event_record(event, queue);
    wd_event_wait(event);
    assert_true(*got == 4);
    wd_host_free(device, got);
    wd_event_close(event);
    wd_device_free(device, x);
    wd_queue_close(queue);
    wd_device_close(device);
}

/* ---- overlap ---- */

/* Whether a kernel of kernel_s on queue A is done when a copy of copy_s on queue B is. */
static bool kernel_is_first(double kernel_s, double copy_s)
{
    enum { BYTES = 100000 };
    wd_device *device = open_device(0, 1 << 20, BYTES / copy_s, PRODUCT_FLOPS / kernel_s);
    wd_queue *a = open_queue(device), *b = open_queue(device);
    wd_event *kernel = open_event(device), *copy = open_event(device);
    float *x = alloc(device, PRODUCT_BYTES);
    char *block = alloc(device, BYTES), *host = pinned(device, BYTES);
    multiply(a, x, 1);
    wd_event_record(kernel, a);
    wd_queue_copy(b, block, host, BYTES);
    wd_event_record(copy, b);
    wd_event_wait(copy);
    const bool first = wd_event_is_done(kernel);
    wd_queue_wait(a);
    wd_event_close(kernel);
    wd_event_close(copy);
    wd_device_free(device, x);
    wd_device_free(device, block);
    wd_queue_close(a);
    wd_queue_close(b);
    wd_host_free(device, host);
    wd_device_close(device);
    return first;
}

/* Whether that is so in one of several attempts, since a machine may stop in between. */
static bool may_be_first(double kernel_s, double copy_s, bool first)
{
    for (int i = 0; i < TRIES; i++)
        if (kernel_is_first(kernel_s, copy_s) == first) return true;
    return false;
}

/* If they ran one after the other, in either order, one of the two would never be first. */
static void copies_overlap_kernels(void **state)
{
    (void)state;
    assert_true(may_be_first(0.6, 0.2, false));
    assert_true(may_be_first(0.2, 0.6, true));
}

/* ---- times ---- */

enum { QUEUES = 2 };

/* The set-up of timed work: two devices, two queues on each, memory. */
typedef struct fixture {
    wd_device *device[2];
    wd_queue *queue[2][QUEUES];
    float *x[2][QUEUES];
    char *block[2][QUEUES], *host[QUEUES];
} fixture;

enum { BLOCK = 4000000 };

static void build(fixture *s, double link0, double link1, double flops)
{
    for (int d = 0; d < 2; d++) {
        s->device[d] = open_device(d, 1 << 28, d ? link1 : link0, flops);
        for (int q = 0; q < QUEUES; q++) {
            s->queue[d][q] = open_queue(s->device[d]);
            s->x[d][q] = alloc(s->device[d], PRODUCT_BYTES);
            s->block[d][q] = alloc(s->device[d], BLOCK);
        }
    }
    for (int q = 0; q < QUEUES; q++) s->host[q] = pinned(s->device[0], BLOCK);
}

static void wait_all(fixture *s)
{
    for (int d = 0; d < 2; d++)
        for (int q = 0; q < QUEUES; q++) wd_queue_wait(s->queue[d][q]);
}

static void tear_down(fixture *s)
{
    for (int q = 0; q < QUEUES; q++) wd_host_free(s->device[0], s->host[q]);
    for (int d = 0; d < 2; d++) {
        for (int q = 0; q < QUEUES; q++) {
            wd_queue_close(s->queue[d][q]);
            wd_device_free(s->device[d], s->x[d][q]);
            wd_device_free(s->device[d], s->block[d][q]);
        }
        wd_device_close(s->device[d]);
    }
}

/* The test's own clock, which moves only when the test sets it. */
static double own_s;

static double own_clock_s(void)
{
    return own_s;
}

/* The computed time at which the last of the queues is done. */
static double over_s(const fixture *s)
{
    double last_s = 0;
    for (int d = 0; d < 2; d++)
        for (int q = 0; q < QUEUES; q++)
            last_s = fmax(last_s, wd__sim_queue_line(s->queue[d][q])->clock_s);
    return last_s;
}

/* Checks the computed time of work, with the test's clock. */
static void takes(double expected_s, void (*work)(fixture *), fixture *s)
{
    wd_sim_clock_s = own_clock_s;
    work(s);
    wait_all(s);
    wd_sim_clock_s = wd_clock_s;
    const double took_s = over_s(s) - own_s;
    own_s += took_s;
    if (!(fabs(took_s - expected_s) < 1e-6))
        fail_msg("%.6f s instead of %.6f s", took_s, expected_s);
}

/* Checks the real time of work. */
static void lasts(double least_s, void (*work)(fixture *), fixture *s)
{
    const double begun_s = wd_clock_s();
    work(s);
    wait_all(s);
    assert_true(wd_clock_s() - begun_s >= least_s * (1 - 1e-6));
}

static void one_kernel(fixture *s)
{
    multiply(s->queue[0][0], s->x[0][0], 1);
}

static void many_kernels(fixture *s)
{
    multiply(s->queue[0][0], s->x[0][0], 400);
}

static void kernels_of_two_queues(fixture *s)
{
    for (int q = 0; q < QUEUES; q++) multiply(s->queue[0][q], s->x[0][q], 200);
}

static void kernels_of_two_devices(fixture *s)
{
    for (int d = 0; d < 2; d++) multiply(s->queue[d][0], s->x[d][0], 400);
}

static void kernels_take_their_flops(void **state)
{
    (void)state;
    fixture s;
    own_s = 0;
    build(&s, 0, 0, PRODUCT_FLOPS / 0.5e-3);
    takes(0.5e-3, one_kernel, &s);
    takes(0.2, many_kernels, &s);
    takes(0.2, kernels_of_two_queues, &s);
    takes(0.2, kernels_of_two_devices, &s);
    lasts(0.2, many_kernels, &s);
    tear_down(&s);
}

/* 200 products in fp32, and as many in bf16 on another queue of the device. */
static void kernels_of_two_dtypes(fixture *s)
{
    multiply(s->queue[0][0], s->x[0][0], 200);
    multiply_in(WD_BF16, s->queue[0][1], s->x[0][1], 200);
}

static void kernels_take_the_rate_of_their_dtype(void **state)
{
    (void)state;
    fixture s;
    own_s = 0;
    bf16_speed = 4;
    build(&s, 0, 0, PRODUCT_FLOPS / 0.5e-3);
    takes(0.5e-3, one_kernel, &s);
    takes(200 * (0.5e-3 + 0.125e-3), kernels_of_two_dtypes, &s);
    assert_non_null(strstr(wd_device_name(s.device[0]), "GFLOP/s: 0.5243 in bf16, 0.1311 in fp32"));
    tear_down(&s);
    bf16_speed = 1;
}

/* The product of one row. */
static void multiply_row(wd_queue *queue, float *x)
{
    const wd_matmul_args args = {.c = x + 2 * SIZE * SIZE,
                                 .a = x,
                                 .b = x + SIZE * SIZE,
                                 .m = 1,
                                 .n = SIZE,
                                 .k = SIZE,
                                 .lda = SIZE,
                                 .ldb = SIZE,
                                 .ldc = SIZE,
                                 .batch = 1};
    wd_op_matmul(queue, &args);
}

/* Small and empty pieces of work end before a large kernel of another queue that was submitted
 * earlier. */
static void small_kernels_pass_large_ones(void **state)
{
    (void)state;
    wd_err err;
    fixture s;
    wd_event *large;
    bool passed = false;
    build(&s, 0, 0, PRODUCT_FLOPS / 0.5);
    wd_test_ok(wd_event_open(&large, s.device[0], &err), &err);
    for (int i = 0; i < TRIES && !passed; i++) {
        multiply(s.queue[0][0], s.x[0][0], 1);
        wd_event_record(large, s.queue[0][0]);
        multiply_row(s.queue[0][1], s.x[0][1]);
        wd_op_fill(s.queue[0][1], &(wd_fill_args){.to = s.x[0][1], .type = WD_F32, .count = SIZE});
        wd_queue_wait(s.queue[0][1]);
        passed = !wd_event_is_done(large);
        wait_all(&s);
    }
    assert_true(passed);
    wd_event_close(large);
    tear_down(&s);
}

static void to_device(fixture *s)
{
    wd_queue_copy(s->queue[0][0], s->block[0][0], s->host[0], BLOCK);
}

static void to_host(fixture *s)
{
    wd_queue_copy(s->queue[0][0], s->host[0], s->block[0][0], BLOCK);
}

static void both_ways(fixture *s)
{
    wd_queue_copy(s->queue[0][0], s->block[0][0], s->host[0], BLOCK / 2);
    wd_queue_copy(s->queue[0][1], s->host[1], s->block[0][1], BLOCK / 2);
}

static void many_copies(fixture *s)
{
    enum { MANY = 400 };
    for (int i = 0; i < MANY; i++)
        wd_queue_copy(s->queue[0][0], s->block[0][0], s->host[0], BLOCK / MANY);
}

/* Device 1 has half of device 0's link. */
static void between_devices(fixture *s)
{
    wd_queue_copy(s->queue[0][0], s->block[1][0], s->block[0][0], BLOCK / 2);
}

/* Two copies to device 1, from another device and from the host, share its link. */
static void from_two_sides(fixture *s)
{
    wd_queue_copy(s->queue[0][0], s->block[1][0], s->block[0][0], BLOCK / 4);
    wd_queue_copy(s->queue[1][0], s->block[1][1], s->host[0], BLOCK / 4);
}

static void two_links(fixture *s)
{
    wd_queue_copy(s->queue[0][0], s->block[0][0], s->host[0], BLOCK);
    wd_queue_copy(s->queue[1][0], s->block[1][0], s->host[1], BLOCK / 2);
}

static void copies_take_their_bytes(void **state)
{
    (void)state;
    fixture s;
    own_s = 0;
    build(&s, BLOCK / 0.2, BLOCK / 0.4, 0);
    takes(0.2, to_device, &s);
    takes(0.2, to_host, &s);
    takes(0.2, both_ways, &s);
    takes(0.2, many_copies, &s);
    takes(0.2, between_devices, &s);
    takes(0.2, from_two_sides, &s);
    takes(0.2, two_links, &s);
    lasts(0.2, many_copies, &s);
    tear_down(&s);
}

/* After a sleep that was too long the next work begins at the computed end of the last one, unless
 * the machine is much too late. */
static void late_sleeps_do_not_add_up(void **state)
{
    (void)state;
    wd_sim_clock_s = own_clock_s;
    own_s = 10.004;
    assert_true(wd__sim_begin_s(10) == 10);
    assert_true(wd__sim_begin_s(11) == 11);
    own_s = 10.2;
    assert_true(fabs(wd__sim_begin_s(10) - 10.195) < 1e-9);
    wd_sim_clock_s = wd_clock_s;
}

static void within_a_pool(fixture *s)
{
    wd_queue_copy(s->queue[0][0], s->block[0][1], s->block[0][0], BLOCK);
    wd_queue_copy(s->queue[0][0], s->host[1], s->host[0], BLOCK);
}

static void copies_within_a_pool_do_not_use_the_link(void **state)
{
    (void)state;
    fixture s;
    own_s = 0;
    build(&s, BLOCK / 100.0, 0, 0);
    takes(0, within_a_pool, &s);
    tear_down(&s);
}

/* A small copy does not wait for a large one that is running: it ends in a tenth of its time. */
static void small_copies_pass_large_ones(void **state)
{
    (void)state;
    fixture s;
    double best_s = 1e9;
    build(&s, BLOCK / 0.5, 0, 0);
    for (int i = 0; i < TRIES; i++) {
        wd_queue_copy(s.queue[0][0], s.block[0][0], s.host[0], BLOCK);
        double begun_s = wd_clock_s();
        wd_queue_copy(s.queue[0][1], s.host[1], s.block[0][1], 1000);
        wd_queue_wait(s.queue[0][1]);
        double took_s = wd_clock_s() - begun_s;
        wait_all(&s);
        if (took_s < best_s) best_s = took_s;
        if (best_s < 0.05) break;
    }
    assert_true(best_s < 0.05);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget_holds_to_the_byte),
        cmocka_unit_test(names_say_what_they_are),
        cmocka_unit_test(launches_are_queued),
        cmocka_unit_test(events_order_queues_and_devices),
        cmocka_unit_test(a_failed_device_says_so),
        cmocka_unit_test(the_processor_waits_too),
        cmocka_unit_test(events_outlive_their_queue),
        cmocka_unit_test(copies_overlap_kernels),
        cmocka_unit_test(kernels_take_their_flops),
        cmocka_unit_test(kernels_take_the_rate_of_their_dtype),
        cmocka_unit_test(small_kernels_pass_large_ones),
        cmocka_unit_test(copies_take_their_bytes),
        cmocka_unit_test(late_sleeps_do_not_add_up),
        cmocka_unit_test(copies_within_a_pool_do_not_use_the_link),
        cmocka_unit_test(small_copies_pass_large_ones),
    };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
