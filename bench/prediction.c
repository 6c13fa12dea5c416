/* Predicted and measured seconds per step: wan-tiny as teacher on simulated devices with slow links
 * and processors, under every strategy, with different limiting resources.
 *
 * Simulated devices are so slow that the real computing does not count: the figures show which
 * device waits for which. A figure is the time between steps after all trajectories have begun. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "core/memory.h"
#include "dev/rates.h"
#include "io/file/disk.h"
#include "teacher/plan/planner.h"
#include "teacher/plan/stage_layout.h"
#include "train/loop/memory_plan.h"
#include "train/network/init.h"

enum {
    LATENT = 8,
    TEXT = 8,
    SLOTS = 8,
    TRAJECTORY = 2,
    WARM_UP = TRAJECTORY + 1,
    STEPS = 5,
    AFTER = 2
};

static const char *const TEACHER = "models/wan-tiny";

typedef struct prediction_case {
    wd_strategy strategy;
    const char *devices;
    const char *what; /* of custom: for each stage of both experts its device, or H or D: it is
                         streamed to the first device from host memory or disk */
    int64_t window, reuse;
    int64_t batch;         /* 0: SLOTS, a round of targets */
    int64_t student_steps; /* 0: the student learns velocities, else chords */
} prediction_case;

static const prediction_case cases[] = {
    {WD_STRATEGY_gpu, "sim:256MiB@link=100MB/s,compute=2GFLOP/s", "teacher", SLOTS, 1, 0, 0},
    {WD_STRATEGY_gpu, "sim:256MiB@link=100MB/s,compute=2GFLOP/s", "chords", SLOTS, TRAJECTORY, 0,
     1}, /* of as many velocities as the targets above */
    {WD_STRATEGY_gpu, "sim:256MiB@link=100MB/s,compute=2GFLOP/s", "student", SLOTS, 4, 0, 0},
    {WD_STRATEGY_gpu0, "sim:2x256MiB@link=2MB/s,compute=2GFLOP/s", "apart", SLOTS, 1, 0, 0},
    {WD_STRATEGY_balanced, "sim:4x256MiB@link=100MB/s,compute=1GFLOP/s", "compute", SLOTS, 1, 0, 0},
    {WD_STRATEGY_balanced, "sim:2x256MiB@link=500kB/s,compute=2GFLOP/s", "hops", SLOTS, 1, 0, 0},
    {WD_STRATEGY_balanced, "sim:4x256MiB@link=100MB/s,compute=1GFLOP/s", "window 2", 2, 1, 0, 0},
    {WD_STRATEGY_balanced, "sim:2x256MiB@link=100MB/s,compute=1GFLOP/s", "4 steps", SLOTS, 1, 2, 0},
    {WD_STRATEGY_balanced, "sim:2x256MiB@link=100MB/s,compute=1GFLOP/s", "4 small steps", 4, 1, 1,
     0},
    {WD_STRATEGY_balanced, "sim:3x256MiB@link=100MB/s,compute=1GFLOP/s", "8 steps", SLOTS, 1, 1, 0},
    {WD_STRATEGY_sequential, "sim:32MiB,12MiB,32MiB@link=5MB/s,compute=1GFLOP/s", "fill", SLOTS, 1,
     0, 0},
    {WD_STRATEGY_custom, "sim:3x256MiB@link=5MB/s,compute=1GFLOP/s", "00000122 01111222", SLOTS, 1,
     0, 0},
    {WD_STRATEGY_custom, "sim:2x256MiB@link=5MB/s,compute=1GFLOP/s", "00001111 11111111", SLOTS, 1,
     0, 0},
    {WD_STRATEGY_custom, "sim:2x256MiB@link=5MB/s,compute=1GFLOP/s", "00001111 11111111", 4, 1, 0,
     0},
    {WD_STRATEGY_custom, "sim:3x256MiB@link=5MB/s,compute=1GFLOP/s", "11111111 22222222", SLOTS, 1,
     0, 0},
    {WD_STRATEGY_custom, "sim:2x256MiB@link=5MB/s,compute=1GFLOP/s", "1HHH1111 0000DDD0", SLOTS, 1,
     0, 0},
    {WD_STRATEGY_offload, "sim:256MiB@link=50MB/s,compute=2GFLOP/s", "compute", SLOTS, 1, 0, 0},
    {WD_STRATEGY_offload, "sim:256MiB@link=10MB/s,compute=2GFLOP/s", "link", SLOTS, 1, 0, 0},
    {WD_STRATEGY_offload, "sim:256MiB@link=25MB/s,compute=1GFLOP/s", "window 1", 1, 1, 0, 0},
    {WD_STRATEGY_offload, "sim:256MiB@link=25MB/s,compute=1GFLOP/s", "window 2", 2, 1, 0, 0},
    {WD_STRATEGY_offload, "sim:256MiB@link=25MB/s,compute=1GFLOP/s", "window 4", 4, 1, 0, 0},
    {WD_STRATEGY_offload, "sim:256MiB@link=25MB/s,compute=2GFLOP/s", "4 steps", SLOTS, 1, 2, 0},
    {WD_STRATEGY_disk, "sim:256MiB@link=50MB/s,compute=2GFLOP/s", "compute", SLOTS, 1, 0, 0},
    {WD_STRATEGY_disk, "sim:256MiB@link=5MB/s,compute=2GFLOP/s", "link", SLOTS, 1, 0, 0},
    {WD_STRATEGY_disk, "sim:256MiB@link=25MB/s,compute=1GFLOP/s", "window 1", 1, 1, 0, 0},
    {WD_STRATEGY_disk, "sim:256MiB@link=25MB/s,compute=1GFLOP/s", "window 2", 2, 1, 0, 0},
    {WD_STRATEGY_disk, "sim:256MiB@link=25MB/s,compute=1GFLOP/s", "window 4", 4, 1, 0, 0},
    {WD_STRATEGY_cpu, "sim:256MiB@link=500kB/s,compute=500MFLOP/s", "apart", SLOTS, 1, 0, 0},
};

