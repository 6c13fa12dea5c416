/* Tests of the values of dev/fill_random.h, on a processor and on a simulated device. */
#include "dev/fill_random.h"

#include <math.h>
#include <stdlib.h>

#include "dev/cpu/reference.h"
#include "testing.h"

enum { BLOCK = WD_FILL_RANDOM_BLOCK, MOST = 3 * BLOCK + 7, BEHIND = 16 };

static wd_device *open_device(int kind)
{
    wd_err err;
    wd_device *device = NULL;
    const wd_sim_options options = {.bytes = 8 << 20};
    wd_test_ok(kind ? wd_device_open_sim(&device, &options, &err)
                    : wd_device_open_cpu(&device, 1, &err),
               &err);
    return device;
}

/* Fills `count` values of a larger array that was zero, and copies it to `host`. */
static void fill(float *host, wd_device *device, wd_dtype type, int64_t count, float scale)
{
    wd_err err;
    wd_queue *queue;
    void *to;
    const size_t bytes = (size_t)(MOST + BEHIND) * wd_dtype_bytes(type);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    wd_test_ok(wd_device_alloc(&to, device, bytes, "values", &err), &err);
    const size_t before = wd_device_bytes(device);
    wd_test_ok(wd_fill_random(queue, to, type, count, scale, &err), &err);
    assert_int_equal(wd_device_bytes(device), before);
    wd_queue_copy_and_wait(queue, host, to, bytes);
    wd_device_free(device, to);
    wd_queue_close(queue);
}

static void values_are_standard_normal_and_repeat(void **state)
{
    (void)state;
    static const wd_dtype types[] = {WD_F32, WD_BF16, WD_F16};
    static const int64_t counts[] = {0, 1, BLOCK - 1, BLOCK, 2 * BLOCK, MOST};
    float *host = malloc((MOST + BEHIND) * sizeof *host);
    assert_non_null(host);
    for (int i = 0; i < 2 * 3 * 6; i++) {
        const wd_dtype type = types[i / 6 % 3];
        const int64_t count = counts[i % 6];
        wd_device *device = open_device(i / 18);
        fill(host, device, type, count, 0.5f);
        double sum = 0, squares = 0;
        int64_t same = 0;
        for (int64_t j = 0; j < count; j++) {
            const float x = wd__load(host, type, j);
            assert_true(isfinite(x) && (j < BLOCK || x == wd__load(host, type, j - BLOCK)));
            same += j && x == wd__load(host, type, j - 1);
            sum += x;
            squares += (double)x * (double)x;
        }
        if (count > 1) { /* of 65,000 numbers or more the mean is off by 0.002 */
            assert_true(fabs(sum) < 0.01 * (double)count);
            assert_true(fabs(squares / (double)count - 0.25) < 0.01);
            assert_true(same < count / 100);
        }
        for (int64_t j = count; j < MOST + BEHIND; j++) assert_true(wd__load(host, type, j) == 0);
        wd_device_close(device);
    }
    free(host);
}

static void memory_may_be_missing(void **state)
{
    (void)state;
    wd_err err;
    wd_device *device;
    wd_queue *queue;
    void *to;
    const wd_sim_options options = {.bytes = 300 << 10};
    wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    wd_test_ok(wd_device_alloc(&to, device, 100 << 10, "values", &err), &err);
    wd_test_refused(wd_fill_random(queue, to, WD_F32, 100, 1, &err), &err, WD_OUT_OF_MEMORY,
                    "random values");
    wd_device_free(device, to);
    wd_queue_close(queue);
    wd_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_standard_normal_and_repeat),
        cmocka_unit_test(memory_may_be_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
