/* Phases: what --recipe may say, where a phase ends, and that a run of two phases is the same, bit
 * for bit, wherever it is stopped and resumed. On wan-tiny. */
#include "harness/trainer.h"

#include "train/output/checkpoint_list.h"

enum { CHANGE = 4 }; /* the first phase's share of STEPS */

static const wd_phases two = {.phase = {{&wd_recipe_velocity, 2, 0.5}, {&wd_recipe_chord, 4, 0.5}},
                              .count = 2};

static void recipes_have_shares(void **state)
{
    (void)state;
    wd_err err;
    wd_phases p;
    wd_test_ok(wd_phases_parse(&p, "velocity", &err), &err);
    assert_int_equal(p.count, 1);
    assert_ptr_equal(p.phase[0].recipe, &wd_recipe_velocity);
    assert_true(p.phase[0].share == 1);
    wd_test_ok(wd_phases_parse(&p, "velocity:3,chord:1", &err), &err);
    assert_int_equal(p.count, 2);
    assert_ptr_equal(p.phase[1].recipe, &wd_recipe_chord);
    assert_true(p.phase[0].share == 0.75 && p.phase[1].share == 0.25);
    wd_test_ok(wd_phases_parse(&p, "velocity,chord", &err), &err);
    assert_true(p.phase[0].share > 0 && p.phase[1].share > 0);
    assert_float_equal(p.phase[0].share + p.phase[1].share, 1, 1e-15);
    static const char *const refused[] = {
        "",
        "chords",
        "velocity,",
        "velocity chord",
        "chord,velocity",
        "chord:0",
        "chord:-1",
        "velocity:0.5,chord",
        "chord:nan",
        "chord,chord",
        "velocity:",
        "chord:1x",
        "velocity:inf,chord:1",
        ",chord",
        "velocity,chord,chord",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(wd_phases_parse(&p, refused[i], &err), WD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "--recipe: expected velocity"));
    }
}

static void phases_divide_steps_and_time(void **state)
{
    (void)state;
    wd_err err;
    wd_phases p;
    wd_test_ok(wd_phases_parse(&p, "velocity:0.6,chord:0.4", &err), &err);
    assert_int_equal(wd_phase_end_step(&p, 0, 1000), 600);
    assert_int_equal(wd_phase_end_step(&p, 1, 1000), 1000);
    assert_int_equal(wd_phase_end_step(&p, 0, 0), 0);
    assert_int_equal(wd_phase_end_step(&p, 0, 2), 1);
    assert_true(wd__phase_end_seconds(&p, 0, 50) == 30 && wd__phase_end_seconds(&p, 1, 50) == 50);
    wd_test_ok(wd_phases_parse(&p, "velocity:1,chord:999", &err), &err);
    assert_int_equal(wd_phase_end_step(&p, 0, 10), 1);
    wd_test_ok(wd_phases_parse(&p, "velocity:999,chord:1", &err), &err);
    assert_int_equal(wd_phase_end_step(&p, 0, 10), 9);
}

/* A run of two phases, the first of CHANGE steps. */
static wd_trainer_options run_of_two(void)
{
    wd_trainer_options o = small_run();
    o.stepper.phases = two;
    o.stepper.trajectory.student_steps = 2;
    o.lr =
        (wd_lr_schedule){.shape = WD_LR_COSINE, .lr = 1e-3, .ratio_min = 0.03, .warmup_steps = 2};
    return o;
}

static void assert_same_tensors(const char *a, const char *b)
{
    char path[2][WD_PATH_MAX], *bytes[2];
    size_t count[2];
    wd_err err;
    const char *const run[] = {a, b};
    for (int i = 0; i < 2; i++) {
        path_of(path[i], run[i], "/checkpoints/step-00000008/state.safetensors");
        wd_test_ok(wd_file_read(&bytes[i], &count[i], path[i], 1 << 28, &err), &err);
    }
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(bytes[0], bytes[1], count[0]);
    for (int i = 0; i < 2; i++) wd_free(bytes[i]);
}

static void assert_has(const char *run, const char *text)
{
    char path[WD_PATH_MAX], *rows;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_file_read(&rows, &bytes, path_of(path, run, "/metrics.jsonl"), 1 << 20, &err),
               &err);
    if (!strstr(rows, text)) fail_msg("%s is not in %s", text, rows);
    wd_free(rows);
}

/* Steps before the change have 8 samples' velocities, those behind it chords, counted from there.
 */
static void rows_name_their_phase(const char *run)
{
    assert_has(run, "\"samples\": 8, \"targets\": 4, \"phase\": \"velocity\"");
    assert_has(run, "\"samples\": 16, \"targets\": ");
    assert_has(run, "\"phase\": \"chord\"");
}

static void a_stop_changes_nothing(void **state)
{
    (void)state;
    wd_err err;
    wd_trainer_result r;
    wd_trainer_options o = run_of_two();
    wd_test_ok(run_into(&r, "whole", &o, &err), &err);
    assert_int_equal(r.steps, STEPS);
    rows_name_their_phase("whole");
    for (int64_t stop = CHANGE - 1; stop <= CHANGE + 1; stop++) {
        char name[32], from[WD_PATH_MAX], file[64];
        snprintf(name, sizeof name, "stopped-%d", (int)stop);
        snprintf(file, sizeof file, "/checkpoints/step-%08d", (int)stop);
        o = run_of_two();
        o.stop_at_step = stop;
        wd_test_ok(run_into(&r, name, &o, &err), &err);
        assert_true(r.interrupted);
        o = run_of_two();
        o.resume = path_of(from, name, file);
        wd_test_ok(wd_trainer_resume_options(&o, &err), &err);
        wd_test_ok(run_into(&r, name, &o, &err), &err);
        assert_int_equal(r.steps, STEPS);
        assert_same_tensors("whole", name);
        rows_name_their_phase(name);
    }
}

/* The phase of a checkpoint must be there, and what a damaged one says is refused. */
static void other_phases_are_refused(void **state)
{
    (void)state;
    char from[WD_PATH_MAX];
    wd_err err;
    wd_trainer_options o = run_of_two();
    o.resume = path_of(from, "whole", "/checkpoints/step-00000008");
    o.stepper.phases.count = 1;
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "recipe \"velocity,chord\" and is to be resumed with"));
    o.stepper.phases = two;
    o.stepper.trajectory.student_steps = 4;
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "student_steps 2 and is to be resumed with 4"));
}

/* Time ends a phase as steps do. */
static void time_ends_a_phase(void **state)
{
    (void)state;
    wd_err err;
    wd_trainer_result r;
    wd_trainer_options o = run_of_two();
    o.stepper.phases.phase[0].share = 1e-9;
    o.stepper.phases.phase[1].share = 1 - 1e-9;
    o.steps = 0;
    o.stop_at_step = STEPS;
    o.seconds_max = 1000;
    wd_test_ok(run_into(&r, "timed", &o, &err), &err);
    assert_int_equal(r.steps, STEPS);
    assert_has("timed", "\"phase\": \"chord\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_have_shares),    cmocka_unit_test(phases_divide_steps_and_time),
        cmocka_unit_test(a_stop_changes_nothing), cmocka_unit_test(other_phases_are_refused),
        cmocka_unit_test(time_ends_a_phase),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
