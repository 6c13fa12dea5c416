/* A small stepper over wan-tiny, for tests: options that each of them changes to its needs. */
#ifndef WD_TESTS_HARNESS_STEPPER_H
#define WD_TESTS_HARNESS_STEPPER_H

#include "testing.h"

#include "core/random.h"
#include "train/loop/stepper.h"

enum { LATENT = 4, TEXT = 6, PADDED = 24 };

/* A made-up embedding per prompt, TEXT rows of which the last are padding. `context` not NULL: all
 * PADDED of them. */
static inline void text_of(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    float rows[PADDED * 96] = {0};
    wd_random_normal(rows, (TEXT - 2) * 96,
                     (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)(prompt + 1)}, 0);
    for (int i = 0; i < (context ? PADDED : TEXT) * 96; i++)
        if (dtype == WD_F32)
            ((float *)out)[i] = rows[i];
        else
            ((uint16_t *)out)[i] = wd_f32_to_bf16(rows[i]);
}

static inline wd_stepper_options small_stepper(const wd_pipeline *teacher)
{
    wd_stepper_options o = {
        .recipe = &wd_recipe_velocity,
        .teacher = teacher,
        .student = teacher->dit,
        .teacher_dtype = WD_BF16,
        .student_dtype = WD_F32,
        .latent_height = LATENT,
        .latent_width = LATENT,
        .text_tokens = TEXT,
        .text_repeat = 3,
        .trajectory = {.seed = 9,
                       .slots = 6,
                       .steps = 4,
                       .prompts = 5,
                       .flow_shift = 3,
                       .num_train_timesteps = 1000,
                       .integer_timesteps = true},
        .reuse = 2,
        .replay = 10,
        .window = 6,
        .micro_batch = 6,
        .guidance_scale = {2, 3},
        .batch = 2,
        .accumulation = 1,
        .ema = true,
        .optimizer = wd_optimizer_defaults(),
        .text = text_of,
    };
    o.student.layers = 2;
    return o;
}

/* The student is one of `steps` steps, which learns chords. */
static inline void learn_chords(wd_stepper_options *o, int64_t steps)
{
    o->recipe = &wd_recipe_chord;
    o->trajectory.student_steps = steps;
}

/* Lets the chords of pairs lead away from each other. */
static inline void pair_trajectories(wd_stepper_options *o)
{
    o->trajectory.slots = 4 * o->trajectory.steps;
    o->trajectory.diversity_gain = 0.3;
}

#endif
