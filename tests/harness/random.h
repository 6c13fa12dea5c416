/* Random runs, and where their teachers are, for tests of what holds for all of them. More of them,
 * and others, than those of every day: WD_TEST_SCENES=300 WD_TEST_SEED=101. */
#ifndef WD_TESTS_HARNESS_RANDOM_H
#define WD_TESTS_HARNESS_RANDOM_H

#include "testing.h"

#include "core/random.h"
#include "teacher/plan/stage_layout.h"
#include "teacher/plan/strategy.h"
#include "train/loop/stepper.h"

enum { ACCELERATORS = 3 }; /* then comes the processor */

static uint64_t draws;

/* The number that the environment gives, else the usual one. */
static inline int64_t asked_for(const char *name, int64_t usual)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : usual;
}

static inline int64_t between(int64_t low, int64_t high)
{
    const uint64_t seed = (uint64_t)asked_for("WD_TEST_SEED", 100);
    double u = wd_random_uniform((wd_random){.seed = seed, .stream = WD_RANDOM_TEST}, draws++);
    int64_t n = low + (int64_t)(u * (double)(high - low + 1));
    return n < high ? n : high;
}

/* Everything but its text. */
static inline void random_run(wd_stepper_options *o, const wd_pipeline *experts)
{
    static const wd_dtype dtypes[] = {WD_F32, WD_BF16, WD_F16};
    *o = (wd_stepper_options){
        .recipe = &wd_recipe_velocity,
        .teacher = experts,
        .student = experts->dit,
        .teacher_dtype = dtypes[between(0, 2)],
        .student_dtype = dtypes[between(0, 1)],
        .latent_height = 2 * between(1, 4),
        .latent_width = 2 * between(1, 4),
        .text_tokens = between(2, 16),
        .text_repeat = between(1, 9),
        .trajectory = {.seed = 9,
                       .slots = between(2, 9),
                       .steps = between(2, 4),
                       .prompts = 5,
                       .flow_shift = 3,
                       .num_train_timesteps = 1000,
                       .integer_timesteps = true},
        .reuse = between(1, 2),
        .replay = between(0, 12),
        .guidance_scale = {(double)between(1, 2), 2},
        .batch = between(1, 4),
        .accumulation = between(1, 2),
        .checkpointing = between(0, 1),
        .ema = between(0, 1),
        .optimizer = wd_optimizer_defaults(),
    };
    if (between(0, 1)) {
        o->optimizer.alpha = 5;
        o->optimizer.beta3 = 0.99;
    }
    o->student.layers = between(1, experts->dit.layers);
    if (between(0, 2) == 0) { /* chords of blocks of one step to all */
        wd_trajectory_options *t = &o->trajectory;
        o->recipe = &wd_recipe_chord;
        do t->chords = between(1, t->steps);
        while (t->steps % t->chords);
        t->student_steps = t->chords * between(1, 3);
        t->on_policy_share = t->chords > 1 ? 0.5 : 0;
        t->on_policy_end = 1;
        t->on_policy_every = 1;
        if (between(0, 1)) {
            t->slots = between(1, 2) * 2 * t->steps;
            t->diversity_gain = 0.3;
        }
    }
}

/* What never changes a student. */
static inline void random_window(wd_stepper_options *o)
{
    o->window = between(1, o->trajectory.slots);
    o->micro_batch = between(1, o->window);
}

static inline wd_placement random_placement(const wd_teacher_size *size, const wd_cluster *cluster)
{
    wd_placement p = wd_placement_begin(size, cluster);
    p.buffers = (int)between(2, 4);
    for (int e = 0; e < p.experts; e++)
        for (int s = 0; s < p.stages; s++) {
            const int d = (int)between(0, cluster->devices - 1);
            wd_home home = (wd_home)between(WD_HOME_DEVICE, WD_HOME_DISK);
            if (home == WD_HOME_HOST && cluster->device[d].reads_host) home = WD_HOME_DEVICE;
            p.place[e][s] = (wd_stage_placement){home, d};
        }
    return p;
}

static inline wd_teacher_size size_of(const wd_stepper_options *o)
{
    wd_err err;
    wd_teacher_size size;
    wd_teacher_files files[2] = {{.weights = NULL}, {.weights = NULL}};
    wd_safetensors *weights[2] = {NULL, NULL};
    const int experts = wd_teacher_experts(o->teacher);
    for (int e = 0; e < experts; e++) {
        const wd_component c = e ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
        wd_test_ok(wd_pipeline_open_weights(&weights[e], o->teacher, c, &err), &err);
        files[e].weights = weights[e];
    }
    wd_test_ok(wd_teacher_size_of(&size, &o->teacher->dit, experts, files, o->teacher_dtype, &err),
               &err);
    for (int e = 0; e < experts; e++) wd_safetensors_close(weights[e]);
    return size;
}

/* For placements only: each device has room for some of the stages. */
static inline wd_placement place(wd_strategy strategy, const wd_stepper_options *o)
{
    wd_err err;
    wd_placement p;
    wd_teacher_size size = size_of(o);
    size_t sum = 0;
    for (int s = 0; s < size.stages; s++) {
        size.flops[s] = 1;
        for (int e = 0; e < size.experts; e++)
            sum += size.stage[e][s].device + size.stage[e][s].widened;
    }
    wd_cluster cluster = {.devices = ACCELERATORS + 1, .host_bytes = SIZE_MAX, .batches = 4};
    for (int d = 0; d <= ACCELERATORS; d++)
        cluster.device[d] = (wd_cluster_device){.bytes = sum / 2,
                                                .flops_per_s = {1, 1},
                                                .link_bytes_per_s = 1,
                                                .reads_host = d == ACCELERATORS};
    if (strategy == WD_STRATEGY_custom) return random_placement(&size, &cluster);
    wd_test_ok(wd_strategy_place(&p, strategy, &size, &cluster, 1, &err), &err);
    return p;
}

#endif
