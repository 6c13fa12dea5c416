/* Counters that rise with every sweep of a run: they go on behind INT_MAX, and the places that they
 * choose stay inside their rings. */
#include "placements.h"
#include "testing.h"

#include <limits.h>

#include "teacher/run/residency_part.h"

static void readings_go_on_behind_int_max(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_pipeline pipeline;
    wd_device *device;
    wd_queue *queue;
    wd_residency_part *streamed;
    wd_dit_stage stage;
    wd_test_ok(wd_pipeline_open(&pipeline, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_test_ok(wd_device_open_sim(&device, &(wd_sim_options){.bytes = 1 << 28}, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    const wd_placement p = wd_test_all_in(&pipeline, WD_HOME_DISK);
    const wd_residency_part_options options = {
        .pipeline = &pipeline, .stages = {&p, WD_HOME_DISK, 0}, .storage = WD_F32, .queue = queue};
    wd_test_ok(wd__residency_part_open(&streamed, &options, &err), &err);
    assert_int_equal(streamed->stagings, 2);
    streamed->staged = INT_MAX - 1;
    wd__residency_part_begin(streamed, (wd_sweep_experts){1, 1}, (wd_sweep_experts){0, 0});
    for (int i = 0; i < p.stages; i++) {
        wd_test_ok(wd__residency_part_acquire(streamed, &stage, 0, i, queue, &err), &err);
        wd__residency_part_release(streamed, 0, i, queue);
    }
    assert_int_equal(streamed->staged, (int64_t)INT_MAX - 1 + p.stages);
    wd__residency_part_close(streamed);
    wd_queue_close(queue);
    wd_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readings_go_on_behind_int_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
