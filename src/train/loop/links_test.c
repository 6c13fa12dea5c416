/* What moves in a step is what its plan says, link by link and byte for byte: copies between host
 * memory and every device, and between devices, both ways apart; reads from disk; what ranks send
 * to one another. Under every strategy, for one rank and for several, which are threads, on
 * wan-tiny.
 *
 * With WD_TEST_ALL_LINKS in three ways of sweeping and for three ranks, too.
 *
 * Linked with --wrap=wd_queue_copy, --wrap=wd_file_reader_read and --wrap=wd_comm_send, so that all
 * of it is seen here. */
#include "harness/ranks.h"

#include <math.h>
#include <stdatomic.h>

#include "dev/sim/sim.h"
#include "io/file/file_reader.h"
#include "teacher/plan/planner.h"
#include "tiny_teacher.h"
#include "train/loop/stepper_impl.h"

enum { SLOTS = 6, TRAJECTORY = 3, DEVICES_MAX = 12, HOST = DEVICES_MAX, PLACES, MIXED = 4 };

/* Sums of whole bytes, the plan's of means over sweeps: they differ by roundings. */
static const double EQUAL = 1e-9;

/* ---- measured ---- */

/* In bytes, of a run. [HOST]: its memory. */
typedef struct moved {
    int64_t copied[PLACES][PLACES], sent[RANKS_MAX][RANKS_MAX];
    int64_t bytes_broadcast, read; /* to all other ranks; from disk */
} moved;

static struct {
    const wd_device *device[DEVICES_MAX]; /* of all ranks */
    atomic_int_fast64_t copied[PLACES][PLACES], sent[RANKS_MAX][RANKS_MAX], bytes_broadcast, read;
} seen;

static int place_of(const void *address)
{
    const wd_sim_device *owner = wd__sim_owner(address);
    if (!owner) return HOST;
    for (int d = 0; d < DEVICES_MAX; d++)
        if (seen.device[d] == &owner->base) return d;
    abort();
}

void __real_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);
void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);

void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    if (!wd_device_is_dry(wd_queue_device(queue)))
        atomic_fetch_add(&seen.copied[place_of(from)][place_of(to)], (int_fast64_t)bytes);
    __real_wd_queue_copy(queue, to, from, bytes);
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

wd_ticket __real_wd_comm_send(wd_comm *comm, wd_lane lane, const void *from, size_t bytes, int to,
                              wd_event *after);
wd_ticket __wrap_wd_comm_send(wd_comm *comm, wd_lane lane, const void *from, size_t bytes, int to,
                              wd_event *after);

wd_ticket __wrap_wd_comm_send(wd_comm *comm, wd_lane lane, const void *from, size_t bytes, int to,
                              wd_event *after)
{
    atomic_fetch_add(&seen.sent[comm->rank][to], (int_fast64_t)bytes);
    return __real_wd_comm_send(comm, lane, from, bytes, to, after);
}

/* ---- runs ---- */

typedef struct scene {
    const char *devices; /* of each rank */
    int ranks;
    wd_stepper_options stepper;
    wd_strategy strategy;
    wd_placement custom;
} scene;

/* A rank's part of a run. */
typedef struct part {
    rank_thread at;
    const scene *scene;
    const wd_placement *placement;
    int64_t steps;
} part;

/* What other ranks have sent and nothing has waited for, comes, as before a checkpoint. */
static void let_all_come(wd_stepper *m)
{
    json_t *json;
    const wd_checkpoint_tensor *tensors;
    int64_t count;
    HARNESS_OK(wd_source_save(m->source, &json, &tensors, &count, err));
    json_decref(json);
}

static void *run_rank(void *rank)
{
    part *p = rank;
    rank_stepper r;
    wd_comm *comm = p->at.comm;
    wd_stepper_options o = p->scene->stepper;
    o.comm = comm;
    o.steps = p->steps;
    HARNESS_OK(wd_devices_open(&r.devices, p->scene->devices, 1, err));
    for (int d = 0; d < r.devices.count; d++)
        seen.device[comm->rank * r.devices.count + d] = r.devices.device[d];
    wd_comm_barrier(comm);
    open_stepper(&r, &o, p->placement);
    for (int64_t step = 0; step < o.steps; step++) {
        const bool pauses = step + 1 == o.steps; /* no target is made that no step needs */
        HARNESS_OK(wd_stepper_step(r.stepper,
                                   &(wd_step){.number = step, .lr = 1e-3, .pauses = pauses}, err));
        while (wd_stepper_results_pending(r.stepper) > (step + 1 < o.steps))
            wd_stepper_take_result(r.stepper);
    }
    let_all_come(r.stepper);
    atomic_fetch_add(&seen.bytes_broadcast,
                     comm->sent[WD_LANE_TARGETS] + comm->sent[WD_LANE_GRADIENTS]);
    close_stepper(&r);
    return NULL;
}

