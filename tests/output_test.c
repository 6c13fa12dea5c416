/* The output folder of `wandistiller train`, with what a user may find or do there: a forgotten
 * --resume, going back to an earlier checkpoint, damage, other things, a second run. */
#include <sys/stat.h>

#include "runs.h"

static wd_program program;

/* Eight steps, with a checkpoint after every second. */
#define RUN(out) SMALL_RUN(out), "--checkpoint_interval", "2", "--keep_checkpoints", "9"

static bool has(const char *run, const char *name)
{
    char path[WD_PATH_MAX];
    return wd_path_join(path, run, name, NULL) == WD_OK && wd_path_exists(path);
}

/* The run has checkpoints of these steps and of no others. */
static void assert_steps(const char *run, const int *steps, int count)
{
    int found = 0;
    char name[64];
    for (int step = 0; step <= 16; step++) {
        bool wanted = false;
        for (int i = 0; i < count; i++) wanted |= steps[i] == step;
        snprintf(name, sizeof name, "checkpoints/step-%08d/state.json", step);
        if (has(run, name) != wanted)
            fail_msg("%s/%s: %s", run, name, wanted ? "is missing" : "should not be there");
        found += wanted;
    }
    assert_int_equal(found, count);
}

#define assert_steps_are(run, ...)                                                                 \
    assert_steps(run, (const int[]){__VA_ARGS__}, sizeof(int[]){__VA_ARGS__} / sizeof(int))

static void assert_rows(const char *run, size_t count)
{
    json_t *rows = metrics(run);
    assert_int_equal(json_array_size(rows), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, i), "step")),
                         i + 1);
    json_decref(rows);
}

static void damage(const char *run, int step)
{
    char name[64], path[WD_PATH_MAX];
    wd_err err;
    snprintf(name, sizeof name, "checkpoints/step-%08d/state.safetensors", step);
    wd_test_ok(wd_path_join(path, run, name, &err), &err);
    assert_int_equal(truncate(path, 5000), 0);
}

/* The run that the others are compared with. */
static void a_whole_run(void **state)
{
    (void)state;
    wd_program_run(&program, RUN(wd_test_path("whole")), "--save_samples", "--sample_prompts",
                   "a fox", "--sample_steps", "1");
    wd_program_succeeded(&program);
    assert_steps_are(wd_test_path("whole"), 2, 4, 6, 8);
}

/* Runs the command that a warning names, which goes on with the run in this folder. */
static void follow(const char *folder)
{
    char command[512];
    snprintf(command, sizeof command, ": wandistiller train --resume %s\n", folder);
    assert_non_null(strstr(program.err, command));
    wd_program_run(&program, "train", "--resume", folder, "--stop_at_step", "0");
    wd_program_succeeded(&program);
}

/* A new run in a folder that has one: nothing of the earlier one is lost, and it can go on. */
static void a_forgotten_resume_destroys_nothing(void **state)
{
    (void)state;
    const char *out = wd_test_path("forgotten"), *earlier = wd_test_path("forgotten/earlier-1");
    wd_program_run(&program, RUN(out), "--stop_at_step", "5", "--save_samples", "--sample_prompts",
                   "a fox", "--sample_steps", "1", "--sample_interval", "4");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(out), "--stop_at_step", "1");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "the earlier run in this folder was moved to"));
    assert_steps_are(out, 1);
    assert_rows(out, 1);
    assert_false(has(out, "samples"));
    assert_steps_are(earlier, 2, 4, 5);
    assert_rows(earlier, 5);
    assert_true(has(earlier, "samples/step-00000004.png") && has(earlier, "run.json"));
    follow(earlier);
    assert_rows(earlier, 8);
    assert_same_weights(earlier, wd_test_path("whole"));
    wd_program_run(&program, RUN(out), "--resume", "--keep_checkpoints", "1");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "moved"));
    assert_steps_are(out, 8);
    assert_same_weights(out, wd_test_path("whole"));
}

