/* Memory that libraries take beside the pools is measured once for a kind of GPU, kept, and counted
 * from then on, so that a pool can be filled to its last byte while libraries compute. On GPUs that
 * the stand-in driver shows, whose libraries take memory when they first compute: compiled with
 * WD_STANDIN_GPUS. Devices without libraries of their own are left alone. */
#include "api/setup/run.h"

#include "api/setup/rate_cache.h"
#include "dev/library_memory.h"
#include "dev/ops.h"
#include "testing.h"

static int use_cache_of_test(void **state)
{
    (void)state;
    return setenv("XDG_CACHE_HOME", wd_test_folder(), 1);
}

static void other_devices_are_left_alone(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *device[2];
    size_t bytes = 1;
    wd_test_ok(wd_device_open_cpu(&device[0], 1, &err), &err);
    wd_test_ok(wd_device_open_sim(&device[1], &(wd_sim_options){.bytes = 1 << 20}, &err), &err);
    wd_test_ok(wd_device_memory_measure(device, 2, &err), &err);
    wd_test_ok(wd_device_measure_beside(&bytes, device[1], &err), &err);
    assert_int_equal(bytes, 0);
    wd_device_reserve_beside(device[1], 1 << 19);
    assert_int_equal(wd_device_bytes_max(device[1]), 1 << 20);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wd_device_traits(device[i])->bytes_beside, 0);
        wd_device_close(device[i]);
    }
}

#ifdef WD_STANDIN_GPUS
#include "dev/cuda.h"
#include "standin/driver.h"

enum { GRANULE = 2 << 20, FUNCTION = 48 << 20, POOL = 1 << 30 };

/* A GPU whose libraries take FUNCTION bytes for each of their functions: cuBLASLt's when the device
 * is opened, for products are checked then; cuDNN's later, which is more than the estimate. */
static wd_device *open_gpu(const char *name, size_t bytes_of_others)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    wd_err err = {0};
    wd_device *device;
    options.bytes = POOL;
    options.bytes_of_others = bytes_of_others;
    options.bytes_of_function = FUNCTION;
    options.name = name;
    wd_standin_install_all(&options);
    wd_test_ok(wd_device_open_cuda(&device, 0, &err), &err);
    return device;
}

static void close_gpu(wd_device *device)
{
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

/* One query and key, by cuDNN, in a pool of which everything is given out. */
static wd_status attend_in_a_full_pool(wd_device *device, wd_err *err)
{
    enum { HEAD = 64, ROOM = 4 * GRANULE };
    wd_queue *queue;
    void *rest, *block;
    wd_test_ok(wd_queue_open(&queue, device, err), err);
    wd_test_ok(wd_device_alloc(&block, device, GRANULE, "a test", err), err);
    const wd_attention_args args = {.o = (char *)block + (1 << 20),
                                    .q = block,
                                    .k = block,
                                    .v = block,
                                    .type = WD_BF16,
                                    .samples = 1,
                                    .kv_samples = 1,
                                    .heads = 1,
                                    .head_dim = HEAD,
                                    .q_tokens = 1,
                                    .kv_tokens = 1,
                                    .q_stride = HEAD,
                                    .kv_stride = HEAD,
                                    .o_stride = HEAD,
                                    .scale = 1};
    wd_queue *rehearsal;
    wd_test_ok(wd_rehearsal_open(&rehearsal, queue, err), err);
    wd_op_attention(rehearsal, &args);
    wd_test_ok(wd_rehearsal_close(rehearsal, queue, err), err);
    const size_t left = wd_device_bytes_max(device) - wd_device_bytes(device);
    wd_test_ok(wd_device_alloc(&rest, device, left, "the rest of the pool", err), err);
    wd_op_attention(queue, &args);
    wd_queue_wait(queue);
    const wd_status status = wd_device_fault(device, err);
    wd_device_free(device, rest);
    wd_device_free(device, block);
    wd_queue_close(queue);
    return status;
}

static void an_estimate_may_be_too_small(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *device = open_gpu("NVIDIA Unmeasured", 0);
    assert_true(wd_device_beside_is_estimate(device));
    wd_test_refused(attend_in_a_full_pool(device, &err), &err, WD_DEVICE_FAULT, "");
    close_gpu(device);
}

static size_t kept(void)
{
    wd_rate_cache cache;
    const char *key;
    json_t *entry;
    double bytes = 0;
    wd_rate_cache_open(&cache);
    json_object_foreach(cache.rates, key, entry)
    {
        if (strstr(key, "bytes beside the pool, NVIDIA Measured, sm_90, cuBLASLt"))
            bytes += wd_rate_cache_get(&cache, key);
    }
    wd_rate_cache_close(&cache);
    return (size_t)bytes;
}

static void what_is_measured_is_counted(void **state)
{
    (void)state;
    wd_err err = {0};
    size_t bytes_max = 0;
    for (int run = 0; run < 2; run++) {
        wd_device *device = open_gpu("NVIDIA Measured", 0);
        const int64_t before = wd_standin_count().launches;
        wd_test_ok(wd_device_memory_measure(&device, 1, &err), &err);
        /* computed in the first run, known in the second */
        assert_int_equal(wd_standin_count().launches > before, run == 0);
        assert_false(wd_device_beside_is_estimate(device));
        assert_int_equal(wd_device_traits(device)->bytes_beside, 2 * FUNCTION + WD_BESIDE_MARGIN);
        assert_int_equal(kept(), FUNCTION);
        if (run) assert_int_equal(wd_device_bytes_max(device), bytes_max);
        bytes_max = wd_device_bytes_max(device);
        assert_in_range(bytes_max + 2 * FUNCTION + WD_BESIDE_MARGIN, POOL - 2 * GRANULE, POOL);
        assert_int_equal(wd_device_bytes_peak(device), 0);
        wd_test_ok(attend_in_a_full_pool(device, &err), &err);
        close_gpu(device);
    }
}

static void without_room_the_estimate_stays(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *device = open_gpu("NVIDIA Full", (size_t)POOL - FUNCTION - (45 << 20));
    wd_test_ok(wd_device_memory_measure(&device, 1, &err), &err);
    assert_true(wd_device_beside_is_estimate(device));
    close_gpu(device);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_devices_are_left_alone),
#ifdef WD_STANDIN_GPUS
        cmocka_unit_test(an_estimate_may_be_too_small),
        cmocka_unit_test(what_is_measured_is_counted),
        cmocka_unit_test(without_room_the_estimate_stays),
#endif
    };
    return cmocka_run_group_tests(tests, use_cache_of_test, NULL);
}
