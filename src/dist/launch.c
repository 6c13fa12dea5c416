/* See dist/launch.h. */
#include "dist/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"

/* A number that the environment has; -1: none. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text) return -1;
    char *end;
    const long n = strtol(text, &end, 10);
    return *end || n < 0 || n > 1000000 ? -1 : (int)n;
}

static bool is_set(const char *name)
{
    return number_of(name) >= 0;
}

wd_launch wd_launch_detect(void)
{
    if (is_set("OMPI_COMM_WORLD_SIZE"))
        return (wd_launch){WD_LAUNCHER_MPIRUN, "mpirun", number_of("OMPI_COMM_WORLD_RANK"),
                           number_of("OMPI_COMM_WORLD_SIZE"),
                           number_of("OMPI_COMM_WORLD_LOCAL_SIZE")};
    /* A batch script has a rank, but no step. One task without PMIx is nobody's rank, but what
     * `srun --pty` runs. PMI_RANK, of Slurm's pmi2, says nothing: few Open MPI know it. */
    const int tasks = is_set("SLURM_STEP_ID") ? number_of("SLURM_STEP_NUM_TASKS") : -1;
    if (tasks > 0 && is_set("PMIX_RANK"))
        return (wd_launch){WD_LAUNCHER_SRUN, "srun", number_of("SLURM_PROCID"), tasks, 0};
    if (tasks > 1)
        return (wd_launch){WD_LAUNCHER_BARE, "srun", number_of("SLURM_PROCID"), tasks, 0};
    if (number_of("PMI_SIZE") > 1)
        return (wd_launch){WD_LAUNCHER_BARE, "the mpirun of another MPI", number_of("PMI_RANK"),
                           number_of("PMI_SIZE"), 0};
    if (is_set("RANK") && is_set("WORLD_SIZE") && is_set("LOCAL_RANK") &&
        (getenv("MASTER_ADDR") || getenv("TORCHELASTIC_RUN_ID")))
        return (wd_launch){WD_LAUNCHER_TORCHRUN, "torchrun", number_of("RANK"),
                           number_of("WORLD_SIZE"), number_of("LOCAL_WORLD_SIZE")};
    return (wd_launch){.launcher = WD_LAUNCHER_NONE, .name = "nobody", .ranks = 1};
}

int wd_launch_cores(int host_ranks)
{
    const int each = number_of("SLURM_CPUS_PER_TASK"), all = number_of("SLURM_CPUS_ON_NODE");
    if (each > 0 && wd_launch_detect().launcher == WD_LAUNCHER_SRUN) return each;
    if (all <= 0) return 0;
    return all > host_ranks ? all / host_ranks : 1;
}

/* As many ranks as torchrun has started, or as were asked for, on each of its machines. */
static wd_status refuse_torchrun(const wd_launch *l, int asked, const char *command, wd_err *err)
{
    const int here = l->host_ranks > 0 ? l->host_ranks : l->ranks;
    const int each = asked ? asked : here;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "torchrun has started this as rank %d of %d, but this is a program of its own, "
                   "whose ranks MPI starts. Run instead:\n  mpirun -n %d --bind-to none %s "
                   "--distributed\nor, on one machine:\n  %s --nproc_per_node %d",
                   l->rank, l->ranks, l->ranks / here * each, command, command, each);
}

static wd_status refuse_bare(const wd_launch *l, const char *command, wd_err *err)
{
    if (!strcmp(l->name, "srun"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "srun has started %d of this program, but without what MPI finds the others "
                       "by. Run instead:\n  srun --mpi=pmix -n %d %s --distributed\n(`srun "
                       "--mpi=list` says what there is), or, within the allocation:\n  mpirun "
                       "--bind-to none %s --distributed",
                       l->ranks, l->ranks, command, command);
    return wd_fail(
        err, WD_UNSUPPORTED,
        "%s has started %d of this program, which is built with Open MPI: use its mpirun "
        "(`mpirun --version` says whose it is):\n  mpirun -n %d --bind-to none %s "
        "--distributed",
        l->name, l->ranks, l->ranks, command);
}

static wd_status refuse_alone(const wd_launch *l, const char *command, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s has started %d of this program, and each would train a student of its own, "
                   "into the same folder. To train one together:\n  %s -n %d %s --distributed",
                   l->name, l->ranks, l->launcher == WD_LAUNCHER_SRUN ? "srun --mpi=pmix" : l->name,
                   l->ranks, command);
}