/* What was made after the checkpoint is a branch of its own, and `auto` goes on from where the run
 * is now. */
static void going_back_leaves_a_branch(void **state)
{
    (void)state;
    const char *out = wd_test_path("back"), *branch = wd_test_path("back/earlier-1");
    wd_program_run(&program, RUN(out));
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(out), "--resume", wd_test_path("back/checkpoints/step-00000004"),
                   "--stop_at_step", "5", "--keep_checkpoints", "2");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "goes on from step 4; its later checkpoints"));
    assert_steps_are(out, 4, 5);
    assert_rows(out, 5);
    assert_steps_are(branch, 6, 8);
    assert_rows(branch, 8);
    assert_same_weights(branch, wd_test_path("whole"));
    follow(branch);
    assert_null(strstr(program.err, "moved"));
    assert_same_weights(branch, wd_test_path("whole"));
    wd_program_run(&program, RUN(out), "--resume", "auto", "--stop_at_step", "7");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "moved"));
    assert_steps_are(out, 4, 5, 6, 7);
    assert_rows(out, 7);
    wd_program_run(&program, RUN(out), "--resume", "auto");
    wd_program_succeeded(&program);
    assert_rows(out, 8);
    assert_same_weights(out, branch);
}

/* From a checkpoint of another folder: the run here is not the one that goes on. */
static void a_run_from_elsewhere_moves_all_aside(void **state)
{
    (void)state;
    const char *out = wd_test_path("elsewhere"), *from = wd_test_path("whole");
    wd_program_run(&program, RUN(out), "--stop_at_step", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(out), "--resume", from);
    wd_program_succeeded(&program);
    assert_steps_are(wd_test_path("elsewhere/earlier-1"), 2);
    assert_steps_are(out, 8);
    assert_same_weights(out, from);
}

/* A damaged checkpoint is passed over, and does not count; where there is no other it is an error,
 * and all stays as it was. */
static void damaged_checkpoints_are_no_reason_to_begin_anew(void **state)
{
    (void)state;
    const char *out = wd_test_path("damaged");
    wd_program_run(&program, RUN(out), "--stop_at_step", "4");
    wd_program_succeeded(&program);
    damage(out, 4);
    wd_program_run(&program, RUN(out), "--resume", "--stop_at_step", "6", "--keep_checkpoints",
                   "2");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "passing over a checkpoint"));
    assert_steps_are(wd_test_path("damaged/earlier-1"), 4);
    assert_steps_are(out, 4, 6);
    damage(out, 4);
    damage(out, 6);
    wd_program_run(&program, RUN(out), "--resume", "auto");
    wd_program_refused(&program, WD_BAD_FORMAT, "is damaged: step-00000006, step-00000004 (");
    wd_program_run(&program, RUN(out), "--resume", out);
    wd_program_refused(&program, WD_BAD_FORMAT, "is damaged: step-00000006, step-00000004 (");
    wd_program_run(&program, RUN(out), "--resume",
                   wd_test_path("damaged/checkpoints/step-00000004"));
    wd_program_refused(&program, WD_BAD_FORMAT, "step-00000004/state.safetensors: damaged");
    assert_steps_are(out, 4, 6);
    assert_rows(out, 6);
    assert_false(has(out, "earlier-2"));
}

static void what_is_not_a_runs_is_not_replaced(void **state)
{
    (void)state;
    wd_err err;
    const char *out = wd_test_path("sources"), *file = wd_test_path("sources/scheduler/main.c");
    wd_test_ok(wd_folder_make(wd_test_path("sources/scheduler"), &err), &err);
    wd_test_ok(wd_file_write(file, "int main;", 9, &err), &err);
    wd_program_run(&program, RUN(out));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "sources/scheduler is not of a run");
    assert_true(wd_path_exists(file));
    assert_false(has(out, "run.json") || has(out, "cache"));

    wd_test_ok(wd_folder_make(wd_test_path("noted"), &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("noted/train.log"), "", 0, &err), &err);
    wd_program_run(&program, RUN(wd_test_path("noted")), "--stop_at_step", "1");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "moved"));
    assert_true(has(wd_test_path("noted"), "train.log"));
}

