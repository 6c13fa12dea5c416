/* Streamed stages come by themselves, in the order in which a sweep that was announced uses them.
 */
#include "aborts.h"
#include "placements.h"
#include "testing.h"

#include <unistd.h>

#include "teacher/run/residency_part.h"

enum { PATIENCE_MS = 20000, BLOCKS = 2 }; /* BLOCKS: buffers */

static const wd_sweep_experts none, first = {1, 1}, second = {2, 2};

typedef struct scene {
    wd_pipeline pipeline;
    wd_device *processor, *device;
    wd_queue *host, *queue;
    wd_placement placement;
    wd_residency_part *part;
} scene;

static void open_scene(scene *s, bool from_disk)
{
    wd_err err = {0};
    wd_test_ok(wd_pipeline_open(&s->pipeline, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_test_ok(wd_device_open_cpu(&s->processor, 1, &err), &err);
    wd_test_ok(wd_queue_open(&s->host, s->processor, &err), &err);
    wd_test_ok(wd_device_open_sim(&s->device, &(wd_sim_options){.bytes = 1 << 28}, &err), &err);
    wd_test_ok(wd_queue_open(&s->queue, s->device, &err), &err);
    const wd_home home = from_disk ? WD_HOME_DISK : WD_HOME_HOST;
    s->placement = wd_test_all_in(&s->pipeline, home);
    s->placement.buffers = BLOCKS;
    const wd_residency_part_options options = {.pipeline = &s->pipeline,
                                               .stages = {&s->placement, home, 0},
                                               .storage = WD_BF16,
                                               .queue = s->queue,
                                               .processor = s->host};
    wd_test_ok(wd__residency_part_open(&s->part, &options, &err), &err);
}

static void close_scene(scene *s)
{
    wd__residency_part_close(s->part);
    wd_queue_close(s->queue);
    wd_device_close(s->device);
    wd_queue_close(s->host);
    wd_device_close(s->processor);
}

static bool has_come(wd_residency_part *r, int expert, int stage)
{
    bool found = false;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->buffers; i++) {
        const wd_stage_buffer *s = &r->buffer[i];
        found |= s->state == WD_BUFFER_FILLED && s->turn.expert == expert && s->turn.stage == stage;
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

static void assert_comes(const scene *s, int expert, int stage)
{
    for (int ms = 0; !has_come(s->part, expert, stage); ms++) {
        if (ms > PATIENCE_MS) fail_msg("stage %d of expert %d does not come", stage, expert);
        usleep(1000);
    }
}

static void use(const scene *s, int expert, int stage)
{
    wd_err err = {0};
    wd_dit_stage view;
    wd_test_ok(wd__residency_part_acquire(s->part, &view, expert, stage, s->queue, &err), &err);
    wd__residency_part_release(s->part, expert, stage, s->queue);
}

/* While one block is used the next one comes, and with the last ones the first ones of the sweep
 * that follows. */
static void stages_come_ahead(void **state)
{
    (void)state;
    for (int from_disk = 0; from_disk < 2; from_disk++) {
        scene s;
        wd_err err = {0};
        wd_dit_stage view;
        open_scene(&s, from_disk);
        const int stages = s.placement.stages;
        wd__residency_part_begin(s.part, first, second);
        for (int stage = 0; stage < stages; stage++) {
            wd_test_ok(wd__residency_part_acquire(s.part, &view, 0, stage, s.queue, &err), &err);
            if (stage + 1 < stages) assert_comes(&s, 0, stage + 1);
            wd__residency_part_release(s.part, 0, stage, s.queue);
        }
        for (int stage = 0; stage <= BLOCKS; stage++) assert_comes(&s, 1, stage);
        wd__residency_part_begin(s.part, second, none);
        for (int stage = 0; stage < stages; stage++) use(&s, 1, stage);
        close_scene(&s);
    }
}

/* A thread that waits for a stage's turn goes on, and ends, when its part is closed. */
static void a_part_without_sweeps_is_closed(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, true);
    close_scene(&s);
}

/* Stages of another sweep than was expected make room for those that are used. */
static void another_sweep_comes(void **state)
{
    (void)state;
    for (int from_disk = 0; from_disk < 2; from_disk++) {
        scene s;
        open_scene(&s, from_disk);
        const int stages = s.placement.stages;
        for (int sweep = 0; sweep < 3; sweep++) {
            wd__residency_part_begin(s.part, first, second);
            for (int stage = 0; stage < stages; stage++) use(&s, 0, stage);
            if (sweep) assert_comes(&s, 1, 1);
        }
        wd__residency_part_begin(s.part, none, none);
        for (int stage = 0; stage < BLOCKS; stage++) assert_false(has_come(s.part, 1, stage));
        close_scene(&s);
    }
}

static void use_unannounced(void *context)
{
    use(context, 0, 0);
}

static void a_sweep_must_be_announced(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, true);
    wd_test_aborts(use_unannounced, &s, "the sweep was not announced for expert 0");
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_come_ahead),
        cmocka_unit_test(a_part_without_sweeps_is_closed),
        cmocka_unit_test(another_sweep_comes),
        cmocka_unit_test(a_sweep_must_be_announced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
