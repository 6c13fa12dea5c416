/* Tests that the launcher is found from the environment, that launches which cannot work are
 * refused, and that mpirun runs as a child. */
#include "testing.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "job/launch/launch.h"
#include "job/launch/launch_folder.h"

static const char *const names[] = {
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "TORCHELASTIC_RUN_ID",
};

/* Sets "NAME", "value", ..., NULL, and unsets all others of the names above. */
static wd_launch detect(const char *const *pairs)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    for (; *pairs; pairs += 2) setenv(pairs[0], pairs[1], 1);
    return wd_launch_detect();
}

#define DETECT(...) detect((const char *const[]){__VA_ARGS__, NULL})
#define NOBODY detect((const char *const[]){NULL})
#define MPIRUN(rank, ranks, here)                                                                  \
    DETECT("OMPI_COMM_WORLD_RANK", rank, "OMPI_COMM_WORLD_SIZE", ranks,                            \
           "OMPI_COMM_WORLD_LOCAL_SIZE", here, "PMIX_RANK", rank)
#define TORCHRUN(rank, ranks, here)                                                                \
    DETECT("RANK", rank, "WORLD_SIZE", ranks, "LOCAL_RANK", "0", "LOCAL_WORLD_SIZE", here,         \
           "MASTER_ADDR", "127.0.0.1")

static void is_seen(wd_launch l, wd_launcher launcher, int rank, int ranks, int host_ranks)
{
    assert_int_equal(l.launcher, launcher);
    assert_int_equal(l.rank, rank);
    assert_int_equal(l.ranks, ranks);
    assert_int_equal(l.host_ranks, host_ranks);
}

static void launchers_are_known(void **state)
{
    (void)state;
    is_seen(NOBODY, WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(MPIRUN("2", "8", "4"), WD_LAUNCHER_MPIRUN, 2, 8, 4);
    is_seen(TORCHRUN("1", "4", "2"), WD_LAUNCHER_TORCHRUN, 1, 4, 2);
    is_seen(DETECT("RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "0", "TORCHELASTIC_RUN_ID", "x"),
            WD_LAUNCHER_TORCHRUN, 0, 2, -1);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "3",
                   "PMIX_RANK", "3"),
            WD_LAUNCHER_SRUN, 3, 4, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "3"),
            WD_LAUNCHER_BARE, 3, 4, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "1",
                   "PMI_RANK", "1", "PMI_SIZE", "2"),
            WD_LAUNCHER_BARE, 1, 2, 0);
    is_seen(DETECT("PMI_RANK", "1", "PMI_SIZE", "2"), WD_LAUNCHER_BARE, 1, 2, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1", "SLURM_PROCID", "0",
                   "PMI_RANK", "1", "PMI_SIZE", "2"),
            WD_LAUNCHER_BARE, 1, 2, 0);
}

/* mpirun may start any number of ranks in an allocation of Slurm. */
static void cores_of_a_rank_are_what_slurm_has_for_it(void **state)
{
    (void)state;
    DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "3", "PMIX_RANK", "3",
           "SLURM_CPUS_PER_TASK", "8");
    assert_int_equal(wd_launch_cores(4), 8);
    setenv("SLURM_CPUS_ON_NODE", "64", 1);
    assert_int_equal(wd_launch_cores(4), 8);
    unsetenv("SLURM_CPUS_PER_TASK");
    assert_int_equal(wd_launch_cores(4), 16);
    assert_int_equal(wd_launch_cores(100), 1);
    unsetenv("SLURM_CPUS_ON_NODE");
    assert_int_equal(wd_launch_cores(4), 0);
    MPIRUN("2", "8", "4");
    setenv("SLURM_CPUS_PER_TASK", "8", 1);
    assert_int_equal(wd_launch_cores(4), 0);
    setenv("SLURM_CPUS_ON_NODE", "2", 1);
    assert_int_equal(wd_launch_cores(1), 2);
}