static void some_paths_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, RUN(""));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--output_dir: expected a path");
    wd_program_run(&program, RUN(wd_test_path("never")), "--cache_dir", "");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--cache_dir: expected a path");
    wd_program_run(&program, RUN(WD_SOURCE_DIR "/models/wan-tiny/transformer"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "lies in the teacher's folder");
    assert_false(wd_path_exists(wd_test_path("never")));
}

/* Also after the first run was killed. */
static void one_run_at_a_time_has_the_folder(void **state)
{
    (void)state;
    const char *out = wd_test_path("shared");
    const char *arguments[] = {RUN(out), "--num_steps", "1000000", NULL};
    char process[64];
    const pid_t pid = wd_program_start(arguments);
    wait_for_steps(wd_test_path("shared/metrics.jsonl"));
    wd_program_run(&program, RUN(out), "--resume");
    snprintf(process, sizeof process, "another run writes into this folder (process %ld on ",
             (long)pid);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, process);
    kill(pid, SIGKILL);
    wd_program_wait(&program, pid);
    assert_int_equal(program.code, 128 + SIGKILL);
    wd_program_run(&program, RUN(out), "--num_steps", "1000000", "--resume", "--stop_at_step", "1");
    wd_program_succeeded(&program);
}

/* Moved while a run writes into it: the run goes on there, and says so in words for a shell. */
static void a_moved_folder_is_followed(void **state)
{
    (void)state;
    char moved[WD_PATH_MAX], word[WD_PATH_MAX];
    const char *out = wd_test_path("moving");
    const char *arguments[] = {SMALL_RUN(out), "--num_steps", "1000000",
                               "--log_level",  "info",        NULL};
    const pid_t pid = wd_program_start(arguments);
    wait_for_steps(wd_test_path("moving/metrics.jsonl"));
    snprintf(moved, sizeof moved, "%s/where it's now", wd_test_folder());
    assert_int_equal(rename(out, moved), 0);
    kill(pid, SIGINT);
    wd_program_wait(&program, pid);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "the run goes on there"));
    snprintf(word, sizeof word, "/where it'\\''s now' --resume auto goes on from here");
    assert_non_null(strstr(program.err, word));
    assert_false(wd_path_exists(out));
    assert_true(has(moved, "model_index.json"));
    json_t *rows = metrics(moved);
    char last[64];
    snprintf(last, sizeof last, "checkpoints/step-%08zu/state.json", json_array_size(rows));
    json_decref(rows);
    assert_true(has(moved, last));
}

/* What run.json says of the folder is older than its move. */
static void a_moved_run_goes_on_from_its_own_file(void **state)
{
    (void)state;
    const char *out = wd_test_path("before"), *moved = wd_test_path("after");
    wd_program_run(&program, RUN(out), "--stop_at_step", "4");
    wd_program_succeeded(&program);
    assert_int_equal(rename(out, moved), 0);
    wd_program_run(&program, "train", "--config", wd_test_path("after/run.json"), "--resume",
                   "--stop_at_step", "0", "--log_level", "warning");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "before is not there, so --output_dir is "));
    assert_false(wd_path_exists(out));
    assert_rows(moved, 8);
    assert_same_weights(moved, wd_test_path("whole"));
    wd_program_run(&program, "train", "--config", wd_test_path("after/run.json"), "--output_dir",
                   out, "--stop_at_step", "1", "--log_level", "warning");
    wd_program_succeeded(&program);
    assert_steps_are(out, 1);
    assert_rows(moved, 8);
}

/* A run's folder says everything about it, from wherever it is resumed, also after a copy, and also
 * where the run was begun with relative paths. */