static wd_status refuse_nobody(const char *command, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--distributed: nobody has started ranks. Run one of:\n"
                   "  mpirun -n 2 --bind-to none %s --distributed\n  srun --mpi=pmix -n 2 %s "
                   "--distributed\n  %s --nproc_per_node 2",
                   command, command, command);
}

wd_status wd_launch_check(const wd_launch *l, bool wanted, int host_ranks, const char *command,
                          wd_err *err)
{
    if (l->launcher == WD_LAUNCHER_NONE) return wanted ? refuse_nobody(command, err) : WD_OK;
    if (l->launcher == WD_LAUNCHER_TORCHRUN && (wanted || l->ranks > 1))
        return refuse_torchrun(l, host_ranks, command, err);
    if (l->ranks > 1 && l->launcher == WD_LAUNCHER_BARE) return refuse_bare(l, command, err);
    if (l->ranks > 1 && !wanted) return refuse_alone(l, command, err);
    if (wanted && l->host_ranks > 0) return wd_launch_check_host(l, host_ranks, l->host_ranks, err);
    return WD_OK;
}

wd_status wd_launch_check_host(const wd_launch *l, int expected, int found, wd_err *err)
{
    if (!expected || found == expected) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--nproc_per_node, --multi_gpu: expected %d ranks on this machine, found %d, "
                   "which %s has started; say --distributed instead",
                   expected, found, l->name);
}

const double wd_launch_hosts_s = 120;

double wd_launch_host_s(int host_ranks)
{
    return 5 + 0.5 * host_ranks;
}

/* ---- mpirun as a child ---- */

/* mpirun's arguments, ours behind them. */
static wd_status make_arguments(const char ***out, char *self, size_t self_bytes, const char *count,
                                int argc, char *const *argv, wd_err *err)
{
    enum { OWN = 9 };
    const char **all;
    int n = 0;
    const ssize_t length = readlink("/proc/self/exe", self, self_bytes - 1);
    if (length < 0)
        return wd_fail(err, WD_IO, "/proc/self/exe: cannot be read: %s", strerror(errno));
    self[length] = 0;
    WD_TRY(wd_alloc((void **)&all, (size_t)argc + OWN, sizeof *all, "arguments", err));
    all[n++] = "mpirun";
    all[n++] = "-n";
    all[n++] = count;
    all[n++] = "--oversubscribe";
    all[n++] = "--bind-to";
    all[n++] = "none";
    if (geteuid() == 0) all[n++] = "--allow-run-as-root";
    all[n++] = self;
    memcpy(all + n, argv, (size_t)argc * sizeof *all);
    *out = all;
    return WD_OK;
}

static bool has_room(const char *folder, int64_t bytes)
{
    struct statvfs s;
    return statvfs(folder, &s) == 0 && (double)s.f_bavail * (double)s.f_frsize >= (double)bytes;
}

/* Where mpirun and ranks put what they share. mpirun removes it at its end, but nobody does where
 * mpirun itself is killed, so it is a folder of our own. Where mpirun finds too little room it
 * waits for ever (Open MPI 4.1 needs 8 MiB, and 4 for each rank). */
static wd_status open_folder(char out[32], int ranks, wd_err *err)
{
    static const char *const places[] = {"/dev/shm", "/tmp"};
    const int64_t mib = 16 + 8 * (int64_t)ranks;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(out, 32, "%s/wandistiller-XXXXXX", places[i]);
        if (has_room(places[i], mib << 20) && mkdtemp(out)) return WD_OK;
    }
    return wd_fail(err, WD_IO,
                   "neither /dev/shm nor /tmp can be written and has %lld MiB free, for what %d "
                   "ranks share",
                   (long long)mib, ranks);
}

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *at)
{
    (void)is, (void)kind, (void)at;
    remove(path); /* what cannot be removed stays */
    return 0;
}

static void remove_folder(const char *folder)
{
    enum { FOLDERS_OPEN_MAX = 16 };
    nftw(folder, remove_one, FOLDERS_OPEN_MAX, FTW_DEPTH | FTW_PHYS);
}

/* Who removes it: a process that waits until we and mpirun have ended, which have the other end of
 * its pipe, so that either may be killed, or both. Neither Ctrl-C nor a SIGTERM reaches it, and it
 * keeps none of our files open. */
typedef struct keeper {
    pid_t pid;
    int pipe; /* our end */
} keeper;

static void be_keeper(const char *folder, int end)
{
    char nothing;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0);
    dup2(end, 0);
    closefrom(1);
    if (read(0, &nothing, 1) == 0) remove_folder(folder); /* its end: nobody writes */
    _exit(0);
}

