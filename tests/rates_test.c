/* What is measured is a rate, whatever else the machine does meanwhile, and a measurement stays in
 * its buffers, however fast the disk is.
 *
 * Linked with --wrap=clock_gettime, --wrap=wd_queue_launch, --wrap=wd_queue_copy and
 * --wrap=wd_file_reader_read_pages: a machine can be made up, whose clock is moved on by what it
 * does. */
#include "dev/rates.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "dev/ops.h"
#include "io/file/disk.h"
#include "io/file/file_reader.h"
#include "testing.h"

enum { TRIES = 20, AHEAD = 8 << 20 };

/* ---- a machine that is made up ---- */

/* It takes some time about anything, and much more about what it is kept from by others, which is
 * all but every fourth thing. */
static const double START_S = 1e-3, KEPT_S = 0.2;

static struct {
    double per_s; /* FLOPs or bytes; 0: there is none, but the real one */
    bool busy;
    double now, work; /* seconds since it was made up; FLOPs or bytes that were done */
    int64_t things;
    int64_t ahead; /* of a file: where the bytes begin that are read ahead, and take no time */
} machine;

static void make_up(double per_s, bool busy)
{
    memset(&machine, 0, sizeof machine);
    machine.per_s = per_s;
    machine.busy = busy;
    machine.ahead = -AHEAD - 1;
}

static void spend(double work)
{
    const bool kept = machine.busy && machine.things++ % 4 < 3;
    machine.now += START_S + work / machine.per_s + (kept ? KEPT_S : 0);
    machine.work += work;
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!(machine.per_s > 0)) return __real_clock_gettime(clock, now);
    now->tv_sec = (time_t)machine.now;
    now->tv_nsec = (long)(1e9 * (machine.now - (double)now->tv_sec));
    return 0;
}

/* Called for every product of the real machine; NULL: nothing is. */
static void (*launched)(wd_queue *queue, const wd_matmul_args *args);

void __real_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);
void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);

void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes)
{
    const wd_matmul_args *a = args;
    if (!(machine.per_s > 0)) {
        if (op == WD_OP_MATMUL && launched) launched(queue, a);
        __real_wd_queue_launch(queue, op, args, bytes);
    } else if (op == WD_OP_MATMUL) {
        spend(2.0 * (double)a->m * (double)a->n * (double)a->k);
    } else if (op == WD_OP_ADAMW) {
        spend((double)((const wd_adamw_args *)args)->count);
    } else if (op == WD_OP_EMA) {
        spend((double)((const wd_ema_args *)args)->count);
    }
}

void __real_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);
void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);

void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    if (!(machine.per_s > 0))
        __real_wd_queue_copy(queue, to, from, bytes);
    else
        spend((double)bytes);
}

/* Of bytes [at, end): the first that is not read ahead. */
static int64_t first_unread(int64_t at, int64_t end)
{
    const int64_t last = machine.ahead + AHEAD;
    if (at < machine.ahead || at > last) return at;
    return end < last ? end : last;
}

wd_status __real_wd_file_reader_read_pages(wd_file_reader *reader, void *to, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err);
wd_status __wrap_wd_file_reader_read_pages(wd_file_reader *reader, void *to, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err);

wd_status __wrap_wd_file_reader_read_pages(wd_file_reader *reader, void *to, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err)
{
    const int64_t at = (int64_t)offset, end = at + (int64_t)bytes;
    if (machine.per_s > 0) spend((double)(end - first_unread(at, end)));
    machine.ahead = end;
    return __real_wd_file_reader_read_pages(reader, to, path, offset, bytes, err);
}

/* ---- files ---- */

/* Sparse: read as fast as memory goes, so that pieces grow to their most. */
static const char *sparse_file(off_t bytes)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%lld", wd_test_folder(), (long long)bytes);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
    return path;
}

/* ---- tests ---- */

/* What is asked of each kind of measurement, of the machine that is made up. */
typedef wd_status measurement(double *per_s, wd_queue *queue, wd_err *err);

static wd_status products(double *per_s, wd_queue *queue, wd_err *err)
{
    return wd_rate_of_products(per_s, queue, WD_F32, 4096, 4096, 4096, err);
}

static wd_status reads(double *per_s, wd_queue *queue, wd_err *err)
{
    (void)queue;
    return wd_rate_of_disk(per_s, sparse_file(256 << 20), err);
}

