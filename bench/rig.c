/* Sweeps over a teacher of random weights: see bench/rig.h. */
#include "bench/rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/random_transformer.h"
#include "core/random.h"
#include "io/file/file.h"
#include "model/convert/convert.h"
#include "teacher/plan/stage_layout.h"
#include "teacher/run/residency.h"
#include "train/loop/devices.h"
#include "train/targets/source.h"

enum { TEXT_TOKENS = 8, TRAJECTORY_STEPS = 4, ROUNDS = 5, RANKS_MAX = 4 };

/* ---- the teacher ---- */

static void text_of(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    const wd_random key = {.stream = WD_RANDOM_TEST, .index = (uint64_t)(prompt + 1)};
    float text[TEXT_TOKENS * WD_BENCH_TEXT_DIM];
    const int64_t count = sizeof text / sizeof *text;
    uint16_t *narrow = out;
    (void)context;
    wd_random_normal(text, count, key, 0);
    if (dtype == WD_F32) memcpy(out, text, sizeof text);
    for (int64_t i = 0; dtype == WD_BF16 && i < count; i++) narrow[i] = wd_f32_to_bf16(text[i]);
}

static wd_sweep_options sweep_options(const wd_bench_teacher *t, int64_t window)
{
    return (wd_sweep_options){.config = t->config,
                              .dtype = wd_teacher_compute_dtype(t->dtype),
                              .frames = 1,
                              .height = t->latent,
                              .width = t->latent,
                              .text_tokens = TEXT_TOKENS,
                              .text_repeat = 1,
                              .window_max = window,
                              .micro_batch = 1,
                              .guidance_scale = {5, 5},
                              .text = text_of};
}

static wd_status make_folders(wd_bench_teacher *t, wd_err *err)
{
    const char *temporary = getenv("TMPDIR");
    WD_TRY(wd_path_join(t->folder, temporary && *temporary ? temporary : "/tmp",
                        "wandistiller-XXXXXX", err));
    if (mkdtemp(t->folder)) return wd_path_join(t->cache, t->folder, "cache", err);
    *t->folder = '\0';
    return wd_fail(err, WD_IO, "no folder for a teacher can be made: set TMPDIR");
}

/* Adds up the teacher's stages as they are kept. */
static wd_status size_teacher(wd_bench_teacher *t, wd_bench_context *bench, wd_err *err)
{
    const wd_sweep_options one = sweep_options(t, 1);
    wd_sweep_need need;
    wd_teacher_files files = {.weights = NULL};
    wd_safetensors *set;
    WD_TRY(wd_sweep_need_of(&need, &one, bench->device, wd_device_open_dry, err));
    WD_TRY(wd_pipeline_open_weights(&set, &t->pipeline, WD_COMPONENT_TRANSFORMER, err));
    files.weights = set;
    const wd_status status = wd_teacher_size_of(&t->size, &t->config, 1, &files, t->dtype, err);
    wd_safetensors_close(set);
    for (int s = 0; status == WD_OK && s < t->size.stages; s++) {
        t->size.flops[s] = need.flops[wd_stage_kind_of(s, t->size.stages)];
        t->bytes += t->size.stage[0][s].device;
    }
    return status;
}

/* Opens the teacher in the form that is asked for. */
static wd_status quantise(wd_bench_teacher *t, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_pipeline_parts parts = {.preset = "wan2.1-1.3b"};
    if (wd_dtype_block(t->quantised) == 1) {
        t->pipeline.overlay =
            (wd_overlay){.folder = t->cache, .dtype = t->dtype, .quantised = t->quantised};
        return wd_pipeline_make_overlay(&t->pipeline, err);
    }
    WD_TRY(wd_path_join(path, t->folder, "wan.gguf", err));
    WD_TRY(wd_convert_to_gguf(path, &t->pipeline, WD_COMPONENT_TRANSFORMER, &t->quantised, err));
    parts.part[WD_COMPONENT_TRANSFORMER] = path;
    return wd_pipeline_open_parts(&t->pipeline, t->folder, &parts, err);
}

wd_status wd_bench_teacher_open(wd_bench_teacher *t, wd_bench_context *bench, wd_err *err)
{
    char folder[WD_PATH_MAX];
    *t->folder = '\0';
    t->bytes = 0;
    WD_TRY(make_folders(t, err));
    WD_TRY(wd_path_join(folder, t->folder, "transformer", err));
    WD_TRY(wd_bench_write_transformer(folder, &t->config, t->dtype, err));
    WD_TRY(wd_pipeline_open(&t->pipeline, t->folder, err));
    WD_TRY(quantise(t, err));
    return size_teacher(t, bench, err);
}

