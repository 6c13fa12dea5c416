/* Placement: how much time it costs to keep the teacher's weights elsewhere, on simulated devices
 * whose links and processors have the speeds that the case needs. There are two figures:
 *
 * A device whose link copies a block in four times the time in which the device computes it for one
 * trajectory: with a window of eight copies are hidden behind computing, with four only just, and
 * with one the link alone determines the time.
 *
 * Four devices that share the blocks: a window of micro-batches keeps all of them busy, also
 * between sweeps, while a single micro-batch keeps only one busy at a time. The devices belong to
 * one process, or to four ranks, which are threads here and send micro-batches through host memory.
 *
 * Real computing is a small part of the simulated time, so that the ratios are right on a machine
 * with few cores, too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/random_transformer.h"
#include "core/random.h"
#include "distill/devices.h"
#include "distill/source_trajectory.h"
#include "io/file.h"
#include "teacher/residency_kinds.h"
#include "teacher/strategy.h"
#include "teacher/teacher_size.h"

enum {
    LATENT = 4,
    TEXT_TOKENS = 8,
    TEXT_DIM = 64,
    TRAJECTORY_STEPS = 4,
    ROUNDS = 5,
    DEVICES = 4,
    BATCHES = 16
};

/* Seconds in which a device computes a block for one trajectory. */
static const double BLOCK_SECONDS = 10e-3, TRANSFERS_PER_COMPUTE = 4;

static const wd_dit_config config = {.in_channels = 16,
                                     .out_channels = 16,
                                     .heads = 4,
                                     .head_dim = 32,
                                     .ffn_dim = 2048,
                                     .layers = 12,
                                     .freq_dim = 64,
                                     .text_dim = TEXT_DIM,
                                     .patch = {1, 2, 2},
                                     .rope_max_seq_len = 1024,
                                     .cross_attn_norm = true,
                                     .eps = 1e-6};

/* ---- the teacher ---- */

typedef struct teacher {
    char folder[WD_PATH_MAX];
    wd_pipeline pipeline;
    wd_teacher_size size; /* with FLOPs */
    size_t bytes;         /* of all stages on a device */
} teacher;

static void text_of(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    const wd_random key = {.stream = WD_RANDOM_TEST, .index = (uint64_t)(prompt + 1)};
    (void)context, (void)dtype;
    wd_random_normal(out, (int64_t)TEXT_TOKENS * TEXT_DIM, key, 0);
}

static wd_sweep_options sweep_options(int64_t window)
{
    return (wd_sweep_options){.config = config,
                              .dtype = WD_F32,
                              .frames = 1,
                              .height = LATENT,
                              .width = LATENT,
                              .text_tokens = TEXT_TOKENS,
                              .text_repeat = 1,
                              .window_max = window,
                              .micro_batch = 1,
                              .guidance_scale = {5, 5},
                              .text = text_of};
}

static wd_status open_teacher(teacher *t, wd_bench_context *bench, wd_err *err)
{
    char folder[WD_PATH_MAX];
    const char *temporary = getenv("TMPDIR");
    const wd_teacher_files files = {.dtype = WD_F32};
    const wd_sweep_options one = sweep_options(1);
    double flops[WD_STAGE_KINDS];
    wd_sweep_need need;
    WD_TRY(wd_path_join(t->folder, temporary && *temporary ? temporary : "/tmp",
                        "wandistiller-XXXXXX", err));
    if (!mkdtemp(t->folder)) {
        *t->folder = '\0';
        return wd_fail(err, WD_IO, "no folder for a teacher can be made: set TMPDIR");
    }
    WD_TRY(wd_path_join(folder, t->folder, "transformer", err));
    WD_TRY(wd_bench_write_transformer(folder, &config, WD_F32, err));
    WD_TRY(wd_pipeline_open(&t->pipeline, t->folder, err));
    WD_TRY(wd_teacher_size_of(&t->size, &config, 1, &files, WD_F32, err));
    WD_TRY(wd_sweep_need_of(&need, flops, &one, bench->device, err));
    for (int s = 0; s < t->size.stages; s++) {
        t->size.flops[s] = flops[wd_stage_kind_of(s, t->size.stages)];
        t->bytes += t->size.stage[0][s].device;
    }
    return WD_OK;
}

static void close_teacher(const teacher *t)
{
    if (*t->folder) wd_folder_remove(t->folder, NULL);
}

/* ---- sweeps ---- */

/* A set-up that is measured. */
typedef struct workload {
    const char *devices; /* a value of --devices */
    wd_strategy strategy;
    int64_t window; /* trajectories; a micro-batch has one */
    bool alone;     /* a sweep begins when the previous one has ended */
    int ranks;      /* number of ranks with these devices each */
} workload;