static void others_are_not_taken_for_one(void **state)
{
    (void)state;
    /* the environment of a batch script, which has no step, and of the one task of srun --pty */
    is_seen(DETECT("SLURM_PROCID", "0", "SLURM_NTASKS", "4"), WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1", "SLURM_PROCID", "0",
                   "PMI_RANK", "0", "PMI_SIZE", "1"),
            WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(DETECT("RANK", "0", "WORLD_SIZE", "2"), WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(DETECT("OMPI_COMM_WORLD_SIZE", "many"), WD_LAUNCHER_NONE, 0, 1, 0);
    /* the environment of mpirun in a step of Slurm, or in a shell that torchrun started */
    is_seen(DETECT("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2", "SLURM_STEP_ID", "0",
                   "SLURM_STEP_NUM_TASKS", "1", "RANK", "0", "WORLD_SIZE", "1", "LOCAL_RANK", "0",
                   "MASTER_ADDR", "x"),
            WD_LAUNCHER_MPIRUN, 0, 2, -1);
}

static void accept_launch(wd_launch l, bool wanted, int host_ranks)
{
    wd_err err = {0};
    wd_test_ok(wd_launch_check(&l, wanted, host_ranks, "wandistiller train", &err), &err);
}

static void refuse(wd_launch l, bool wanted, int host_ranks, wd_status status, const char *text)
{
    wd_err err = {0};
    wd_test_refused(wd_launch_check(&l, wanted, host_ranks, "wandistiller train", &err), &err,
                    status, text);
}

static void ranks_that_are_wanted_pass(void **state)
{
    (void)state;
    accept_launch(NOBODY, false, 0);
    accept_launch(MPIRUN("0", "1", "1"), false, 0);
    accept_launch(MPIRUN("0", "1", "1"), true, 0);
    accept_launch(MPIRUN("3", "4", "4"), true, 0);
    accept_launch(MPIRUN("3", "8", "4"), true, 4);
    accept_launch(TORCHRUN("0", "1", "1"), false, 0);
    accept_launch(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "PMIX_RANK", "3"), true,
                  0);
    accept_launch(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1"), false, 0);
}

static void errors_say_what_to_run(void **state)
{
    (void)state;
    refuse(NOBODY, true, 0, WD_INVALID_ARGUMENT, "wandistiller train --nproc_per_node 2");
    refuse(MPIRUN("0", "4", "4"), false, 0, WD_INVALID_ARGUMENT,
           "mpirun -n 4 wandistiller train --distributed");
    refuse(MPIRUN("0", "4", "4"), true, 2, WD_INVALID_ARGUMENT, "expected 2 ranks on this machine");
    refuse(TORCHRUN("0", "4", "2"), true, 0, WD_INVALID_ARGUMENT,
           "mpirun -n 4 --bind-to none wandistiller train --distributed");
    refuse(TORCHRUN("0", "4", "2"), false, 0, WD_INVALID_ARGUMENT,
           "wandistiller train --nproc_per_node 2");
    refuse(TORCHRUN("0", "1", "1"), true, 0, WD_INVALID_ARGUMENT, "torchrun has started");
    refuse(TORCHRUN("0", "1", "1"), true, 2, WD_INVALID_ARGUMENT, "--nproc_per_node 2");
    refuse(TORCHRUN("0", "3", "1"), true, 2, WD_INVALID_ARGUMENT, "mpirun -n 6 --bind-to none");
    refuse(DETECT("RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "0", "MASTER_ADDR", "x"), true, 4,
           WD_INVALID_ARGUMENT, "mpirun -n 4 --bind-to none");
    refuse(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4"), true, 0, WD_UNSUPPORTED,
           "srun --mpi=pmix -n 4 wandistiller train --distributed");
    refuse(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "PMIX_RANK", "3"), false, 0,
           WD_INVALID_ARGUMENT, "srun --mpi=pmix -n 4 wandistiller train --distributed");
    refuse(DETECT("PMI_RANK", "0", "PMI_SIZE", "2"), true, 0, WD_UNSUPPORTED, "another MPI");
}

static void ranks_are_counted_when_they_meet(void **state)
{
    (void)state;
    wd_err err = {0};
    const wd_launch l = DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1", "PMIX_RANK", "0");
    accept_launch(l, true, 4);
    wd_test_ok(wd_launch_check_host(&l, 0, 1, &err), &err);
    wd_test_ok(wd_launch_check_host(&l, 1, 1, &err), &err);
    wd_test_refused(wd_launch_check_host(&l, 4, 1, &err), &err, WD_INVALID_ARGUMENT,
                    "expected 4 ranks on this machine, found 1, which srun has started");
}

/* ---- a script of the test is mpirun, by PATH; it can use $folder ---- */

typedef struct fake {
    char folder[32], path[64], *path_before;
} fake;

static fake open_fake(const char *script)
{
    fake f = {.folder = "/tmp/wd_launch_XXXXXX"};
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof f.path, "%s/mpirun", f.folder);
    FILE *file = fopen(f.path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\nfolder=%s\n%s", f.folder, script);
    fclose(file);
    assert_int_equal(chmod(f.path, 0700), 0);
    f.path_before = strdup(getenv("PATH"));
    assert_non_null(f.path_before);
    char *with = NULL;
    assert_true(asprintf(&with, "%s:%s", f.folder, f.path_before) > 0);
    setenv("PATH", with, 1);
    free(with);
    return f;
}

/* The script runs this program with the name of one of its roles below, and $folder/seen. */
static fake open_fake_self(const char *role)
{
    char self[512], script[1024];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    snprintf(script, sizeof script, "exec %s %s $folder/seen\n", self, role);
    return open_fake(script);
}

/* The text that the script has written to $folder/seen. */
static void close_fake(fake *f, char *seen, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "%s/seen", f->folder);
    FILE *file = fopen(path, "r");
    const size_t n = file ? fread(seen, 1, bytes - 1, file) : 0;
    seen[n] = 0;
    if (file) fclose(file);
    unlink(path);
    unlink(f->path);
    rmdir(f->folder);
    setenv("PATH", f->path_before, 1);
    free(f->path_before);
}

