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

/* Starts a job of two ranks, asks it to end after `ms` milliseconds and waits until it has; false:
 * it was not yet there to be asked. */
static bool ask_after(int ms)
{
    const char *started[] = {RUN(wd_test_path("early")),
                             "--max_minutes",
                             "0.2",
                             "--num_steps",
                             "1000000",
                             "--nproc_per_node",
                             "2",
                             NULL};
    const pid_t pid = wd_program_start(started);
    usleep((useconds_t)(1000 * ms));
    kill(pid, SIGTERM);
    wd_program_wait(&program, pid);
    if (program.code == 128 + SIGTERM) return false;
    if (program.code != WD_OK && program.code != WD_INTERRUPTED)
        fail_msg("after %d ms: exit code %d: %s", ms, program.code, program.err);
    if (strstr(program.err, "done after"))
        fail_msg("after %d ms: nobody was asked to end: %s", ms, program.err);
    return true;
}

/* Whatever mpirun and the ranks are at: before they are there, and before they look. Ten jobs are
 * asked, however long a busy machine takes to start them. */
static void asked_early_they_end(void **state)
{
    (void)state;
    int asked = 0;
    for (int ms = 0; asked < 10; ms += 30) {
        assert_true(ms < 5000);
        asked += ask_after(ms);
    }
}

/* A job that does not end by itself: its mpirun, the folder of what that and ranks share, and the
 * process that removes it. */
typedef struct job {
    pid_t pid, mpirun, cleanup;
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
    while (fscanf(file, "%d", &child) == 1) {
        snprintf(path, sizeof path, "/dev/shm/wandistiller-ranks-*/ompi.*/pid.%d", child);
        if (glob(path, 0, NULL, &found)) {
            j->cleanup = child;
        } else {
            j->mpirun = child;
            *strstr(found.gl_pathv[0], "/ompi.") = 0;
            snprintf(j->folder, sizeof j->folder, "%s", found.gl_pathv[0]);
        }
        globfree(&found);
    }
    fclose(file);
    assert_true(j->mpirun > 0 && j->cleanup > 0);
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

/* Nobody is left who could remove what they had: the next start does. */
static void what_all_killed_leave_goes_at_the_next_start(void **state)
{
    (void)state;
    const job j = start_job("killed-all"), other = start_job("not-killed");
    const pid_t all[] = {j.cleanup, j.pid, j.mpirun};
    for (int i = 0; i < 3; i++) kill(all[i], SIGSTOP); /* so that none sees another end */
    for (int i = 0; i < 3; i++) kill(all[i], SIGKILL);
    wd_program_wait(&program, j.pid);
    assert_true(wd_path_exists(j.folder));
    wd_program_run(&program, RUN(wd_test_path("never")), "--nproc_per_node", "2", "--teacher_path",
                   "no-such-teacher");
    refused(WD_NOT_FOUND, "no-such-teacher");
    assert_false(wd_path_exists(j.folder));
    assert_true(wd_path_exists(other.folder));
    kill(other.pid, SIGTERM);
    wd_program_wait(&program, other.pid);
    wd_program_succeeded(&program);
}

/* ---- Ctrl-Z ---- */

static char state_of(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    const char *end = n ? strrchr(text, ')') : NULL;
    return end ? end[2] : 0;
}

/* Whether all ranks are in that state of the kernel's, 'T': stopped, or none is. */
static bool ranks_are(const job *j, char wanted, bool all)
{
    char path[64];
    int child, ranks = 0, such = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)j->mpirun, (int)j->mpirun);
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d", &child) == 1) {
        ranks++;
        such += state_of(child) == wanted;
    }
    if (file) fclose(file);
    return ranks == 2 && such == (all ? ranks : 0);
}

static void wait_for_ranks(const job *j, char wanted, bool all)
{
    for (int i = 0; i < 3000; i++) {
        if (ranks_are(j, wanted, all)) return;
        usleep(10 * 1000);
    }
    fail_msg("ranks are not %c in half a minute", wanted);
}

