/* Placement: what it costs that a teacher is elsewhere, on simulated devices whose links and
 * processors have the speeds that the case needs. Two figures:
 *
 * A device whose link brings a block in four times the time that it computes one trajectory's: with
 * a window of eight that is hidden, with four just so, with one the link is all that counts.
 *
 * Four devices that share the blocks: a window of micro-batches keeps all of them busy, from one
 * sweep to the next, where a single one keeps one busy at a time. They are those of one process, or
 * of four ranks, here threads, whose micro-batches cross by way of host memory.
 *
 * Real work is a small part of the time that the devices take, so that the ratios hold on a machine
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

/* A block's computing, for one trajectory. */
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
    size_t bytes;         /* of all stages, as they are brought */
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
    const char *room = getenv("TMPDIR");
    const wd_teacher_files files = {.dtype = WD_F32};
    const wd_sweep_options one = sweep_options(1);
    double flops[WD_STAGE_KINDS];
    wd_sweep_need need;
    WD_TRY(wd_path_join(t->folder, room && *room ? room : "/tmp", "wandistiller-XXXXXX", err));
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

/* What is measured. */
typedef struct demand {
    const char *devices; /* as --devices has them */
    wd_strategy strategy;
    int64_t window; /* trajectories, one a micro-batch */
    bool alone;     /* a sweep begins when the one before is over */
    int ranks;      /* that have such devices each */
} demand;

/* A teacher at work for trajectories, all of which a sweep takes a step further. */
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

static wd_status place(rig *r, const teacher *t, const demand *of, const wd_sweep_options *o,
                       wd_err *err)
{
    wd_cluster cluster = {
        .ranks = of->ranks,
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
    return wd_strategy_place(&r->placement, of->strategy, &t->size, &cluster, 0, err);
}

static wd_status open_rig(rig *r, const teacher *t, const demand *of, wd_err *err)
{
    wd_sweep_options o = sweep_options(of->window);
    o.comm = r->comm;
    r->trajectory = (wd_trajectory_options){.slots = of->window,
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
        .replay = of->window,
        .step_samples = of->window,
        .window = of->window,
        .comm = r->comm};
    wd_devices *d = &r->devices;
    WD_TRY(wd_devices_open(d, of->devices, 1, err));
    WD_TRY(place(r, t, of, &o, err));
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

/* The next sweeps, a round of the trajectories each. */
static wd_status run_rounds(rig *r, int64_t rounds, const demand *of, wd_err *err)
{
    for (const int64_t end = r->rounds + rounds; r->rounds < end;) {
        const int64_t targets = wd_trajectory_first_target(&r->trajectory, ++r->rounds);
        WD_TRY(wd_source_prepare(r->source, targets, err));
        if (of->alone) wait_for_all(r);
    }
    wait_for_all(r);
    return WD_OK;
}

/* Seconds per target, once all trajectories are under way. */
static wd_status time_rank(double *seconds, const teacher *t, const demand *of, wd_comm *comm,
                           wd_err *err)
{
    rig r = {.comm = comm};
    wd_status status = open_rig(&r, t, of, err);
    if (status == WD_OK) status = run_rounds(&r, TRAJECTORY_STEPS, of, err);
    const double begun = wd_clock_s();
    if (status == WD_OK) status = run_rounds(&r, ROUNDS, of, err);
    *seconds = (wd_clock_s() - begun) / (double)(ROUNDS * of->window);
    close_rig(&r);
    return status;
}

/* A rank's part of it, in a thread of its own. */
typedef struct part {
    pthread_t thread;
    const teacher *teacher;
    const demand *of;
    wd_comm *comm;
    double seconds;
    wd_status status;
    wd_err err;
} part;

static void *run_part(void *context)
{
    part *p = context;
    p->status = time_rank(&p->seconds, p->teacher, p->of, p->comm, &p->err);
    return NULL;
}

static wd_status time_target(double *seconds, const teacher *t, const demand *of, wd_err *err)
{
    wd_comm *comm[DEVICES];
    part all[DEVICES];
    int begun = 0, failed = 0;
    if (of->ranks < 2) return time_rank(seconds, t, of, NULL, err);
    WD_TRY(wd_comm_open_threads(comm, of->ranks, err));
    for (; begun < of->ranks && !failed; begun += !failed) {
        all[begun] = (part){.teacher = t, .of = of, .comm = comm[begun]};
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
    for (int r = 0; r < of->ranks; r++) wd_comm_close(comm[r]);
    *seconds = all[0].seconds;
    return status;
}

/* ---- the figures ---- */

/* "placement: disk, window 8           1.012 times the time of gpu      (1.05 at most)" */
static void report(wd_bench_context *bench, const char *what, double ratio, const char *of,
                   const char *wanted)
{
    char line[160];
    snprintf(line, sizeof line, "placement: %-24s %6.3f times %-28s (%s)", what, ratio, of, wanted);
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
        demand of = {.devices = list, .strategy = WD_STRATEGY_gpu, .window = cases[i].window};
        if (of.window > 1) WD_TRY(time_target(&base, t, &of, err));
        for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
            of.strategy = streams[s];
            WD_TRY(time_target(&seconds, t, &of, err));
            snprintf(what, sizeof what, "%s, window %d", wd_strategy_name(of.strategy),
                     (int)of.window);
            report(bench, what, seconds / base,
                   of.window > 1 ? "the time of gpu" : "the time of transfers", cases[i].wanted);
        }
    }
    return WD_OK;
}

/* `devices` of each of so many ranks. */
static wd_status pipeline(wd_bench_context *bench, const teacher *t, int devices, int ranks,
                          const char *what, wd_err *err)
{
    char list[96];
    double one, all;
    snprintf(list, sizeof list, "sim:%dx1GiB@compute=%.9gGFLOP/s", devices,
             t->size.flops[1] / BLOCK_SECONDS * 1e-9);
    demand of = {list, WD_STRATEGY_balanced, 1, true, ranks};
    WD_TRY(time_target(&one, t, &of, err));
    of.window = BATCHES;
    of.alone = false;
    WD_TRY(time_target(&all, t, &of, err));
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