/* A teacher with its trajectories, all of which a sweep advances by a step. */
typedef struct rig {
    wd_comm *comm; /* borrowed; NULL: there is one rank */
    wd_devices devices;
    wd_placement placement;
    wd_residency *residency;
    wd_sweep *sweep;
    wd_source *source;
    wd_trajectory_options trajectory;
    int64_t rounds;
} rig;

static wd_status place(rig *r, const teacher *t, const workload *work, const wd_sweep_options *o,
                       wd_err *err)
{
    wd_cluster cluster = {
        .ranks = work->ranks,
        .devices = r->devices.count,
        .host_bytes = SIZE_MAX,
        .batches = wd_sweep_batches(o),
    };
    for (int d = 0; d < cluster.devices; d++) {
        wd_cluster_device *to = &cluster.device[d];
        double flops[WD_STAGE_KINDS];
        *to = (wd_cluster_device){.bytes = wd_device_bytes_max(r->devices.device[d]),
                                  .flops_per_s = 1,
                                  .link_bytes_per_s = 1,
                                  .reads_host = d == r->devices.processor};
        WD_TRY(wd_sweep_need_of(&to->need, flops, o, r->devices.device[d], err));
    }
    return wd_strategy_place(&r->placement, work->strategy, &t->size, &cluster, 0, err);
}

static wd_status open_rig(rig *r, const teacher *t, const workload *work, wd_err *err)
{
    wd_sweep_options o = sweep_options(work->window);
    o.comm = r->comm;
    r->trajectory = (wd_trajectory_options){.slots = work->window,
                                            .steps = TRAJECTORY_STEPS,
                                            .prompts = 64,
                                            .flow_shift = 3,
                                            .num_train_timesteps = 1000,
                                            .integer_timesteps = true};
    const wd_trajectory_source_options source = {
        .trajectory = r->trajectory,
        .batches = {.samples_max = 1,
                    .state_count = config.in_channels * LATENT * LATENT,
                    .text_tokens = TEXT_TOKENS,
                    .text_dim = TEXT_DIM,
                    .text_dtype = WD_F32,
                    .text = text_of},
        .reuse = 1,
        .replay = work->window,
        .step_samples = work->window,
        .window = work->window,
        .comm = r->comm};
    wd_devices *d = &r->devices;
    WD_TRY(wd_devices_open(d, work->devices, 1, err));
    WD_TRY(place(r, t, work, &o, err));
    WD_TRY(wd_residency_open_placed(&r->residency, &t->pipeline, &r->placement, WD_F32, d->teacher,
                                    d->host, r->comm, err));
    WD_TRY(wd_sweep_open(&r->sweep, &o, r->residency, &r->placement, d->teacher, err));
    return wd_source_open_trajectory(&r->source, &source, r->sweep, d->home, d->student, err);
}

static void close_rig(rig *r)
{
    wd_source_close(r->source);
    wd_sweep_close(r->sweep);
    wd_residency_close(r->residency);
    wd_devices_close(&r->devices);
}

static void wait_for_all(const rig *r)
{
    for (int d = 0; d < r->devices.count; d++) wd_queue_wait(r->devices.teacher[d]);
    if (r->comm) wd_comm_barrier(r->comm);
}

/* Runs `rounds` sweeps; each advances all trajectories. */
static wd_status run_rounds(rig *r, int64_t rounds, const workload *work, wd_err *err)
{
    for (const int64_t end = r->rounds + rounds; r->rounds < end;) {
        const int64_t targets = wd_trajectory_first_target(&r->trajectory, ++r->rounds);
        WD_TRY(wd_source_prepare(r->source, targets, err));
        if (work->alone) wait_for_all(r);
    }
    wait_for_all(r);
    return WD_OK;
}

/* Measures seconds per target after all trajectories have begun. */
static wd_status time_rank(double *seconds, const teacher *t, const workload *work, wd_comm *comm,
                           wd_err *err)
{
    rig r = {.comm = comm};
    wd_status status = open_rig(&r, t, work, err);
    if (status == WD_OK) status = run_rounds(&r, TRAJECTORY_STEPS, work, err);
    const double begun = wd_clock_s();
    if (status == WD_OK) status = run_rounds(&r, ROUNDS, work, err);
    *seconds = (wd_clock_s() - begun) / (double)(ROUNDS * work->window);
    close_rig(&r);
    return status;
}

/* A rank, which runs in a thread of its own. */
typedef struct part {
    pthread_t thread;
    const teacher *teacher;
    const workload *work;
    wd_comm *comm;
    double seconds;
    wd_status status;
    wd_err err;
} part;

