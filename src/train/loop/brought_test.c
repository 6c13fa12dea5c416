/* What is brought of a teacher that is streamed is used, all of it: as many stages come as sweeps
 * acquire, whichever experts each of them needs, and their bytes are those of the plan. On
 * wan-tiny, both experts.
 *
 * Linked with --wrap=wd_residency_acquire, --wrap=wd_stage_bring,
 * --wrap=wd__residency_part_bring_block, --wrap=wd_file_reader_read and
 * --wrap=wd_file_reader_read_pages, so that they are seen here. */
#include "harness/stepper.h"

#include <math.h>
#include <stdatomic.h>

#include "harness/acquires.h"
#include "harness/random.h"
#include "io/file/file_reader.h"
#include "teacher/plan/planner.h"
#include "teacher/run/residency_part.h"
#include "tiny_teacher.h"
#include "train/loop/devices.h"
#include "train/loop/stepper_impl.h"

/* Sums of whole bytes, the plan's of means over sweeps: they differ by roundings. */
static const double EQUAL = 1e-9;

static struct {
    atomic_int_fast64_t stages, brought, read; /* the last two in bytes */
} seen;

void __real_wd_stage_bring(wd_dit_stage *stored, const wd_stage_layout *layout, char *block,
                           void *staging, wd_queue *queue);
void __wrap_wd_stage_bring(wd_dit_stage *stored, const wd_stage_layout *layout, char *block,
                           void *staging, wd_queue *queue);

static void see(const wd_stage_layout *layout)
{
    atomic_fetch_add(&seen.stages, 1);
    atomic_fetch_add(&seen.brought, (int_fast64_t)layout->block_bytes);
}

void __real_wd__residency_part_bring_block(wd_residency_part *r, wd_stage_buffer *buffer);
void __wrap_wd__residency_part_bring_block(wd_residency_part *r, wd_stage_buffer *buffer);

void __wrap_wd__residency_part_bring_block(wd_residency_part *r, wd_stage_buffer *buffer)
{
    see(&r->layout[buffer->turn.expert][buffer->turn.stage]);
    __real_wd__residency_part_bring_block(r, buffer);
}

void __wrap_wd_stage_bring(wd_dit_stage *stored, const wd_stage_layout *layout, char *block,
                           void *staging, wd_queue *queue)
{
    see(layout);
    __real_wd_stage_bring(stored, layout, block, staging, queue);
}

wd_status __real_wd_file_reader_read(wd_file_reader *reader, void *to, const char *path,
                                     uint64_t offset, size_t bytes, wd_err *err);
wd_status __wrap_wd_file_reader_read(wd_file_reader *reader, void *to, const char *path,
                                     uint64_t offset, size_t bytes, wd_err *err);

wd_status __wrap_wd_file_reader_read(wd_file_reader *reader, void *to, const char *path,
                                     uint64_t offset, size_t bytes, wd_err *err)
{
    atomic_fetch_add(&seen.read, (int_fast64_t)bytes);
    return __real_wd_file_reader_read(reader, to, path, offset, bytes, err);
}

wd_status __real_wd_file_reader_read_pages(wd_file_reader *reader, void *to, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err);
wd_status __wrap_wd_file_reader_read_pages(wd_file_reader *reader, void *to, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err);

wd_status __wrap_wd_file_reader_read_pages(wd_file_reader *reader, void *to, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err)
{
    atomic_fetch_add(&seen.read, (int_fast64_t)bytes);
    return __real_wd_file_reader_read_pages(reader, to, path, offset, bytes, err);
}

/* One strategy, one way to go through it. */
typedef struct scene {
    const char *devices;
    wd_strategy strategy;
    int buffers;
    wd_stepper_options stepper;
} scene;

/* ---- planned ---- */