static char *const arguments[] = {(char *)"train", (char *)"--batch_size", (char *)"a b"};

static int run_fake(int ranks)
{
    wd_err err = {0};
    int code = -1;
    wd_test_ok(wd_launch_run(&code, ranks, 3, arguments, &err), &err);
    return code;
}

static void mpirun_is_run(void **state)
{
    (void)state;
    char seen[4096];
    fake f = open_fake("for a; do echo \"[$a]\"; done >$folder/seen\nexit 7\n");
    assert_int_equal(run_fake(3), 7);
    close_fake(&f, seen, sizeof seen);
    assert_memory_equal(seen, "[-n]\n[3]\n[--oversubscribe]\n[--bind-to]\n[none]\n", 45);
    assert_non_null(strstr(seen, "test_job_launch_launch]\n[train]\n[--batch_size]\n[a b]\n"));
}

/* Containers often have no ssh, without which mpirun would refuse to start. */
static void no_ssh_is_needed(void **state)
{
    (void)state;
    char seen[4096];
    fake f = open_fake("echo \"[$OMPI_MCA_plm]\" >$folder/seen\n");
    assert_int_equal(run_fake(2), 0);
    close_fake(&f, seen, sizeof seen);
    assert_string_equal(seen, "[isolated]\n");
}

/* mpirun for the test below: writes the names of the interfaces that have an IPv4 address. */
static int list_interfaces(const char *seen)
{
    struct ifaddrs *all;
    FILE *file = fopen(seen, "w");
    if (!file || getifaddrs(&all)) return 1;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET) fprintf(file, "[%s]", i->ifa_name);
    freeifaddrs(all);
    return fclose(file);
}

/* mpirun listens on all interfaces that it sees. Where util-linux's unshare can make a network
 * namespace on this machine, it must see the loopback alone. */
static void mpirun_sees_the_loopback_alone(void **state)
{
    (void)state;
    char seen[4096];
    if (system("unshare -n true 2>/dev/null || unshare -r -n true 2>/dev/null"))
        wd_test_skip("no network namespace can be made");
    fake f = open_fake_self("list_interfaces");
    assert_int_equal(run_fake(2), 0);
    close_fake(&f, seen, sizeof seen);
    assert_string_equal(seen, "[lo]");
}

/* Makes process_vm_readv fail with `error`, in this process and what it starts, as a container's
 * filter does (seccomp(2)); false: this machine allows no filter. */