void wd_bench_teacher_close(const wd_bench_teacher *t)
{
    if (*t->folder) wd_folder_remove(t->folder, NULL);
}

/* ---- sweeps ---- */

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

static wd_status place(rig *r, const wd_bench_teacher *t, const wd_bench_workload *work,
                       const wd_sweep_options *o, wd_err *err)
{
    wd_cluster cluster = {
        .ranks = work->ranks,
        .devices = r->devices.count,
        .host_bytes = SIZE_MAX,
        .batches = wd_sweep_batches(o),
    };
    for (int d = 0; d < cluster.devices; d++) {
        wd_cluster_device *to = &cluster.device[d];
        *to = (wd_cluster_device){.bytes = wd_device_bytes_max(r->devices.device[d]),
                                  .flops_per_s = {1, 1},
                                  .link_bytes_per_s = 1,
                                  .reads_host = d == r->devices.processor};
        WD_TRY(wd_sweep_need_of(&to->need, o, r->devices.device[d], wd_device_open_dry, err));
    }
    return wd_strategy_place(&r->placement, work->strategy, &t->size, &cluster, 0, err);
}

static wd_status open_rig(rig *r, const wd_bench_teacher *t, const wd_bench_workload *work,
                          wd_err *err)
{
    wd_sweep_options o = sweep_options(t, work->window);
    o.comm = r->comm;
    r->trajectory = (wd_trajectory_options){.slots = work->window,
                                            .steps = TRAJECTORY_STEPS,
                                            .prompts = 64,
                                            .flow_shift = 3,
                                            .num_train_timesteps = 1000,
                                            .integer_timesteps = true};
    const wd_source_options source = {
        .trajectory = r->trajectory,
        .batches = {.samples_max = 1,
                    .state_count = t->config.in_channels * t->latent * t->latent,
                    .text_tokens = TEXT_TOKENS,
                    .text_dim = WD_BENCH_TEXT_DIM,
                    .text_dtype = WD_F32,
                    .text = text_of},
        .reuse = 1,
        .replay = work->window,
        .step_samples = work->window,
        .window = work->window,
        .comm = r->comm};
    wd_devices *d = &r->devices;
    WD_TRY(wd_devices_open(d, work->devices, work->threads > 1 ? work->threads : 1, err));
    WD_TRY(place(r, t, work, &o, err));
    o.latents_device = wd_queue_device(d->home);
    WD_TRY(wd_residency_open_placed(&r->residency, &t->pipeline, &r->placement, t->dtype,
                                    d->teacher, d->host, r->comm, err));
    WD_TRY(wd_sweep_open(&r->sweep, &o, r->residency, d->teacher, err));
    return wd_source_trajectory.open(&r->source, &source, r->sweep, d->home, d->student, err);
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
static wd_status run_rounds(rig *r, int64_t rounds, const wd_bench_workload *work, wd_err *err)
{
    for (const int64_t end = r->rounds + rounds; r->rounds < end;) {
        const int64_t targets = wd_trajectory_first_target(&r->trajectory, ++r->rounds);
        WD_TRY(wd_source_prepare(r->source, targets, err));
        if (work->alone) wait_for_all(r);
    }
    wait_for_all(r);
    return WD_OK;
}

static double now_s(const wd_bench_workload *work)
{
    struct timespec t;
    if (!work->processor) return wd_clock_s();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Measures seconds per target after all trajectories have begun. */
static wd_status time_rank(double *seconds, const wd_bench_teacher *t,
                           const wd_bench_workload *work, wd_comm *comm, wd_err *err)
{
    rig r = {.comm = comm};
    wd_status status = open_rig(&r, t, work, err);
    if (status == WD_OK) status = run_rounds(&r, TRAJECTORY_STEPS, work, err);
    const int64_t rounds = work->rounds ? work->rounds : ROUNDS;
    const double begun = now_s(work);
    if (status == WD_OK) status = run_rounds(&r, rounds, work, err);
    *seconds = (now_s(work) - begun) / (double)(rounds * work->window);
    close_rig(&r);
    return status;
}

/* A rank, which runs in a thread of its own. */
typedef struct part {
    pthread_t thread;
    const wd_bench_teacher *teacher;
    const wd_bench_workload *work;
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

wd_status wd_bench_time_target(double *seconds, const wd_bench_teacher *t,
                               const wd_bench_workload *work, wd_err *err)
{
    wd_comm *comm[RANKS_MAX];
    part all[RANKS_MAX];
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
