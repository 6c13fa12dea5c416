/* What is measured is a rate, and a measurement stays in its buffers, however fast the disk is. */
#include "teacher/rates.h"

#include <fcntl.h>
#include <unistd.h>

#include "testing.h"

enum { TRIES = 20 };

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

static void disks(void **state)
{
    (void)state;
    wd_err err;
    static const off_t sizes[] = {1, 100 << 10, 12 << 20, 256 << 20};
    for (int i = 0; i < 4; i++)
        for (int repeat = 0; repeat < 4; repeat++) { /* a busy machine ends one early */
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
    const wd_sim_options options = {.bytes = 64 << 20, .link_bytes_per_s = 1e8, .flops_per_s = 1e9};
    wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    /* never above the device's rate; a busy machine ends some measurements early, below it */
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
        cmocka_unit_test(disks),
        cmocka_unit_test(devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
