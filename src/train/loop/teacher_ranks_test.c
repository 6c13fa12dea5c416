/* One teacher for many ranks: whoever evaluates a state, all ranks have the same trajectories and
 * targets, and these are those of one rank, bit for bit; where a run is saved and gone on with by
 * another number of ranks, too. Ranks are threads, each with devices of its own, so slow that who
 * does not wait comes too early. On wan-tiny, both experts, after three passes of trajectories. */
#include "harness/ranks.h"

#include "train/targets/source.h"

enum {
    SLOTS = 6,
    TRAJECTORY = 3,
    BATCH = 3,
    STEP = 12, /* samples: two rounds of the trajectories */
    STEPS = 6,
    STATE = 16 * LATENT * LATENT
};

static const char *const slow = "sim:1x64MiB@link=100MB/s,compute=20GFLOP/s";
static const char *const crawling = "sim:1x64MiB@link=200kB/s";

static wd_pipeline teacher;

/* ---- what ranks are asked for, and what they give ---- */

typedef struct demand {
    const char *devices; /* of each rank */
    const char *others;  /* of those without a teacher; NULL: the same */
    int ranks;
    wd_strategy strategy;
    int teacher_rank;
    int64_t window, micro_batch;
} demand;

/* What all ranks together have seen, and what each of them has at the end. */
typedef struct outcome {
    float latents[STEPS * STEP][STATE], target[STEPS * STEP][STATE]; /* of every sample */
    float trajectory[RANKS_MAX][SLOTS][STATE];
    float ring[RANKS_MAX][2][64][STATE]; /* states, velocities */
    int64_t capacity, activations;       /* targets; bytes that went from rank to rank */
    json_t *json;
} outcome;

typedef struct rank_job {
    rank_thread at;
    const demand *demand;
    outcome *out;
    const outcome *from; /* NULL: begins */
    int64_t first, end;  /* steps */
    int64_t activations; /* bytes that it has sent */
} rank_job;

/* All of it: homes of all kinds on devices of all ranks, processors too, from one to the other and
 * back, experts apart. */
static wd_placement mixed(const wd_teacher_size *size, const wd_cluster *cluster)
{
    static const wd_home homes[] = {WD_HOME_DEVICE, WD_HOME_HOST, WD_HOME_DEVICE, WD_HOME_DISK};
    wd_placement p = wd_placement_begin(size, cluster);
    const int all = wd__cluster_devices(cluster);
    for (int e = 0; e < p.experts; e++)
        for (int s = 0; s < p.stages; s++) {
            const int device = (5 * s + 3 * e + s / 2) % all;
            const bool mapped = wd_cluster_at(cluster, device)->reads_host;
            const wd_home home = homes[(s + e) % 4];
            p.place[e][s].home = mapped && home == WD_HOME_HOST ? WD_HOME_DEVICE : home;
            p.place[e][s].device = device;
        }
    return p;
}

static wd_placement placement_of(const demand *wanted, const wd_devices *devices)
{
    wd_placement p;
    const wd_teacher_size size = size_of(&teacher, WD_F32);
    wd_cluster cluster = cluster_of(devices, wanted->ranks);
    for (int d = 0; d < cluster.devices && wanted->strategy == WD_STRATEGY_sequential; d++)
        cluster.device[d].bytes = 2 * (size.stage[0][1].device * (size_t)size.stages / 3);
    if (wanted->strategy == WD_STRATEGY_custom) return mixed(&size, &cluster);
    HARNESS_OK(wd_strategy_place(&p, wanted->strategy, &size, &cluster, wanted->teacher_rank, err));
    return p;
}

/* A rank's part of a teacher and its trajectories. */
typedef struct rig {
    wd_devices devices;
    wd_residency *residency;
    wd_sweep *sweep;
    wd_source *source;
} rig;

/* Of a rank whose targets all come from another: not a byte. */
static void check_no_teacher(const rig *r)
{
    const wd_residency_info *info = wd_residency_info_of(r->residency);
    size_t bytes = info->host_bytes + info->mapped_bytes;
    for (int d = 0; d < r->devices.count; d++) bytes += wd_device_bytes(r->devices.device[d]);
    if (bytes) abort();
}