/* Of a strategy with the scene's window and buffers, for the targets of a round. */
static wd_strategy_plan plan_of(const scene *s, const wd_devices *d, wd_strategy strategy)
{
    wd_err err;
    wd_planner *planner;
    wd_strategy_plan plan;
    uint8_t *expert;
    wd_planner_input in = {
        .devices.need = wd_sweep_plan_need,
        .size = size_of(&s->stepper),
        .cluster = {.devices = d->count, .host_bytes = SIZE_MAX, .disk_bytes_per_s = 1e9},
        .sweep = wd_stepper_sweep_options(&s->stepper),
        .rounds.trajectories = s->stepper.trajectory.slots,
        .request.buffers = s->buffers,
        .student = {.step_targets = (double)s->stepper.trajectory.slots,
                    .steps_ahead = 1,
                    .step_flops = 1},
    };
    for (int i = 0; i < d->count; i++) {
        in.devices.target[i] = d->device[i];
        in.cluster.device[i] = (wd_cluster_device){.bytes = SIZE_MAX / 2,
                                                   .flops_per_s = {1e9, 1e9},
                                                   .link_bytes_per_s = 1e9,
                                                   .reads_host = i == d->processor};
    }
    wd_test_ok(wd_trajectory_experts(&expert, &in.rounds.count, &s->stepper.trajectory,
                                     in.sweep.boundary_timestep, &err),
               &err);
    assert_int_equal(in.rounds.count, s->stepper.trajectory.steps);
    in.rounds.expert = expert;
    wd_test_ok(wd_planner_open(&planner, &in, &err), &err);
    wd_test_ok(wd_planner_plan(&plan, planner, strategy, &err), &err);
    assert_null(plan.objection);
    wd_planner_close(planner);
    wd_free(expert);
    return plan;
}

/* ---- run ---- */

typedef struct sums {
    int64_t brought, read;
} sums;

/* All rounds before `round`, of which the stepper knows that they are all: what comes is used. */
static sums run(const scene *s, wd_devices *d, const wd_placement *p, int64_t round)
{
    wd_err err;
    wd_stepper *m = NULL;
    wd_residency *residency;
    wd_stepper_options o = s->stepper;
    const int64_t before = acquires_seen;
    o.steps = wd_trajectory_first_target(&o.trajectory, round);
    wd_test_ok(
        wd_residency_open_placed(&residency, &teacher, p, WD_BF16, d->teacher, d->host, NULL, &err),
        &err);
    const wd_stepper_teacher where = {residency, p, d->teacher, d->home};
    wd_test_ok(wd_stepper_open(&m, &o, &where, d->student, &err), &err);
    atomic_store(&seen.stages, 0);
    atomic_store(&seen.brought, 0);
    atomic_store(&seen.read, 0);
    for (int64_t step = 0; step < o.steps; step++)
        wd_test_ok(wd_source_prepare(m->source, step + 1, &err), &err);
    const int64_t acquired = acquires_seen - before;
    wd_stepper_close(m);
    wd_residency_close(residency);
    assert_true(acquired > 0);
    assert_int_equal(atomic_load(&seen.stages), acquired);
    return (sums){atomic_load(&seen.brought), atomic_load(&seen.read)};
}

/* Two runs differ by the rounds that the plan is of. */
static void check(const scene *s)
{
    wd_err err;
    wd_devices d;
    const int64_t rounds = s->stepper.trajectory.steps;
    wd_test_ok(wd_devices_open(&d, s->devices, 1, &err), &err);
    const wd_strategy_plan plan = plan_of(s, &d, s->strategy);
    const sums less = run(s, &d, &plan.placement, rounds);
    const sums more = run(s, &d, &plan.placement, 2 * rounds);
    const double read = (double)(more.read - less.read) / (double)rounds;
    const double brought = (double)(more.brought - less.brought) / (double)rounds;
    assert_true(fabs(read - plan.step_bytes[WD_LINK_READ]) <= EQUAL * read);
    if (s->strategy == WD_STRATEGY_offload) {
        const wd_strategy_plan stays = plan_of(s, &d, WD_STRATEGY_gpu);
        const double planned = wd_planner_copied(&plan) - wd_planner_copied(&stays);
        assert_true(fabs(brought - planned) <= EQUAL * brought);
    }
    wd_devices_close(&d);
}

static void what_comes_is_used(void **state)
{
    (void)state;
    static const scene scenes[] = {{"sim:1x256MiB", WD_STRATEGY_disk, 2, {0}},
                                   {"sim:1x256MiB", WD_STRATEGY_offload, 2, {0}},
                                   {"sim:1x256MiB", WD_STRATEGY_disk, 8, {0}},
                                   {"sim:1x256MiB", WD_STRATEGY_offload, 8, {0}},
                                   {"cpu", WD_STRATEGY_disk, 3, {0}}};
    static const int64_t windows[] = {1, 4, 6};
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
            scene s = scenes[i];
            s.stepper = small_stepper(&teacher);
            s.stepper.reuse = s.stepper.batch = 1;
            s.stepper.window = s.stepper.micro_batch = windows[w];
            check(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_is_used),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