static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    const wd_pipeline *teacher = context;
    (void)prompt;
    memset(out, 0, (size_t)(TEXT * teacher->dit.text_dim) * wd_dtype_bytes(dtype));
}

static wd_stepper_options options_of(const wd_pipeline *teacher, const prediction_case *c)
{
    wd_stepper_options o = {
        .recipe = c->student_steps ? &wd_recipe_chord : &wd_recipe_velocity,
        .teacher = teacher,
        .student = teacher->dit,
        .teacher_dtype = WD_F32,
        .student_dtype = WD_F32,
        .latent_height = LATENT,
        .latent_width = LATENT,
        .text_tokens = TEXT,
        .text_repeat = 1,
        .trajectory = {.seed = 1,
                       .slots = SLOTS,
                       .steps = TRAJECTORY,
                       .student_steps = c->student_steps,
                       .prompts = 4,
                       .flow_shift = 3,
                       .num_train_timesteps = 1000,
                       .integer_timesteps = true},
        .reuse = c->reuse,
        .replay = 128 * SLOTS,
        .window = c->window,
        .guidance_scale = {4, 3},
        .batch = c->batch ? c->batch : SLOTS,
        .accumulation = 1,
        .optimizer = wd_optimizer_defaults(),
        .text = no_text,
        .text_context = (void *)(uintptr_t)teacher,
    };
    o.student.layers = 2;
    return o;
}

/* ---- predicted ---- */