static void open_rig(rig *r, const rank_job *job)
{
    const demand *wanted = job->demand;
    const bool other = wanted->others && job->at.comm->rank != wanted->teacher_rank;
    HARNESS_OK(wd_devices_open(&r->devices, other ? wanted->others : wanted->devices, 1, err));
    const wd_devices *d = &r->devices;
    const wd_placement p = placement_of(wanted, d);
    const wd_sweep_options sweep = {.config = teacher.dit,
                                    .dtype = WD_F32,
                                    .frames = 1,
                                    .height = LATENT,
                                    .width = LATENT,
                                    .text_tokens = TEXT,
                                    .text_repeat = 3,
                                    .window_max = wd_placed_window(&p, wanted->window),
                                    .micro_batch = wanted->micro_batch,
                                    .boundary_timestep = teacher.boundary_ratio * 1000,
                                    .guidance_scale = {2, 3},
                                    .text = text_of,
                                    .latents_device = wd_queue_device(d->home),
                                    .comm = job->at.comm};
    wd_trajectory_options trajectory = small_stepper(&teacher).trajectory;
    trajectory.steps = TRAJECTORY;
    const wd_source_options source = {.trajectory = trajectory,
                                      .batches = {.samples_max = BATCH,
                                                  .state_count = STATE,
                                                  .text_tokens = TEXT,
                                                  .text_dim = 96,
                                                  .text_dtype = WD_F32,
                                                  .text = text_of},
                                      .reuse = 1,
                                      .replay = 1,
                                      .step_samples = STEP,
                                      .window = wanted->window,
                                      .comm = job->at.comm};
    HARNESS_OK(wd_residency_open_placed(&r->residency, &teacher, &p, WD_F32, d->teacher, d->host,
                                        job->at.comm, err));
    HARNESS_OK(wd_sweep_open(&r->sweep, &sweep, r->residency, d->teacher, err));
    if (wanted->strategy == WD_STRATEGY_gpu0 && job->at.comm->rank != wanted->teacher_rank)
        check_no_teacher(r);
    HARNESS_OK(wd_source_trajectory.open(&r->source, &source, r->sweep, d->home, d->student, err));
}

static void close_rig(rig *r)
{
    wd_source_close(r->source);
    wd_sweep_close(r->sweep);
    wd_residency_close(r->residency);
    wd_devices_close(&r->devices);
}

static void copy_out(wd_queue *queue, void *to, const wd_checkpoint_tensor *from)
{
    wd_queue_copy_and_wait(queue, to, from->tensor.data, wd_tensor_bytes(&from->tensor));
}

static void save(const rank_job *job, rig *r)
{
    const wd_checkpoint_tensor *saved;
    int64_t count;
    json_t *json;
    outcome *out = job->out;
    const int rank = job->at.comm->rank;
    HARNESS_OK(wd_source_save(r->source, &json, &saved, &count, err));
    wd_queue *queue = r->devices.student;
    copy_out(queue, out->trajectory[rank], &saved[0]);
    copy_out(queue, out->ring[rank][0], &saved[1]);
    copy_out(queue, out->ring[rank][1], &saved[2]);
    wd_queue_wait(queue);
    if (saved[1].tensor.dim[0] > 64) abort();
    if (rank) {
        json_decref(json);
    } else {
        out->json = json;
        out->capacity = saved[1].tensor.dim[0];
    }
}

static void restore(const rank_job *job, rig *r)
{
    const wd_checkpoint_tensor *saved;
    int64_t count;
    json_t *unused;
    wd_queue *queue = r->devices.student;
    const outcome *from = job->from;
    HARNESS_OK(wd_source_restore(r->source, from->json, job->first, err));
    HARNESS_OK(wd_source_save(r->source, &unused, &saved, &count, err));
    json_decref(unused);
    const void *data[] = {from->trajectory[0], from->ring[0][0], from->ring[0][1]};
    for (int i = 0; i < 3; i++)
        wd_queue_copy_and_wait(queue, saved[i].tensor.data, data[i],
                               wd_tensor_bytes(&saved[i].tensor));
    wd_queue_wait(queue);
}

/* A step's batches, of which every rank has its own. */
static void take_batches(const rank_job *job, rig *r, int64_t step)
{
    wd_batch batch;
    wd_queue *queue = r->devices.student;
    for (int64_t m = job->at.comm->rank; m < STEP / BATCH; m += job->demand->ranks) {
        const int64_t first = step * STEP + m * BATCH;
        wd_source_fill(r->source, &batch, first, BATCH);
        wd_queue_copy_and_wait(queue, job->out->latents[first], batch.latents,
                               BATCH * sizeof(float[STATE]));
        wd_queue_copy_and_wait(queue, job->out->target[first], batch.target,
                               BATCH * sizeof(float[STATE]));
    }
}

/* As a stepper does: the targets of a step are asked for before the last one is over. */
static void *run_rank(void *context)
{
    rank_job *job = context;
    rig r = {0};
    open_rig(&r, job);
    if (job->from) restore(job, &r);
    for (int64_t step = job->first; step < job->end; step++) {
        HARNESS_OK(wd_source_prepare(r.source, (step + 1) * STEP, err));
        take_batches(job, &r, step);
        if (job->demand->ranks > 1 && step + 1 < job->end)
            HARNESS_OK(wd_source_prepare(r.source, (step + 2) * STEP, err));
    }
    save(job, &r);
    job->activations = job->at.comm->sent[WD_LANE_ACTIVATIONS];
    close_rig(&r);
    return NULL;
}

