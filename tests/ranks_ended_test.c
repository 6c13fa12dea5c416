/* Ranks that are asked to end leave a checkpoint, those that are killed leave nothing behind. */
#include "ranks.h"

#include <glob.h>

/* SIGTERM to who started the ranks, again and again as Slurm does, and to one of mpirun's: SIGUSR1
 * is what it hands on. */
static void asked_to_end_they_write_a_checkpoint(void **state)
{
    (void)state;
    const char *out = wd_test_path("asked");
    const char *started[] = {RUN(out), "--num_steps",      "1000000", "--resume",
                             "auto",   "--nproc_per_node", "2",       NULL};
    pid_t pid = wd_program_start(started);
    wait_for_steps(wd_test_path("asked/metrics.jsonl"));
    for (int i = 0; i < 5; i++) {
        kill(pid, SIGTERM);
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    wd_program_wait(&program, pid);
    wd_program_succeeded(&program);
    assert_int_equal(count(program.err, "--resume auto goes on from here"), 1);
    assert_int_equal(count(program.err, "stopping; "), 1);
    assert_int_equal(count_files(wd_test_path("asked/checkpoints"), "step-"), 1);
    assert_true(wd_path_exists(wd_test_path("asked/model_index.json")));

    json_t *rows = metrics(out);
    const size_t before = json_array_size(rows);
    json_decref(rows);
    pid = wd_program_start_as("mpirun", MPIRUN("2", RUN(out), "--num_steps", "1000000", "--resume",
                                               "auto", "--distributed"));
    for (size_t now = before; now < before + 3;) {
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        rows = metrics(out);
        now = json_array_size(rows);
        json_decref(rows);
    }
    kill(pid, SIGUSR1);
    wd_program_wait(&program, pid);
    wd_program_succeeded(&program);
    assert_int_equal(count(program.err, "going on from"), 1);
    assert_int_equal(count(program.err, "stopping; "), 0); /* mpirun ends ranks so, too */
}

/* Whatever mpirun and the ranks are at: before they are there, and before they look. */
static void asked_early_they_end(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        const char *started[] = {RUN(wd_test_path("early")),
                                 "--max_minutes",
                                 "0.2",
                                 "--num_steps",
                                 "1000000",
                                 "--nproc_per_node",
                                 "2",
                                 NULL};
        const pid_t pid = wd_program_start(started);
        usleep((useconds_t)(30 * 1000 * i));
        kill(pid, SIGTERM);
        wd_program_wait(&program, pid);
        if (program.code == 128 + SIGTERM) continue; /* nobody was there to be asked */
        if (program.code != WD_OK && program.code != WD_INTERRUPTED)
            fail_msg("after %d ms: exit code %d: %s", 30 * i, program.code, program.err);
        if (strstr(program.err, "done after"))
            fail_msg("after %d ms: nobody was asked to end: %s", 30 * i, program.err);
    }
}

/* A job that does not end by itself: its mpirun, and the folder of what that and ranks share. */
typedef struct job {
    pid_t pid, mpirun;
    char folder[64];
} job;

static void find_mpirun(job *j)
{
    char path[128];
    int child;
    glob_t found;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)j->pid, (int)j->pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (!j->mpirun && fscanf(file, "%d", &child) == 1) {
        snprintf(path, sizeof path, "/dev/shm/wandistiller-*/ompi.*/pid.%d", child);
        if (glob(path, 0, NULL, &found) == 0) {
            j->mpirun = child;
            *strstr(found.gl_pathv[0], "/ompi.") = 0;
            snprintf(j->folder, sizeof j->folder, "%s", found.gl_pathv[0]);
        }
        globfree(&found);
    }
    fclose(file);
    assert_true(j->mpirun > 0);
}

/* `name` is new: its first steps are waited for. */
static job start_job(const char *name)
{
    char metrics[64];
    const char *all[] = {RUN(wd_test_path(name)), "--num_steps", "1000000",
                         "--nproc_per_node",      "2",           NULL};
    job j = {.pid = wd_program_start(all)};
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", name);
    wait_for_steps(wd_test_path(metrics));
    find_mpirun(&j);
    return j;
}

static void a_killed_mpirun_leaves_nothing(void **state)
{
    (void)state;
    const job j = start_job("killed");
    kill(j.mpirun, SIGKILL);
    wd_program_wait(&program, j.pid);
    refused(WD_RANK_LOST, "was ended by signal 9");
    assert_false(wd_path_exists(j.folder));
}

/* Who started mpirun is gone, and mpirun ends by itself; then both are killed. */
static void a_killed_start_leaves_nothing(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        const job j = start_job(both ? "killed-both" : "killed-start");
        kill(j.pid, SIGKILL);
        if (both) kill(j.mpirun, SIGKILL);
        wd_program_wait(&program, j.pid);
        for (int i = 0; i < 1000 && wd_path_exists(j.folder); i++) usleep(10000);
        assert_false(wd_path_exists(j.folder));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_to_end_they_write_a_checkpoint),
        cmocka_unit_test(asked_early_they_end),
        cmocka_unit_test(a_killed_mpirun_leaves_nothing),
        cmocka_unit_test(a_killed_start_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