static const struct {
    measurement *take;
    double fast, slow;
} kinds[] = {
    {products, 1e11, 2e9},        {wd_rate_of_link, 1e9, 2e6},      {reads, 1e9, 2e6},
    {wd_rate_of_adamw, 5e8, 2e6}, {wd_rate_of_adamw8bit, 5e8, 2e6}, {wd_rate_of_ema, 5e8, 2e6}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Takes one of a processor's queue. */
static double take(int kind, double per_s, bool busy)
{
    wd_err err;
    wd_device *device;
    wd_queue *queue;
    double found = 0;
    wd_test_ok(wd_device_open_cpu(&device, 1, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    make_up(per_s, busy);
    wd_test_ok(kinds[kind].take(&found, queue, &err), &err);
    machine.per_s = 0;
    wd_queue_close(queue);
    wd_device_close(device);
    return found;
}

/* However little of what is measured is let alone. */
static void others_are_at_work(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int busy = 0; busy < 2; busy++) {
            const double per_s = kinds[kind].fast, found = take(kind, per_s, busy);
            if (found < 0.85 * per_s || found > per_s)
                fail_msg("kind %d: %g per second, it is %g", kind, found, per_s);
        }
}

/* The slow are not kept busy for long, and of a disk not much is read in any case. */
static void little_is_done(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const double per_s = kinds[kind].slow, found = take(kind, per_s, false);
        assert_true(found > 0.9 * per_s && found <= per_s);
        if (machine.now > 1) fail_msg("kind %d takes %g s", kind, machine.now);
    }
    for (int busy = 0; busy < 2; busy++) {
        take(2, kinds[2].fast, busy);
        assert_true(machine.work <= 80 << 20);
    }
}

/* A device that works while the host goes on is given enough to be full: products of 8192 where its
 * pool has room, of less where it has not, one after another, and copies of 64 MiB. */
static void fast_devices_are_saturated(void **state)
{
    (void)state;
    const size_t bytes[] = {(size_t)4 << 30, 16 << 20};
    const double side[] = {8192, 1024};
    for (int i = 0; i < 2; i++) {
        wd_err err;
        wd_device *device;
        wd_queue *queue;
        double found = 0;
        const wd_sim_options options = {.bytes = bytes[i]};
        wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
        wd_test_ok(wd_queue_open(&queue, device, &err), &err);
        make_up(1e18, false);
        wd_test_ok(wd_rate_of_products(&found, queue, WD_F32, 9000, 9000, 9000, &err), &err);
        const double product = 2 * side[i] * side[i] * side[i];
        assert_true(machine.work >= 64 * product && machine.work < 10 * 64 * product);
        make_up(1e15, false);
        wd_test_ok(wd_rate_of_link(&found, queue, &err), &err);
        assert_true(machine.work >= (double)(i ? 16 << 20 : 64 << 20));
        machine.per_s = 0;
        wd_queue_close(queue);
        wd_device_close(device);
    }
}

static int64_t products_seen;

/* Of operands of random numbers, of which next to none is zero and none is like its neighbour. */
static void expect_random(const void *operand, wd_dtype type, int64_t count)
{
    int64_t like = 0, zero = 0;
    double squares = 0;
    float before = 0;
    for (int64_t i = 0; i < count; i++) {
        const float x = type == WD_BF16 ? wd_bf16_to_f32(((const uint16_t *)operand)[i])
                                        : ((const float *)operand)[i];
        like += x == before;
        zero += x == 0;
        squares += (double)x * (double)x;
        before = x;
    }
    assert_true(like <= count / 100 && zero <= count / 1000);
    assert_true(squares > 0.9 * (double)count && squares < 1.1 * (double)count);
}

static void expect_random_operands(wd_queue *queue, const wd_matmul_args *args)
{
    (void)queue;
    if (products_seen++) return;
    expect_random(args->a, args->a_type, args->m * args->k);
    expect_random(args->b, args->b_type, args->n * args->k);
}

/* A GPU clocks higher where it multiplies zeros, so that plans would promise too much. */
static void products_are_of_random_numbers(void **state)
{
    (void)state;
    static const wd_dtype types[] = {WD_F32, WD_BF16};
    wd_err err;
    wd_device *device;
    wd_queue *queue;
    wd_test_ok(wd_device_open_cpu(&device, 1, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    for (int i = 0; i < 2; i++) {
        double found = 0;
        products_seen = 0;
        launched = expect_random_operands;
        wd_test_ok(wd_rate_of_products(&found, queue, types[i], 512, 384, 512, &err), &err);
        launched = NULL;
        assert_true(found > 0 && products_seen > 0);
    }
    wd_queue_close(queue);
    wd_device_close(device);
}

static void disks(void **state)
{
    (void)state;
    wd_err err;
    static const off_t sizes[] = {1, 100 << 10, 12 << 20, 256 << 20};
    for (int i = 0; i < 4; i++)
        for (int repeat = 0; repeat < 4; repeat++) {
            double rate = 0;
            wd_test_ok(wd_rate_of_disk(&rate, sparse_file(sizes[i]), &err), &err);
            assert_true(rate > 0);
        }
    double rate;
    wd_test_refused(wd_rate_of_disk(&rate, "/no/such/file", &err), &err, WD_IO, "/no/such/file");
}

static void devices(void **state)
{
    (void)state;
    wd_err err;
    double flops = 0, bytes = 0;
    wd_device *device;
    wd_queue *queue;
    const wd_sim_options options = {
        .bytes = 64 << 20, .link_bytes_per_s = 1e8, .flops_per_s = {1e9, 1e9}};
    wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    /* never above the device's rate; on a busy machine some are below it */
    for (int i = 0; i < TRIES && !(flops > 0.5e9); i++) {
        wd_test_ok(wd_rate_of_products(&flops, queue, WD_F32, 256, 256, 256, &err), &err);
        assert_true(flops < 1.01e9);
    }
    for (int i = 0; i < TRIES && !(bytes > 0.5e8); i++) {
        wd_test_ok(wd_rate_of_link(&bytes, queue, &err), &err);
        assert_true(bytes < 1.01e8);
    }
    assert_true(flops > 0.5e9 && bytes > 0.5e8);
    wd_queue_close(queue);
    wd_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_at_work),
        cmocka_unit_test(little_is_done),
        cmocka_unit_test(fast_devices_are_saturated),
        cmocka_unit_test(products_are_of_random_numbers),
        cmocka_unit_test(disks),
        cmocka_unit_test(devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
