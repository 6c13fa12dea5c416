/* `wandistiller train` as a user runs it, on a few steps of wan-tiny: what it leaves behind, that a
 * run is one run however often it is stopped, and what is refused. */
#include "dev/device.h"
#include "runs.h"

static wd_program program;

#define RUN SMALL_RUN

static void assert_same_metrics(const char *a, const char *b)
{
    json_t *x = metrics(a), *y = metrics(b);
    assert_int_equal(json_array_size(x), 8);
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

static void a_run_leaves_a_pipeline(void **state)
{
    (void)state;
    const char *out = wd_test_path("whole");
    wd_program_run(&program, RUN(out), "--save_samples", "--sample_prompts", "a fox",
                   "--sample_steps", "2");
    wd_program_succeeded(&program);
    static const char *const files[] = {"model_index.json",
                                        "README.md",
                                        "run.json",
                                        "metrics.jsonl",
                                        "transformer/config.json",
                                        "vae/config.json",
                                        "text_encoder/config.json",
                                        "tokenizer/spiece.model",
                                        "scheduler/scheduler_config.json",
                                        "checkpoints/step-00000008/state.json",
                                        "samples/step-00000008.png"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[WD_PATH_MAX];
        wd_err err;
        wd_test_ok(wd_path_join(path, out, files[i], &err), &err);
        if (!wd_path_exists(path)) fail_msg("%s is missing", path);
    }
    wd_program_run(&program, "sample", "--model", out, "--prompt", "a fox", "--steps", "2", "--out",
                   wd_test_path("fox.png"));
    wd_program_succeeded(&program);
    wd_program_run(&program, "inspect", out);
    wd_program_succeeded(&program);
}

static void threads_and_windows_change_nothing(void **state)
{
    (void)state;
    const char *a = wd_test_path("whole"), *b = wd_test_path("other");
    wd_program_run(&program, RUN(b), "--num_threads", "1", "--teacher_window", "3",
                   "--teacher_micro_batch", "2");
    wd_program_succeeded(&program);
    assert_same_weights(a, b);
    assert_same_metrics(a, b);
}

static void a_stopped_run_goes_on_bit_for_bit(void **state)
{
    (void)state;
    const char *a = wd_test_path("whole"), *b = wd_test_path("parts");
    wd_program_run(&program, RUN(b), "--resume", "auto", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(b), "--resume=auto", "--stop_at_step", "5");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(b), "--resume", b);
    wd_program_succeeded(&program);
    assert_same_weights(a, b);
    assert_same_metrics(a, b);
}

/* Sheets of prompts longer than any of the data. */
#define LONG_SAMPLES                                                                               \
    "--save_samples", "--sample_prompts", "red apple, penguin, blue background", "--sample_steps", \
        "1"

static int64_t text_tokens_of(const char *run)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, run, "run.json", &err), &err);
    json_t *json = json_load_file(path, 0, NULL);
    const json_int_t tokens = json_integer_value(json_object_get(json, "text_tokens"));
    json_decref(json);
    return tokens;
}

/* A run may go on on a processor with other instructions, and says what that means. */
static void other_kernels_are_said(void **state)
{
    (void)state;
    static const char warning[] = "the student will not be, bit for bit";
    const char *out = wd_test_path("kernels");
    setenv("WD_CPU_ISA", "generic", 1);
    wd_program_run(&program, RUN(out), "--stop_at_step", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(out), "--resume", "auto", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, warning));
    unsetenv("WD_CPU_ISA");
    int best;
    assert_int_equal(wd_device_kernel_set(&best, NULL), WD_OK);
    if (!best) wd_test_skip("this processor has but one set of kernels");
    wd_program_run(&program, RUN(out), "--resume", "auto");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "computed with generic, oneDNN"));
    assert_non_null(strstr(program.err, warning));
}

/* How much padding is computed follows from the prompts; a run goes on with what it was begun with.
 */