/* Reads sizes, and measures the rate of the disk with the files. */
static wd_status read_files(wd_planner_input *in, const wd_pipeline *teacher, wd_err *err)
{
    wd_safetensors *weights[2] = {NULL, NULL};
    wd_teacher_files files[2] = {{.weights = NULL}, {.weights = NULL}};
    wd_status status = WD_OK;
    for (int e = 0; e < 2 && status == WD_OK; e++) {
        const wd_component c = e ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
        status = wd_pipeline_open_weights(&weights[e], teacher, c, err);
        files[e].weights = weights[e];
    }
    if (status == WD_OK)
        status = wd_teacher_size_of(&in->size, &teacher->dit, 2, files, WD_F32, err);
    if (status == WD_OK)
        status = wd_rate_of_disk(&in->cluster.disk_bytes_per_s,
                                 wd_safetensors_at(weights[0], 0)->file, err);
    for (int e = 0; e < 2; e++) wd_safetensors_close(weights[e]);
    return status;
}

/* Describes the devices with their given speeds, and the processor with its measured one. */
static wd_status describe(wd_planner_input *in, const wd_stepper_options *o, const wd_devices *d,
                          const wd_memory_plan *beside, wd_err *err)
{
    const wd_dit_config *c = &o->teacher->dit;
    double processor = 0;
    WD_TRY(wd_rate_of_products(&processor, d->host, WD_F32, LATENT * LATENT / 2, wd_dit_width(c),
                               c->ffn_dim, err));
    in->cluster.devices = d->count;
    in->cluster.host_bytes = SIZE_MAX;
    for (int i = 0; i < d->count; i++) {
        const bool is_processor = i == d->processor;
        in->devices.target[i] = d->device[i];
        in->cluster.device[i] = (wd_cluster_device){
            .bytes = wd_device_bytes_max(d->device[i]),
            .taken = is_processor ? 0 : wd_memory_plan_training_peak(beside, i),
            .link_bytes_per_s = is_processor ? INFINITY : d->list.device[i].link_bytes_per_s,
            .reads_host = is_processor};
        for (int k = 0; k < WD_PRECISIONS; k++)
            in->cluster.device[i].flops_per_s[k] =
                is_processor ? processor : d->list.device[i].flops_per_s[k];
    }
    return WD_OK;
}

static void read_map(wd_placement *out, const prediction_case *c, const wd_planner_input *in)
{
    *out = wd_placement_begin(&in->size, &in->cluster);
    for (int e = 0; e < out->experts; e++)
        for (int s = 0; s < out->stages; s++) {
            const char at = c->what[e * (out->stages + 1) + s];
            out->place[e][s] = at == 'H'   ? (wd_stage_placement){WD_HOME_HOST, 0}
                               : at == 'D' ? (wd_stage_placement){WD_HOME_DISK, 0}
                                           : (wd_stage_placement){WD_HOME_DEVICE, at - '0'};
        }
}

static wd_status predict(wd_strategy_plan *out, const wd_stepper_options *o, const wd_devices *d,
                         const prediction_case *c, wd_err *err)
{
    wd_placement custom;
    wd_memory_plan *beside = NULL;
    uint8_t *expert = NULL;
    wd_planner *planner = NULL;
    wd_planner_input in = {.devices.need = wd_sweep_plan_need};
    wd_stepper_options student = *o;
    wd_status status;
    student.micro_batch = 1;
    WD_TRY_OUT(wd_alloc((void **)&beside, 1, sizeof *beside, "a plan", err));
    WD_TRY_OUT(wd_memory_plan_stepper(beside, &student, &(wd_samples_options){0}, d, NULL, err));
    WD_TRY_OUT(describe(&in, o, d, beside, err));
    WD_TRY_OUT(read_files(&in, o->teacher, err));
    in.sweep = wd_stepper_sweep_options(o);
    in.rounds.trajectories = o->trajectory.slots;
    WD_TRY_OUT(wd_trajectory_experts(&expert, &in.rounds.count, &o->trajectory,
                                     in.sweep.boundary_timestep, err));
    in.rounds.expert = expert;
    if (c->strategy == WD_STRATEGY_custom) {
        read_map(&custom, c, &in);
        in.request.custom = &custom;
    }
    in.request.teacher_rank = c->strategy == WD_STRATEGY_gpu0 ? d->count - 2 : 0;
    in.student =
        (wd_planner_student){.step_targets = wd_stepper_step_targets(o),
                             .steps_ahead = wd_stepper_steps_ahead(o, beside->student_weights),
                             .step_flops = (double)o->batch * beside->student_flops_per_sample,
                             .step_bytes = wd_stepper_step_bytes(o),
                             .back_bytes = wd_stepper_back_bytes(o)};
    WD_TRY_OUT(wd_planner_open(&planner, &in, err));
    WD_TRY_OUT(wd_planner_plan(out, planner, c->strategy, err));
out:
    wd_planner_close(planner);
    wd_free(expert);
    wd_free(beside);
    return status;
}