/* Steps [first, end) by ranks. */
static void run(outcome *out, const demand *wanted, const outcome *from, int64_t first, int64_t end)
{
    rank_job job[RANKS_MAX];
    for (int r = 0; r < wanted->ranks; r++)
        job[r] = (rank_job){.demand = wanted, .out = out, .from = from, .first = first, .end = end};
    run_ranks(job, sizeof *job, wanted->ranks, run_rank);
    out->activations = 0;
    for (int r = 0; r < wanted->ranks; r++) out->activations += job[r].activations;
}

/* ---- what must be ---- */

static outcome want, got, half;

static int open_teacher(void **state)
{
    (void)state;
    wd_err err;
    static const demand one = {"cpu", NULL, 1, WD_STRATEGY_cpu, 0, SLOTS, SLOTS};
    if (wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err) != WD_OK) return 1;
    run(&want, &one, NULL, 0, STEPS);
    return 0;
}

static int close_teacher(void **state)
{
    (void)state;
    json_decref(want.json);
    return 0;
}

static void check(const demand *wanted, int64_t first)
{
    const size_t at = (size_t)(first * STEP);
    const size_t bytes = sizeof want.latents - at * sizeof *want.latents;
    assert_memory_equal(got.latents[at], want.latents[at], bytes);
    assert_memory_equal(got.target[at], want.target[at], bytes);
    assert_int_equal(got.capacity, want.capacity);
    for (int r = 0; r < wanted->ranks; r++) {
        assert_memory_equal(got.trajectory[r], want.trajectory[0], sizeof *want.trajectory);
        for (int k = 0; k < 2; k++)
            assert_memory_equal(got.ring[r][k], want.ring[0][k],
                                (size_t)want.capacity * sizeof(float[STATE]));
    }
    assert_true(json_equal(got.json, want.json));
    json_decref(got.json);
}

static void check_run(const demand *wanted)
{
    memset(&got, 0, sizeof got);
    run(&got, wanted, NULL, 0, STEPS);
    check(wanted, 0);
}

/* Shares that are uneven, and windows in which not all ranks have one. */
static void check_strategy(wd_strategy strategy, const char *devices)
{
    static const int64_t windows[][2] = {{SLOTS, 2}, {4, 1}, {2, 2}};
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        const int64_t *cut = windows[ranks - 2];
        check_run(&(demand){devices, NULL, ranks, strategy, 0, cut[0], cut[1]});
    }
}

static void each_on_its_processor(void **state)
{
    (void)state;
    check_strategy(WD_STRATEGY_cpu, "cpu");
}

static void each_on_its_device(void **state)
{
    (void)state;
    check_strategy(WD_STRATEGY_gpu, slow);
}

static void each_from_host_memory(void **state)
{
    (void)state;
    check_strategy(WD_STRATEGY_offload, slow);
}

static void each_from_disk(void **state)
{
    (void)state;
    check_strategy(WD_STRATEGY_disk, slow);
}

/* The others take longer to bring targets to their devices than the teacher to make them. */
static void one_for_all(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
        check_run(&(demand){slow, crawling, ranks, WD_STRATEGY_gpu0, ranks % 2, ranks + 2, 2});
}

/* One sweep over the devices of all ranks. */
static void check_together(wd_strategy strategy)
{
    static const char *const two = "sim:2x64MiB@link=100MB/s,compute=20GFLOP/s";
    static const int64_t windows[][2] = {{SLOTS, 1}, {4, 2}, {SLOTS, 3}};
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        const int64_t *cut = windows[ranks - 2];
        check_run(&(demand){ranks == 3 ? two : slow, NULL, ranks, strategy, 0, cut[0], cut[1]});
        assert_true(got.activations > 0);
    }
}

static void all_are_balanced(void **state)
{
    (void)state;
    check_together(WD_STRATEGY_balanced);
}

static void all_are_filled_one_by_one(void **state)
{
    (void)state;
    check_together(WD_STRATEGY_sequential);
}

static void all_have_what_a_map_says(void **state)
{
    (void)state;
    check_together(WD_STRATEGY_custom);
}

static void another_number_goes_on(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const wd_strategy strategy = k ? WD_STRATEGY_gpu0 : WD_STRATEGY_gpu;
        const demand before = {slow, NULL, k ? 3 : 1, strategy, 1, 4, 2};
        const demand after = {slow, NULL, k ? 2 : 4, WD_STRATEGY_gpu, 0, 5, 2};
        memset(&got, 0, sizeof got);
        run(&half, &before, NULL, 0, STEPS / 2);
        run(&got, &after, &half, STEPS / 2, STEPS);
        json_decref(half.json);
        check(&after, STEPS / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_on_its_processor),
        cmocka_unit_test(each_on_its_device),
        cmocka_unit_test(each_from_host_memory),
        cmocka_unit_test(each_from_disk),
        cmocka_unit_test(one_for_all),
        cmocka_unit_test(all_are_balanced),
        cmocka_unit_test(all_are_filled_one_by_one),
        cmocka_unit_test(all_have_what_a_map_says),
        cmocka_unit_test(another_number_goes_on),
    };
    return cmocka_run_group_tests(tests, open_teacher, close_teacher);
}