static void resumed_runs_keep_their_text(void **state)
{
    (void)state;
    const char *a = wd_test_path("long"), *b = wd_test_path("long-parts");
    wd_program_run(&program, RUN(a), LONG_SAMPLES);
    wd_program_succeeded(&program);
    const int64_t tokens = text_tokens_of(a);
    assert_in_range(tokens, text_tokens_of(wd_test_path("whole")) + 1, 23);
    wd_program_run(&program, RUN(b), LONG_SAMPLES, "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(b), "--resume", "--stop_at_step", "7");
    wd_program_succeeded(&program);
    assert_int_equal(text_tokens_of(b), tokens);
    wd_program_run(&program, RUN(b), "--resume", "--max_sequence_length", "25");
    wd_program_refused(&program, WD_MISMATCH, "max_sequence_length 24");
    wd_program_run(&program, RUN(b), "--resume");
    wd_program_succeeded(&program);
    assert_same_weights(a, b);
    assert_same_metrics(a, b);
    wd_program_run(&program, RUN(wd_test_path("parts")), "--resume", LONG_SAMPLES);
    wd_program_refused(&program, WD_MISMATCH, "prompts of at most");
}

static void a_run_is_repeated_from_its_own_file(void **state)
{
    (void)state;
    const char *a = wd_test_path("whole"), *b = wd_test_path("again");
    wd_program_run(&program, "train", "--config", wd_test_path("whole/run.json"), "--output_dir", b,
                   "--log_level", "warning");
    wd_program_succeeded(&program);
    assert_same_weights(a, b);
}

/* Before anything is loaded: prompts are not even encoded. */
static void resumed_runs_keep_their_samples(void **state)
{
    (void)state;
    const char *const other[][3] = {
        {"--seed", "4", "begun with seed 3 and is to be resumed with 4"},
        {"--batch_size", "4", "x ranks) 2 and is to be resumed with 4"},
        {"--guidance_scale", "3", "begun with guidance_scale 2.0 and is to be resumed with 3.0"},
        {"--mixed_precision", "bf16",
         "begun with mixed_precision \"no\" and is to be resumed with \"bf16\""},
        {"--height", "64", "begun with height 32 and is to be resumed with 64"},
        {"--student_config", wd_test_path("deeper.json"),
         "begun with a student of num_layers 1 and is to be resumed with 2"},
        {"--teacher_dtype", "float16",
         "begun with teacher_dtype \"float32\" and is to be resumed with \"bfloat16\""},
        {"--negative_prompt", "fox",
         "begun with negative_prompt \"\" and is to be resumed with \"fox\""},
        {"--data_path", wd_test_path("turned.txt"), "begun with prompts (texts and order) of key"}};
    static const char deeper[] = "{\"depth\": 2}";
    static const char turned[] = "fox\npenguin, white background\nred apple, blue background\n";
    const char *out = wd_test_path("parts"), *cache = wd_test_path("no-cache");
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("turned.txt"), turned, sizeof turned - 1, &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("deeper.json"), deeper, sizeof deeper - 1, &err), &err);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        wd_program_run(&program, RUN(out), "--resume", "--cache_dir", cache, other[i][0],
                       other[i][1]);
        wd_program_refused(&program, WD_MISMATCH, other[i][2]);
        assert_false(wd_path_exists(cache));
    }
}