/* Steps for which all targets before `round` are made, and no more. */
static int64_t steps_until(const scene *s, int64_t round)
{
    const wd_stepper_options *o = &s->stepper;
    const int64_t samples = o->reuse * wd_trajectory_first_target(&o->trajectory, round);
    const int64_t step_samples = o->batch * o->accumulation * s->ranks;
    assert_int_equal(samples % step_samples, 0);
    return samples / step_samples;
}

static moved run(const scene *s, const wd_placement *placement, int64_t steps)
{
    moved m;
    part parts[RANKS_MAX];
    memset(&seen, 0, sizeof seen);
    for (int r = 0; r < s->ranks; r++)
        parts[r] = (part){.scene = s, .placement = placement, .steps = steps};
    run_ranks(parts, sizeof *parts, s->ranks, run_rank);
    for (int a = 0; a < PLACES; a++)
        for (int b = 0; b < PLACES; b++) m.copied[a][b] = atomic_load(&seen.copied[a][b]);
    for (int a = 0; a < RANKS_MAX; a++)
        for (int b = 0; b < RANKS_MAX; b++) m.sent[a][b] = atomic_load(&seen.sent[a][b]);
    m.bytes_broadcast = atomic_load(&seen.bytes_broadcast);
    m.read = atomic_load(&seen.read);
    return m;
}

/* ---- planned ---- */

/* As it is in the files. */
static wd_teacher_size size_of_files(const wd_stepper_options *o)
{
    wd_teacher_size size;
    wd_safetensors *weights[2];
    wd_teacher_files files[2];
    const int experts = wd_teacher_experts(o->teacher);
    for (int e = 0; e < experts; e++) {
        const wd_component c = e ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
        HARNESS_OK(wd_pipeline_open_weights(&weights[e], o->teacher, c, err));
        files[e] = (wd_teacher_files){.weights = weights[e]};
    }
    HARNESS_OK(wd_teacher_size_of(&size, &o->teacher->dit, experts, files, o->teacher_dtype, err));
    for (int e = 0; e < experts; e++) wd_safetensors_close(weights[e]);
    return size;
}

/* As `moved`. */
typedef struct planned {
    double copied[PLACES][PLACES], sent[RANKS_MAX][RANKS_MAX], bytes_broadcast, read;
    wd_placement placement;
} planned;

static wd_planner_input input_of(const scene *s, const wd_devices *d, const wd_comm *like)
{
    wd_stepper_options o = s->stepper;
    wd_memory_plan beside = {0};
    o.comm = (wd_comm *)(uintptr_t)like;
    wd_planner_input in = {
        .devices.need = wd_sweep_plan_need,
        .size = size_of_files(&o),
        .cluster = cluster_of(d, s->ranks),
        .sweep = wd_stepper_sweep_options(&o),
        .rounds = {.trajectories = o.trajectory.slots, .count = TRAJECTORY},
        .request = {.custom = s->strategy == WD_STRATEGY_custom ? &s->custom : NULL,
                    .teacher_rank = s->ranks > 1},
        .student = {.step_targets = (double)wd_stepper_step_samples(&o) / (double)o.reuse,
                    .steps_ahead = 1,
                    .step_flops = 1,
                    .step_bytes = wd_stepper_step_bytes(&o),
                    .back_bytes = wd_stepper_back_bytes(&o)},
    };
    in.cluster.hosts = 1;
    in.cluster.disk_bytes_per_s = 1e9;
    for (int i = 0; i < d->count; i++) {
        in.devices.target[i] = d->device[i];
        in.cluster.device[i].link_bytes_per_s = 1e9;
        for (int k = 0; k < WD_PRECISIONS; k++) in.cluster.device[i].flops_per_s[k] = 1e9;
    }
    if (s->ranks == 1 && o.place == WD_STATE_ON_DEVICE) return in;
    HARNESS_OK(wd_memory_plan_stepper(&beside, &o, &(wd_samples_options){0}, d, NULL, err));
    if (o.place != WD_STATE_ON_DEVICE) {
        const double weights = (double)beside.student_weights;
        const wd_optimizer_traffic update = wd_optimizer_host_traffic(
            o.student_dtype, o.gradients, weights, (double)beside.student_islands, weights,
            o.place == WD_STATE_EMA_ON_HOST);
        in.student.step_bytes += update.in;
        in.student.back_bytes += update.out;
    }
    if (s->ranks == 1) return in;
    in.gradients.reduced_bytes = in.gradients.gathered_bytes =
        (double)beside.student_weights * sizeof(float);
    in.gradients.out_bytes = in.gradients.in_bytes = in.gradients.reduced_bytes;
    return in;
}