static void a_paused_job_pauses_its_ranks(void **state)
{
    (void)state;
    int status;
    const job j = start_job("paused");
    kill(j.pid, SIGTSTP);
    assert_int_equal(waitpid(j.pid, &status, WUNTRACED), j.pid);
    assert_true(WIFSTOPPED(status));
    wait_for_ranks(&j, 'T', true);
    kill(j.pid, SIGCONT);
    wait_for_ranks(&j, 'T', false);
    kill(j.pid, SIGTERM);
    wd_program_wait(&program, j.pid);
    wd_program_succeeded(&program);
}

/* ---- ports ---- */

/* Whether a socket that `pid` has is in a table of the kernel's as one that listens, and where. */
static bool listens_at(char *address, size_t bytes, pid_t pid, const char *table)
{
    char path[300], line[512], target[64], local[128], wanted[80];
    unsigned state, inode;
    const struct dirent *e;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    FILE *file = fopen(table, "r");
    assert_non_null(file);
    while (!found && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*d: %127s %*s %x %*s %*s %*s %*u %*d %u", local, &state, &inode) != 3 ||
            state != 0x0A)
            continue;
        snprintf(wanted, sizeof wanted, "socket:[%u]", inode);
        DIR *dir = opendir(path);
        while (dir && !found && (e = readdir(dir))) {
            char name[300];
            snprintf(name, sizeof name, "%s/%s", path, e->d_name);
            const ssize_t n = readlink(name, target, sizeof target - 1);
            target[n > 0 ? n : 0] = 0;
            found = !strcmp(target, wanted) && strncmp(local, "0100007F:", 9) &&
                    strncmp(local, "00000000000000000000000001000000:", 33);
        }
        if (dir) closedir(dir);
    }
    fclose(file);
    if (found) snprintf(address, bytes, "%s", local);
    return found;
}

/* No rank listens where other machines can connect: neither the watch nor Open MPI. (mpirun 4.1
 * itself does, whatever it is told.) */
static void a_job_of_one_machine_listens_to_itself(void **state)
{
    (void)state;
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    char path[64], address[128];
    int pid, ranks = 0;
    const job j = start_job("ports");
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)j.mpirun, (int)j.mpirun);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (; fscanf(file, "%d", &pid) == 1; ranks++)
        for (int t = 0; t < 2; t++)
            if (listens_at(address, sizeof address, pid, tables[t]))
                fail_msg("a rank listens at %s", address);
    fclose(file);
    assert_int_equal(ranks, 2);
    kill(j.pid, SIGTERM);
    wd_program_wait(&program, j.pid);
    wd_program_succeeded(&program);
}

/* `wandistiller train ... 2>&1 | head -1` */
static void nobody_need_read_what_ranks_say(void **state)
{
    (void)state;
    char *code = NULL;
    size_t bytes;
    wd_err err;
    static const char script[] = "file=$1; shift; { \"$@\"; echo $? >$file; } 2>&1 | head -1";
    const char *file = wd_test_path("unread-code"), *out = wd_test_path("unread");
    const char *all[] = {
        "-c", script,        "sh",    file, WD_PROGRAM, RUN(out), "--nproc_per_node",
        "2",  "--log_level", "debug", NULL};
    wd_program_wait(&program, wd_program_start_as("sh", all));
    wd_test_ok(wd_file_read(&code, &bytes, file, 16, &err), &err);
    assert_string_equal(code, "0\n");
    wd_free(code);
    assert_true(wd_path_exists(wd_test_path("unread/checkpoints/step-00000040")));
    assert_true(wd_path_exists(wd_test_path("unread/model_index.json")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_to_end_they_write_a_checkpoint),
        cmocka_unit_test(asked_early_they_end),
        cmocka_unit_test(a_killed_mpirun_leaves_nothing),
        cmocka_unit_test(a_killed_start_leaves_nothing),
        cmocka_unit_test(what_all_killed_leave_goes_at_the_next_start),
        cmocka_unit_test(a_paused_job_pauses_its_ranks),
        cmocka_unit_test(a_job_of_one_machine_listens_to_itself),
        cmocka_unit_test(nobody_need_read_what_ranks_say),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