static void *run_part(void *context)
{
    part *p = context;
    p->status = time_rank(&p->seconds, p->teacher, p->work, p->comm, &p->err);
    return NULL;
}

static wd_status time_target(double *seconds, const teacher *t, const workload *work, wd_err *err)
{
    wd_comm *comm[DEVICES];
    part all[DEVICES];
    int begun = 0, failed = 0;
    if (work->ranks < 2) return time_rank(seconds, t, work, NULL, err);
    WD_TRY(wd_comm_open_threads(comm, work->ranks, err));
    for (; begun < work->ranks && !failed; begun += !failed) {
        all[begun] = (part){.teacher = t, .work = work, .comm = comm[begun]};
        failed = pthread_create(&all[begun].thread, NULL, run_part, &all[begun]);
    }
    wd_status status = WD_OK;
    if (failed)
        status = wd_fail(err, WD_OUT_OF_MEMORY, "no thread for a rank: %s", strerror(failed));
    for (int r = 0; r < begun; r++) {
        pthread_join(all[r].thread, NULL);
        if (status != WD_OK || all[r].status == WD_OK) continue;
        status = all[r].status;
        *err = all[r].err;
    }
    for (int r = 0; r < work->ranks; r++) wd_comm_close(comm[r]);
    *seconds = all[0].seconds;
    return status;
}

/* ---- the figures ---- */

/* "placement: disk, window 8           1.012 times the time of gpu      (1.05 at most)" */
static void report(wd_bench_context *bench, const char *what, double ratio, const char *base,
                   const char *wanted)
{
    char line[160];
    snprintf(line, sizeof line, "placement: %-24s %6.3f times %-28s (%s)", what, ratio, base,
             wanted);
    bench->print(bench->context, line);
}

static wd_status stream(wd_bench_context *bench, const teacher *t, wd_err *err)
{
    static const struct {
        int64_t window;
        const char *wanted;
    } cases[] = {{8, "1.05 at most"}, {4, "1.10 at most"}, {1, "1.05 at most"}};
    static const wd_strategy streams[] = {WD_STRATEGY_offload, WD_STRATEGY_disk};
    const double link =
        (double)t->size.stage[0][1].device / (TRANSFERS_PER_COMPUTE * BLOCK_SECONDS);
    char list[96], what[48];
    snprintf(list, sizeof list, "sim:1x1GiB@link=%.9gGB/s,compute=%.9gGFLOP/s", link * 1e-9,
             t->size.flops[1] / BLOCK_SECONDS * 1e-9);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double base = (double)t->bytes / link, seconds;
        workload work = {.devices = list, .strategy = WD_STRATEGY_gpu, .window = cases[i].window};
        if (work.window > 1) WD_TRY(time_target(&base, t, &work, err));
        for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
            work.strategy = streams[s];
            WD_TRY(time_target(&seconds, t, &work, err));
            snprintf(what, sizeof what, "%s, window %d", wd_strategy_name(work.strategy),
                     (int)work.window);
            report(bench, what, seconds / base,
                   work.window > 1 ? "the time of gpu" : "the time of transfers", cases[i].wanted);
        }
    }
    return WD_OK;
}

/* Measures the pipeline over `ranks` ranks with `devices` devices each. */
static wd_status pipeline(wd_bench_context *bench, const teacher *t, int devices, int ranks,
                          const char *what, wd_err *err)
{
    char list[96];
    double one, all;
    snprintf(list, sizeof list, "sim:%dx1GiB@compute=%.9gGFLOP/s", devices,
             t->size.flops[1] / BLOCK_SECONDS * 1e-9);
    workload work = {list, WD_STRATEGY_balanced, 1, true, ranks};
    WD_TRY(time_target(&one, t, &work, err));
    work.window = BATCHES;
    work.alone = false;
    WD_TRY(time_target(&all, t, &work, err));
    report(bench, what, one / all, "the throughput of 1 at once", "3.6 at least");
    return WD_OK;
}

wd_status wd_bench_placement(wd_bench_context *bench, wd_err *err)
{
    teacher t = {.bytes = 0};
    wd_status status = open_teacher(&t, bench, err);
    if (status == WD_OK) status = stream(bench, &t, err);
    if (status == WD_OK)
        status = pipeline(bench, &t, DEVICES, 1, "balanced over 4, 16 at once", err);
    if (status == WD_OK) status = pipeline(bench, &t, 1, DEVICES, "balanced over 4 ranks", err);
    close_teacher(&t);
    return status;
}