static void open_keeper(keeper *k, const char *folder)
{
    int end[2];
    *k = (keeper){.pid = -1, .pipe = -1};
    if (pipe(end)) return;
    k->pipe = end[1];
    k->pid = fork();
    if (k->pid == 0) {
        close(end[1]);
        be_keeper(folder, end[0]);
    }
    close(end[0]);
}

/* Returns when the folder is gone. */
static void close_keeper(const keeper *k, const char *folder)
{
    if (k->pipe >= 0) close(k->pipe);
    if (k->pid > 0)
        waitpid(k->pid, NULL, 0);
    else
        remove_folder(folder);
}

/* In the child, with `mask` as it was. A process group of its own keeps Ctrl-C from it, of which it
 * would kill the ranks; SIGUSR1 would end it while it does not hand it on yet, and when it does no
 * more. Exits with NOT_RUN + errno where there is no mpirun. */
enum { NOT_RUN = 100, OF_SIGNAL = 128 };
static void become_mpirun(const char **all, const char *folder, const sigset_t *mask)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGUSR1, SIG_IGN);
    setenv("OMPI_MCA_orte_execute_quiet", "1", 0); /* which rank failed the ranks say themselves */
    unsetenv("SLURM_JOBID"); /* all on this machine, whatever others Slurm has allocated */
    setenv("OMPI_MCA_orte_tmpdir_base", folder, 0);
    setenv("OMPI_MCA_btl_vader_backing_directory", folder, 0);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(all[0], (char *const *)all);
    _exit(NOT_RUN + (errno == ENOENT));
}

/* Until it ends: its status, and whether it was asked to. mpirun hands SIGUSR1 on to the ranks and
 * goes on; of SIGTERM it kills them, which is what Ctrl-C after a first request is for. It is asked
 * again and again, for what comes before it has ranks is lost, and so is what comes before those
 * look. */
static int tend(bool *asked, pid_t child, const sigset_t *awaited)
{
    static const struct timespec second = {.tv_sec = 1};
    int status;
    *asked = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
        const int number = sigtimedwait(awaited, NULL, &second);
        if (number == SIGCHLD || (number < 0 && !*asked)) continue;
        if (!*asked) wd_log(WD_LOG_WARNING, "stopping; Ctrl-C ends at once");
        kill(child, *asked && number == SIGINT ? SIGTERM : SIGUSR1);
        *asked = true;
    }
    return status;
}

static wd_status stopped_early(wd_err *err)
{
    return wd_fail(err, WD_INTERRUPTED, "stopped on request before all ranks had begun");
}

static wd_status run_child(int *exit_code, const char **all, int ranks, wd_err *err)
{
    sigset_t awaited, before;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGUSR1);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    bool asked = false;
    char folder[32];
    keeper k;
    const wd_status begun =
        wd_stop_requested() ? stopped_early(err) : open_folder(folder, ranks, err);
    if (begun != WD_OK) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        return begun;
    }
    open_keeper(&k, folder);
    const pid_t child = fork();
    if (child == 0) become_mpirun(all, folder, &before);
    const int status = child < 0 ? W_EXITCODE(NOT_RUN, 0) : tend(&asked, child, &awaited);
    close_keeper(&k, folder);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (WIFSIGNALED(status))
        return wd_fail(
            err, WD_RANK_LOST,
            "mpirun, which had started the ranks, was ended by signal %d (%s), and they end "
            "with it. The last checkpoint is whole: --resume auto goes on from it",
            WTERMSIG(status), strsignal(WTERMSIG(status)));
    const int code = WEXITSTATUS(status);
    if (asked && code == OF_SIGNAL + SIGUSR1) return stopped_early(err);
    if (code == NOT_RUN) return wd_fail(err, WD_IO, "mpirun: cannot be run");
    if (code == NOT_RUN + 1)
        return wd_fail(err, WD_NOT_FOUND,
                       "mpirun is not there, which starts ranks: install it (Debian: apt-get "
                       "install openmpi-bin), or put its folder into PATH");
    *exit_code = code;
    return WD_OK;
}

wd_status wd_launch_run(int *exit_code, int ranks, int argc, char *const *argv, wd_err *err)
{
    char self[4096], count[16];
    const char **all = NULL;
    snprintf(count, sizeof count, "%d", ranks);
    WD_TRY(make_arguments(&all, self, sizeof self, count, argc, argv, err));
    const wd_status status = run_child(exit_code, all, ranks, err);
    wd_free(all);
    return status;
}