/* ---- measured ---- */

static wd_status time_steps(double *step_seconds, wd_stepper *m, const wd_stepper_options *o,
                            wd_err *err)
{
    const double targets = wd_stepper_step_targets(o);
    const int64_t round = (int64_t)(SLOTS / targets); /* steps that need a round of targets */
    const int64_t first = WARM_UP * round, last = first + STEPS * round, end = last + AFTER * round;
    double begun = 0;
    WD_TRY(wd_stepper_begin(m, err));
    for (int64_t step = 0; step <= end; step++) { /* further steps run at both ends */
        WD_TRY(wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-4}, err));
        while (wd_stepper_results_pending(m) > (step < end)) {
            const int64_t done = wd_stepper_take_result(m).step;
            if (done == first) begun = wd_clock_s();
            if (done == last) *step_seconds = (wd_clock_s() - begun) / (double)(last - first);
        }
    }
    return WD_OK;
}

static wd_status measure(double *step_seconds, const wd_stepper_options *o, wd_devices *d,
                         const wd_placement *p, wd_err *err)
{
    wd_status status;
    wd_stepper *stepper = NULL;
    wd_residency *residency = NULL;
    WD_TRY_OUT(wd_residency_open_placed(&residency, o->teacher, p, o->teacher_dtype, d->teacher,
                                        d->host, NULL, err));
    const wd_stepper_teacher where = {residency, p, d->teacher, d->home};
    WD_TRY_OUT(wd_stepper_open(&stepper, o, &where, d->student, err));
    WD_TRY_OUT(time_steps(step_seconds, stepper, o, err));
out:
    wd_stepper_close(stepper);
    wd_residency_close(residency);
    return status;
}

/* ---- the case ---- */

static wd_status run_case(const prediction_case *c, const wd_pipeline *teacher,
                          wd_bench_context *bench, wd_err *err)
{
    wd_status status;
    wd_devices devices = {0};
    wd_strategy_plan *plan = NULL;
    double measured = 0;
    char line[160];
    wd_stepper_options o = options_of(teacher, c);
    WD_TRY_OUT(wd_alloc((void **)&plan, 1, sizeof *plan, "a plan", err));
    WD_TRY_OUT(wd_devices_open(&devices, c->devices, 1, err));
    WD_TRY_OUT(predict(plan, &o, &devices, c, err));
    o.micro_batch = plan->micro_batch;
    WD_TRY_OUT(measure(&measured, &o, &devices, &plan->placement, err));
    snprintf(line, sizeof line, "step of %-10s %-17s predicted %6.3f s measured %6.3f s: %5.2f",
             wd_strategy_name(c->strategy), c->what, plan->step_seconds, measured,
             measured / plan->step_seconds);
    bench->print(bench->context, line);
out:
    wd_devices_close(&devices);
    wd_free(plan);
    return status;
}

wd_status wd_bench_prediction(wd_bench_context *bench, wd_err *err)
{
    wd_pipeline teacher;
    WD_TRY(wd_pipeline_open(&teacher, TEACHER, err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        WD_TRY(run_case(&cases[i], &teacher, bench, err));
    return WD_OK;
}