/* The link of every rank or host that has one like it. */
static void put(planned *out, const wd_link *link, int devices, double steps)
{
    const double bytes = steps * link->bytes;
    for (int n = 0; n < link->alike; n++) {
        const int from = n * devices + link->from, to = n * devices + link->to;
        switch (link->kind) {
        case WD_LINK_READ:
            out->read += bytes;
            break;
        case WD_LINK_IN:
            out->copied[HOST][to] += bytes;
            break;
        case WD_LINK_OUT:
            out->copied[from][HOST] += bytes;
            break;
        case WD_LINK_ACROSS:
            out->copied[from][to] += bytes;
            break;
        default:
            *(link->to < 0 ? &out->bytes_broadcast : &out->sent[link->from][link->to]) += bytes;
        }
    }
}

/* What moves in the rounds from `round` on, as many as a trajectory has steps. */
static planned plan_of(const scene *s, int64_t round)
{
    wd_err err;
    wd_devices d;
    planned out = {.read = 0};
    wd_planner *planner;
    wd_strategy_plan plan;
    uint8_t expert[TRAJECTORY * SLOTS];
    const wd_comm like = {.ranks = s->ranks, .hosts = 1, .host_ranks = s->ranks, .in_blocks = true};
    const wd_trajectory_options *t = &s->stepper.trajectory;
    const double steps = (double)(steps_until(s, round + TRAJECTORY) - steps_until(s, round));
    wd_test_ok(wd_devices_open(&d, s->devices, 1, &err), &err);
    wd_planner_input in = input_of(s, &d, &like);
    for (int i = 0; i < TRAJECTORY * SLOTS; i++)
        expert[i] = wd__trajectory_target(t, wd_trajectory_first_target(t, round) + i).timestep <
                    in.sweep.boundary_timestep;
    in.rounds.expert = expert;
    wd_test_ok(wd_planner_open(&planner, &in, &err), &err);
    wd_test_ok(wd_planner_plan(&plan, planner, s->strategy, &err), &err);
    const wd_traffic *traffic = wd_planner_traffic(planner, &plan);
    for (int i = 0; i < traffic->links; i++) put(&out, &traffic->link[i], d.count, steps);
    out.placement = plan.placement;
    wd_planner_close(planner);
    wd_devices_close(&d);
    return out;
}

/* ---- both ---- */

static void assert_bytes(const scene *s, const char *what, int from, int to, int64_t more,
                         int64_t less, double expected)
{
    const double got = (double)(more - less);
    if (fabs(got - expected) > EQUAL * expected)
        fail_msg("%s, %d ranks of %s, window %d: %s %d to %d: %.0f bytes, planned %.3f",
                 wd_strategy_name(s->strategy), s->ranks, s->devices, (int)s->stepper.window, what,
                 from, to, got, expected);
}

/* Two runs differ by the rounds that the plan is of. */
static void check(const scene *s)
{
    const planned p = plan_of(s, TRAJECTORY);
    const moved less = run(s, &p.placement, steps_until(s, TRAJECTORY));
    const moved more = run(s, &p.placement, steps_until(s, 2 * TRAJECTORY));
    for (int a = 0; a < PLACES; a++)
        for (int b = 0; b < PLACES; b++)
            if (a != b)
                assert_bytes(s, "copied from place", a, b, more.copied[a][b], less.copied[a][b],
                             p.copied[a][b]);
    for (int a = 0; a < s->ranks; a++)
        for (int b = 0; b < s->ranks; b++)
            assert_bytes(s, "sent from rank", a, b, more.sent[a][b], less.sent[a][b], p.sent[a][b]);
    assert_bytes(s, "sent to all, from rank", 0, s->ranks, more.bytes_broadcast,
                 less.bytes_broadcast, p.bytes_broadcast);
    assert_bytes(s, "read from disk", 0, 0, more.read, less.read, p.read);
}

static scene scene_of(const char *devices, int ranks, wd_strategy strategy)
{
    scene s = {devices, ranks, small_stepper(&teacher), strategy, {0}};
    s.stepper.trajectory.slots = SLOTS;
    s.stepper.trajectory.steps = TRAJECTORY;
    s.stepper.batch = ranks > 1 ? 1 : 3;
    return s;
}