/* What was chosen, what was left out, and the loss of the steps that there were. */
static void a_run_says_what_it_does(void **state)
{
    (void)state;
    const char *out = wd_test_path("said");
    wd_program_run(&program, RUN(out), "--max_sequence_length", "3", "--stop_at_step", "2",
                   "--sample_prompts", "a", "--log_level", "info");
    wd_program_succeeded(&program);
    static const char *const parts[] = {
        (" 1 block of width 160, fp32; 32x32 pixels, 3 prompts, 2 samples a step, "
         "learning rate 0.001, 8 steps\n"),
        "2 prompts have more than 3 tokens: what is behind is left out\n",
        "no sample sheets: one would take ",
        "the student starts from blocks 0 of ",
        "/transformer_2\n",
        "stopped after 2 steps",
        ", loss "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(program.err, parts[i])) fail_msg("no \"%s\" in\n%s", parts[i], program.err);
    wd_program_run(&program, RUN(out), "--max_sequence_length", "3", "--num_steps", "2", "--resume",
                   "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "done after 2 steps"));
    assert_null(strstr(program.err, ", loss "));
}

static pid_t start_long_run(const char *out)
{
    const char *arguments[] = {RUN(out), "--num_steps", "1000000", "--checkpoint_interval",
                               "2",      "--resume",    "auto",    NULL};
    return wd_program_start(arguments);
}

static void interrupted_runs_leave_a_student(void **state)
{
    (void)state;
    const char *out = wd_test_path("interrupted");
    const pid_t pid = start_long_run(out);
    wait_for_steps(wd_test_path("interrupted/metrics.jsonl"));
    kill(pid, SIGINT);
    wd_program_wait(&program, pid);
    wd_program_succeeded(&program);
    assert_true(wd_path_exists(wd_test_path("interrupted/model_index.json")));
    wd_program_run(&program, RUN(out), "--num_steps", "1000000", "--stop_at_step", "1", "--resume",
                   "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "going on from"));
}

/* A student may be a teacher, too. */
static void students_are_not_guided_twice(void **state)
{
    (void)state;
    const char *student = wd_test_path("whole"), *out = wd_test_path("grandchild");
    wd_program_run(&program, RUN(out), "--teacher_path", student);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--guidance_scale 2 guides a second time"));
    wd_program_run(&program, "sample", "--model", student, "--prompt", "a", "--steps", "1", "--out",
                   wd_test_path("twice.png"), "--guidance_scale", "3");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--guidance_scale 3 guides a second time"));
    wd_program_run(&program, "sample", "--model", student, "--prompt", "a", "--steps", "1", "--out",
                   wd_test_path("once.png"));
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "guides"));
}

static void refuse(wd_status status, const char *text, const char *option, const char *value)
{
    wd_program_run(&program, RUN(wd_test_path("never")), option, value);
    wd_program_refused(&program, status, text);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    refuse(WD_UNSUPPORTED, "these devices can serve cpu, custom, disk, auto",
           "--teacher_device_strategy", "gpu");
    refuse(WD_UNSUPPORTED, "balanced needs two devices or more", "--balance_teacher", NULL);
    refuse(WD_INVALID_ARGUMENT, "found \"fast\"", "--teacher_device_strategy", "fast");
    refuse(WD_UNSUPPORTED, "--devices cuda:0", "--devices", "cuda:0");
    refuse(WD_NOT_FOUND, "no-such-teacher", "--teacher_path", "no-such-teacher");
    refuse(WD_NOT_FOUND, "no-prompts.txt", "--data_path", "no-prompts.txt");
    refuse(WD_NOT_FOUND, "no-student.json", "--student_config", "no-student.json");
    refuse(WD_NOT_FOUND, "--resume no-checkpoint: expected auto, a run's folder", "--resume",
           "no-checkpoint");
    refuse(WD_NOT_FOUND, "found neither", "--resume", wd_test_path("whole/checkpoints"));
    refuse(WD_IO, "prompts.txt: is a file, expected a folder", "--output_dir",
           wd_test_path("prompts.txt"));
    wd_program_run(&program, RUN(wd_test_path("never")), "--save_samples", "--sample_prompts",
                   "no-sheet.txt");
    wd_program_refused(&program, WD_NOT_FOUND, "no-sheet.txt: cannot be read");
    refuse(WD_INVALID_ARGUMENT, "expected multiples of 16", "--height", "40");
    refuse(WD_INVALID_ARGUMENT, "is the teacher's folder", "--output_dir", teacher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_leaves_a_pipeline),
        cmocka_unit_test(threads_and_windows_change_nothing),
        cmocka_unit_test(a_stopped_run_goes_on_bit_for_bit),
        cmocka_unit_test(other_kernels_are_said),
        cmocka_unit_test(resumed_runs_keep_their_text),
        cmocka_unit_test(resumed_runs_keep_their_samples),
        cmocka_unit_test(a_run_says_what_it_does),
        cmocka_unit_test(a_run_is_repeated_from_its_own_file),
        cmocka_unit_test(interrupted_runs_leave_a_student),
        cmocka_unit_test(students_are_not_guided_twice),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