static bool forbid_reading(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static bool may_read(void)
{
    char there = 1, here = 0;
    const struct iovec from = {&there, 1}, to = {&here, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/* The variable that mpirun sees, in brackets, where reading fails with `error` (0: it does not).
 * Skips the test where there are no filters. */
static void copies_where(char *seen, size_t bytes, int error)
{
    enum { NO_FILTER = 77 };
    int status;
    fake f = open_fake("echo \"[$OMPI_MCA_btl_vader_single_copy_mechanism]\" >$folder/seen\n");
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(error && !forbid_reading(error) ? NO_FILTER : run_fake(2));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close_fake(&f, seen, bytes);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_FILTER) wd_test_skip("no filter of system calls can be set");
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Open MPI would have each rank try it for every large message, and print that it failed. */
static void ranks_read_no_memory_that_they_may_not(void **state)
{
    (void)state;
    static const char name[] = "OMPI_MCA_btl_vader_single_copy_mechanism";
    char seen[64];
    unsetenv(name);
    copies_where(seen, sizeof seen, 0);
    assert_string_equal(seen, may_read() ? "[]\n" : "[none]\n");
    copies_where(seen, sizeof seen, EPERM);
    assert_string_equal(seen, "[none]\n");
    copies_where(seen, sizeof seen, ENOSYS);
    assert_string_equal(seen, "[none]\n");
    setenv(name, "knem", 1); /* the user's choice */
    copies_where(seen, sizeof seen, EPERM);
    unsetenv(name);
    assert_string_equal(seen, "[knem]\n");
}

static void a_missing_mpirun_is_named(void **state)
{
    (void)state;
    wd_err err = {0};
    int code = -1;
    char *before = strdup(getenv("PATH"));
    assert_non_null(before);
    setenv("PATH", wd_test_folder(), 1);
    wd_test_refused(wd_launch_run(&code, 3, 3, arguments, &err), &err, WD_NOT_FOUND, "openmpi-bin");
    setenv("PATH", before, 1);
    free(before);
}

/* A program whose parent ignores SIGCHLD ignores it, too. */
static void the_exit_code_is_known_where_children_are_ignored(void **state)
{
    (void)state;
    char seen[8];
    fake f = open_fake("exit 7\n");
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 3; i++) assert_int_equal(run_fake(2), 7);
    assert_ptr_equal(signal(SIGCHLD, SIG_DFL), SIG_IGN);
    close_fake(&f, seen, sizeof seen);
}

/* mpirun for the test below: a shell cannot catch a signal that is ignored when it starts. */
static _Atomic int requests;

static void count_request(int number)
{
    (void)number;
    requests++;
}

static int be_asked(const char *seen)
{
    char stop[128];
    signal(SIGUSR1, count_request);
    for (int i = 0; i < 30; i++) { /* longer than another request would take */
        if (i < 2) kill(getppid(), SIGTERM);
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    }
    snprintf(stop, sizeof stop, "%s/stop", getenv(wd_launch_folder_variable));
    FILE *file = fopen(seen, "w");
    if (!file) return 1;
    fprintf(file, "%d requests, %s", requests, access(stop, F_OK) ? "no file" : "a file");
    return fclose(file);
}

/* Of two SIGTERMs, as Slurm sends them, the first is handed on once, and leaves a request in the
 * folder for ranks that have not begun. */
static void ranks_are_asked_to_stop_once(void **state)
{
    (void)state;
    char seen[256];
    fake f = open_fake_self("be_asked");
    assert_int_equal(run_fake(2), 0);
    close_fake(&f, seen, sizeof seen);
    assert_string_equal(seen, "1 requests, a file");
}

static void ranks_see_that_they_are_to_stop(void **state)
{
    (void)state;
    wd_launch_folder folder;
    wd_err err = {0};
    wd_test_ok(wd__launch_folder_open(&folder, 2, &err), &err);
    unsetenv(wd_launch_folder_variable);
    assert_false(wd_launch_folder_says_stop());
    setenv(wd_launch_folder_variable, folder.path, 1);
    assert_false(wd_launch_folder_says_stop());
    wd__launch_folder_stop(&folder);
    assert_true(wd_launch_folder_says_stop());
    unsetenv(wd_launch_folder_variable);
    wd__launch_folder_close(&folder);
}

/* With so few files mpirun would wait without end. */
static void too_few_files_are_refused(void **state)
{
    (void)state;
    char seen[64];
    wd_err err = {0};
    int status;
    fake f = open_fake("ulimit -Sn >$folder/seen\n");
    const pid_t pid = fork();
    if (!pid) {
        int code = -1;
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){32, 32});
        _exit(wd_launch_run(&code, 2, 3, arguments, &err) == WD_IO &&
                      strstr(err.message, "ulimit -Hn")
                  ? 7
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
    struct rlimit before, few;
    getrlimit(RLIMIT_NOFILE, &before);
    few = (struct rlimit){32, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    assert_int_equal(run_fake(2), 0);
    setrlimit(RLIMIT_NOFILE, &before);
    close_fake(&f, seen, sizeof seen);
    assert_string_equal(seen, "80\n");
}

/* `wandistiller train 2>&1 | head -1` loses the later messages, and nothing else. */
static void nobody_need_read_what_is_said(void **state)
{
    (void)state;
    char seen[64];
    int end[2];
    fake f = open_fake("kill -TERM $PPID\nfor i in 1 2 3 4; do echo line $i >&2; done\n"
                       "echo $? >$folder/seen\nexit 7\n");
    const int errors = dup(STDERR_FILENO);
    assert_int_equal(pipe(end), 0);
    dup2(end[1], STDERR_FILENO);
    close(end[1]);
    close(end[0]);
    const int code = run_fake(2);
    dup2(errors, STDERR_FILENO);
    close(errors);
    close_fake(&f, seen, sizeof seen);
    assert_int_equal(code, 7);
    assert_string_equal(seen, "0\n");
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The launching process, mpirun and the cleanup process are killed together: the next start of
 * ranks removes their folder, and no folder of a process that lives. */
static void what_is_abandoned_goes_at_the_next_start(void **state)
{
    (void)state;
    wd_launch_folder living, next, *dead;
    wd_err err = {0};
    int status;
    dead = mmap(NULL, sizeof *dead, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(dead, MAP_FAILED);
    wd_test_ok(wd__launch_folder_open(&living, 2, &err), &err);
    const pid_t pid = fork();
    if (!pid) {
        if (wd__launch_folder_open(dead, 2, &err) != WD_OK) _exit(1);
        kill(dead->cleanup, SIGKILL);
        waitpid(dead->cleanup, NULL, 0);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(is_there(dead->path));
    wd_test_ok(wd__launch_folder_open(&next, 2, &err), &err);
    assert_false(is_there(dead->path));
    assert_true(is_there(living.path));
    wd__launch_folder_close(&living);
    assert_false(is_there(living.path));
    assert_true(is_there(next.path));
    wd__launch_folder_close(&next);
    assert_false(is_there(next.path));
    munmap(dead, sizeof *dead);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "be_asked")) return be_asked(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "list_interfaces")) return list_interfaces(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_are_known),
        cmocka_unit_test(cores_of_a_rank_are_what_slurm_has_for_it),
        cmocka_unit_test(others_are_not_taken_for_one),
        cmocka_unit_test(ranks_that_are_wanted_pass),
        cmocka_unit_test(errors_say_what_to_run),
        cmocka_unit_test(ranks_are_counted_when_they_meet),
        cmocka_unit_test(mpirun_is_run),
        cmocka_unit_test(no_ssh_is_needed),
        cmocka_unit_test(mpirun_sees_the_loopback_alone),
        cmocka_unit_test(ranks_read_no_memory_that_they_may_not),
        cmocka_unit_test(a_missing_mpirun_is_named),
        cmocka_unit_test(the_exit_code_is_known_where_children_are_ignored),
        cmocka_unit_test(ranks_are_asked_to_stop_once),
        cmocka_unit_test(ranks_see_that_they_are_to_stop),
        cmocka_unit_test(too_few_files_are_refused),
        cmocka_unit_test(nobody_need_read_what_is_said),
        cmocka_unit_test(what_is_abandoned_goes_at_the_next_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