/* Stages anywhere: in all homes, on all devices of all ranks. */
static void place_anywhere(scene *s, int devices, uint64_t number)
{
    const wd_random key = {.stream = WD_RANDOM_TEST, .index = number};
    uint64_t draw = 0;
    s->strategy = WD_STRATEGY_custom;
    s->custom = whole_on_first(&teacher);
    for (int e = 0; e < s->custom.experts; e++)
        for (int i = 0; i < s->custom.stages; i++) {
            const int device = (int)(wd_random_uniform(key, draw++) * s->ranks * devices);
            wd_home home = (wd_home)(wd_random_uniform(key, draw++) * 3);
            if (home == WD_HOME_HOST && device % devices + 1 == devices) home = WD_HOME_DEVICE;
            s->custom.place[e][i] = (wd_stage_placement){home, device};
        }
}

static void links_of_one_rank(void **state)
{
    (void)state;
    static const struct {
        int64_t window, micro_batch, reuse;
        wd_dtype kept;
        double guidance;
    } ways[] = {{4, 1, 2, WD_F32, 1}, {6, 6, 1, WD_BF16, 2}, {5, 2, 1, WD_F16, 2}};
    const size_t tried = getenv("WD_TEST_ALL_LINKS") ? sizeof ways / sizeof *ways : 1;
    for (size_t w = 0; w < tried; w++)
        for (int k = 0; k < WD_STRATEGY_auto + MIXED; k++) {
            scene s = scene_of("sim:3x256MiB", 1, (wd_strategy)k);
            s.stepper.window = ways[w].window;
            s.stepper.micro_batch = ways[w].micro_batch;
            s.stepper.reuse = ways[w].reuse;
            s.stepper.teacher_dtype = ways[w].kept;
            s.stepper.guidance_scale[0] = ways[w].guidance;
            s.stepper.place = (wd_state_place)(k % 3);
            s.stepper.student_dtype = k % 4 == 1 ? WD_BF16 : WD_F32;
            if (k == WD_STRATEGY_custom) continue;
            if (k >= WD_STRATEGY_auto) place_anywhere(&s, 3 + 1, (uint64_t)(MIXED * (int)w + k));
            check(&s);
        }
}

static void a_processor_alone(void **state)
{
    (void)state;
    static const wd_strategy strategies[] = {WD_STRATEGY_cpu, WD_STRATEGY_disk};
    for (int i = 0; i < 2; i++) {
        const scene s = scene_of("cpu", 1, strategies[i]);
        check(&s);
    }
}

/* Where each has a teacher, all have the same of a window, and of one expert. */
static void links_of_ranks(void **state)
{
    (void)state;
    wd_pipeline one = teacher;
    one.boundary_ratio = 0;
    for (int ranks = 2; ranks <= (getenv("WD_TEST_ALL_LINKS") ? 3 : 2); ranks++)
        for (int k = 0; k < WD_STRATEGY_auto + MIXED; k++) {
            scene s = scene_of("sim:2x256MiB", ranks, (wd_strategy)k);
            if (k == WD_STRATEGY_custom) continue;
            if (k == WD_STRATEGY_offload || k == WD_STRATEGY_disk) s.stepper.teacher = &one;
            s.stepper.micro_batch = 2;
            s.stepper.place = (wd_state_place)(k % 3);
            if (k >= WD_STRATEGY_auto) place_anywhere(&s, 2 + 1, (uint64_t)(1000 * ranks + k));
            check(&s);
        }
}

/* A teacher that is quantised on its way in moves the bytes of its file in the cache. */
static void links_of_a_quantised_teacher(void **state)
{
    (void)state;
    static const wd_strategy strategies[] = {WD_STRATEGY_disk, WD_STRATEGY_offload,
                                             WD_STRATEGY_balanced};
    char cache[WD_PATH_MAX];
    wd_err err;
    wd_pipeline both = teacher, one;
    wd_test_ok(wd_path_join(cache, wd_test_folder(), "cache", &err), &err);
    both.overlay = (wd_overlay){.folder = cache, .dtype = WD_BF16, .quantised = WD_I8};
    wd_test_ok(wd_pipeline_make_overlay(&both, &err), &err);
    both.overlay.is_made = true;
    one = both;
    one.boundary_ratio = 0;
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int i = 0; i < 3; i++) {
            scene s = scene_of("sim:2x256MiB", ranks, strategies[i]);
            const bool has_all = ranks > 1 && strategies[i] != WD_STRATEGY_balanced;
            s.stepper.teacher = has_all ? &one : &both;
            s.stepper.micro_batch = 2;
            check(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_of_one_rank),
        cmocka_unit_test(a_processor_alone),
        cmocka_unit_test(links_of_ranks),
        cmocka_unit_test(links_of_a_quantised_teacher),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
