/* `wandistiller tell`: a run in another process draws a sheet, writes a checkpoint, ends, and its
 * student is the one that it would have been. */
#include "runs.h"

#include "wandistiller.h"

static wd_program run, told;

/* More steps than the run gets to do before it is told to stop; a few milliseconds each. */
#define LONG_RUN(out) SMALL_RUN(out), "--num_steps", "20000", "--lr_schedule", "constant"

static bool comes(const char *path)
{
    for (int i = 0; i < 3000; i++) {
        if (wd_path_exists(path)) return true;
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    return false;
}

static int filter(const struct dirent *entry)
{
    return !strncmp(entry->d_name, "step-", 5);
}

/* Waits for the first entry in a folder. */
static void wait_for_entry(const char *folder)
{
    wd_err err;
    int count = 0;
    for (int i = 0; i < 3000 && !count; i++) {
        wd_folder_list list = {0};
        wd_test_ok(wd_folder_list_open(&list, folder, filter, NULL, &err), &err);
        count = list.count;
        wd_folder_list_close(&list);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    if (!count) fail_msg("%s: nothing came in a minute", folder);
}

/* The command's output goes where the run's goes: it is read before the next program starts. */
static void tell(const char *folder, const char *request)
{
    wd_program_run(&told, "tell", folder, request);
    wd_program_succeeded(&told);
}

static void a_run_does_what_it_is_told(void **state)
{
    (void)state;
    char steps[32];
    const char *out = wd_test_path("told");
    const char *const arguments[] = {LONG_RUN(out), "--save_samples",
                                     "true",        "--sample_steps",
                                     "2",           "--sample_interval",
                                     "20000",       "--checkpoint_interval",
                                     "20000",       NULL};
    const pid_t pid = wd_program_start(arguments);
    wait_for_steps(wd_test_path("told/metrics.jsonl"));
    assert_false(wd_path_exists(wd_test_path("told/samples")));
    tell(out, "sample");
    wait_for_entry(wd_test_path("told/samples"));
    tell(out, "save");
    wait_for_entry(wd_test_path("told/checkpoints"));
    tell(out, "stop");
    wd_program_wait(&run, pid);
    assert_int_equal(run.code, 0);
    assert_true(comes(wd_test_path("told/model_index.json")));
    assert_false(wd_path_exists(wd_test_path("told/.wandistiller-stop")));
    json_t *rows = metrics(out);
    snprintf(steps, sizeof steps, "%d", (int)json_array_size(rows));
    json_decref(rows);
    wd_program_run(&run, LONG_RUN(wd_test_path("alone")), "--stop_at_step", steps, "--save_samples",
                   "false");
    wd_program_succeeded(&run);
    assert_same_weights(out, wd_test_path("alone"));
    wd_program_run(&told, "tell", out, "sample");
    wd_program_refused(&told, WD_MISMATCH, "no run is under way there");
}

static void what_is_no_run_is_refused(void **state)
{
    (void)state;
    wd_program_run(&told, "tell", wd_test_folder(), "save");
    wd_program_refused(&told, WD_NOT_FOUND, "expected the output folder of a run of train");
    wd_program_run(&told, "tell", wd_test_path("nowhere"), "save");
    wd_program_refused(&told, WD_NOT_FOUND, "nowhere: expected the output folder");
    wd_program_run(&told, "tell", wd_test_folder(), "halt");
    wd_program_refused(&told, WD_INVALID_ARGUMENT, "expected sample, save or stop, found \"halt\"");
    wd_program_run(&told, "tell", wd_test_folder());
    wd_program_refused(&told, WD_INVALID_ARGUMENT, "tell needs --request");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_does_what_it_is_told),
        cmocka_unit_test(what_is_no_run_is_refused),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