static void a_folder_is_enough_to_resume(void **state)
{
    (void)state;
    wd_err err;
    static const char text[] = "a red apple\na blue star\na yellow smiling face\n";
    char before[WD_PATH_MAX], checkpoint[WD_PATH_MAX];
    const char *run = wd_test_path("relative-run");
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(wd_test_folder()), 0);
    wd_test_ok(wd_file_write("relative.txt", text, sizeof text - 1, &err), &err);
    wd_program_run(&program, RUN("relative-run"), "--data_path", "relative.txt", "--cache_dir",
                   "relative-cache", "--stop_at_step", "4");
    wd_program_succeeded(&program);
    assert_int_equal(chdir("/"), 0);
    wd_program_run(&program, "train", "--resume", run, "--stop_at_step", "6");
    wd_program_succeeded(&program);
    assert_rows(run, 6);
    assert_true(has(wd_test_folder(), "relative-cache"));
    wd_test_ok(wd_path_join(checkpoint, run, "checkpoints/step-00000004", &err), &err);
    wd_program_run(&program, "train", "--resume", checkpoint, "--stop_at_step", "0",
                   "--keep_checkpoints", "1"); /* so that this one is removed meanwhile */
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "was moved"));
    assert_rows(run, 8);
    assert_steps_are(run, 8);
    assert_true(has(run, "earlier-1/run.json"));
    static const char *const wrong[] = {"nothing", "relative-run/samples", "relative-cache"};
    for (int i = 0; i < 3; i++) {
        wd_program_run(&program, "train", "--resume", wd_test_path(wrong[i]));
        wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected a run's folder, which has a");
    }
    wd_program_run(&program, "train", "--resume", run, "--data_path", wd_test_path("relative.txt"),
                   "--log_level", "warning");
    wd_program_succeeded(&program);
    wd_program_run(&program, "train", "--config", wd_test_path("relative-run/run.json"),
                   "--output_dir", wd_test_path("repeated"), "--stop_at_step", "2");
    wd_program_succeeded(&program); /* anew: the file does not name the checkpoint */
    assert_rows(wd_test_path("repeated"), 2);
    assert_int_equal(chdir(before), 0);
}

/* All steps are done, and the student is made again; its checkpoint is the one that is there. */
static void a_finished_run_that_is_resumed_writes_its_student(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    struct stat before, after;
    const char *out = wd_test_path("finished");
    wd_program_run(&program, RUN(out));
    wd_program_succeeded(&program);
    wd_test_ok(wd_path_join(path, out, "checkpoints/step-00000008", &err), &err);
    assert_int_equal(stat(path, &before), 0);
    wd_test_ok(wd_path_join(path, out, "transformer", &err), &err);
    wd_test_ok(wd_folder_remove(path, &err), &err);
    wd_program_run(&program, RUN(out), "--resume");
    wd_program_succeeded(&program);
    assert_same_weights(out, wd_test_path("whole"));
    wd_test_ok(wd_path_join(path, out, "checkpoints/step-00000008", &err), &err);
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino);
    assert_rows(out, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_run),
        cmocka_unit_test(a_forgotten_resume_destroys_nothing),
        cmocka_unit_test(going_back_leaves_a_branch),
        cmocka_unit_test(a_run_from_elsewhere_moves_all_aside),
        cmocka_unit_test(damaged_checkpoints_are_no_reason_to_begin_anew),
        cmocka_unit_test(what_is_not_a_runs_is_not_replaced),
        cmocka_unit_test(some_paths_are_refused),
        cmocka_unit_test(one_run_at_a_time_has_the_folder),
        cmocka_unit_test(a_moved_folder_is_followed),
        cmocka_unit_test(a_folder_is_enough_to_resume),
        cmocka_unit_test(a_moved_run_goes_on_from_its_own_file),
        cmocka_unit_test(a_finished_run_that_is_resumed_writes_its_student),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
