/* What the launcher has started, and starting ranks by mpirun: see job/launch/launch.h. */
#include "job/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"
#include "job/launch/launch_folder.h"

/* ---- the launcher ---- */

/* The number in a variable of the environment; -1: there is none. */
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

/* Refuses ranks of torchrun. The error's command has as many ranks as torchrun has started, or as
 * the user wants on each of its machines. */
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

double wd_launch_limit_s(int ranks, bool several_machines)
{
    return (several_machines ? 40 : 4) + 0.5 * ranks;
}

/* ---- the command ---- */

/* Makes the arguments of mpirun, which the program and its arguments follow. */
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

/* ---- signals ---- */

/* The signals that the launching process waits for while mpirun runs, and the actions before that,
 * which are restored. An inherited SIG_IGN of SIGCHLD would hide how mpirun ends; SIGPIPE would end
 * the job when nobody reads its messages. */
typedef struct signals {
    sigset_t awaited, before;
    struct sigaction child, pipe;
} signals;

static void take_signals(signals *s)
{
    static const int awaited[] = {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGTSTP};
    const struct sigaction usual = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
    struct sigaction hangup;
    sigemptyset(&s->awaited);
    for (size_t i = 0; i < sizeof awaited / sizeof *awaited; i++)
        sigaddset(&s->awaited, awaited[i]);
    if (!sigaction(SIGHUP, NULL, &hangup) &&
        hangup.sa_handler != SIG_IGN) /* nohup ignores SIGHUP */
        sigaddset(&s->awaited, SIGHUP);
    sigprocmask(SIG_BLOCK, &s->awaited, &s->before);
    sigaction(SIGCHLD, &usual, &s->child);
    sigaction(SIGPIPE, &ignored, &s->pipe);
}

static void give_back_signals(const signals *s)
{
    sigaction(SIGCHLD, &s->child, NULL);
    sigaction(SIGPIPE, &s->pipe, NULL);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}

/* ---- files ---- */

/* The files that mpirun or a rank has open at once, with some to spare (mpirun of Open MPI 4.1: 27,
 * and 4 for each rank; a rank: two for each other rank while they connect, and the model's). */
static rlim_t files_needed(int ranks)
{
    return 64 + 8 * (rlim_t)ranks;
}

/* If mpirun may open too few files, it starts no rank and waits without end. */
static wd_status check_files(int ranks, wd_err *err)
{
    struct rlimit is;
    if (getrlimit(RLIMIT_NOFILE, &is) || is.rlim_max >= files_needed(ranks)) return WD_OK;
    return wd_fail(err, WD_IO,
                   "a process may have %llu files open here (ulimit -Hn): expected at least %llu, "
                   "for %d ranks",
                   (unsigned long long)is.rlim_max, (unsigned long long)files_needed(ranks), ranks);
}

static void raise_files(int ranks)
{
    struct rlimit is;
    if (getrlimit(RLIMIT_NOFILE, &is) || is.rlim_cur >= files_needed(ranks)) return;
    is.rlim_cur = files_needed(ranks);
    setrlimit(RLIMIT_NOFILE, &is);
}

/* ---- a network for the ranks of one machine ----
 *
 * mpirun (Open MPI 4.1) listens on a port of every network interface, whatever it is told. In a
 * network namespace whose only interface is the loopback nobody else can reach that port. */

static bool write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return close(fd) == 0 && whole;
}

/* Makes a user namespace in which this user and group have the numbers that they have outside, and
 * a network namespace that belongs to it (user_namespaces(7)). */
static bool unshare_as_user(void)
{
    char users[64], groups[64];
    snprintf(users, sizeof users, "%u %u 1\n", geteuid(), geteuid());
    snprintf(groups, sizeof groups, "%u %u 1\n", getegid(), getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_file("/proc/self/uid_map", users) &&
           write_file("/proc/self/setgroups", "deny\n") && write_file("/proc/self/gid_map", groups);
}

/* A new namespace has the loopback, but switched off (netdevice(7)). */
static bool switch_loopback_on(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool on = ioctl(fd, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags |= IFF_UP;
    on = on && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    close(fd);
    return on;
}

static bool enter_network(void)
{
    return (unshare(CLONE_NEWNET) == 0 || unshare_as_user()) && switch_loopback_on();
}

/* Moves the calling process, which has one thread and starts mpirun next, into such a namespace.
 * It tries this in a child first, so that false means that nothing has changed: the kernel or the
 * container allows neither a network namespace nor a user namespace that may have one. Clears the
 * signal that the process gets when its parent ends (PR_SET_PDEATHSIG). */
static bool try_network(void)
{
    int status;
    const pid_t trial = fork();
    if (trial == 0) _exit(enter_network() ? 0 : 1);
    if (trial < 0 || waitpid(trial, &status, 0) != trial) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && enter_network();
}

/* ---- mpirun, the child ---- */

enum { NOT_RUN = 100, OF_SIGNAL = 128 };

/* The network interfaces that mpirun uses. A user who sets this variable has chosen them. */
static const char network_variable[] = "OMPI_MCA_oob_tcp_if_include";

/* Whether a process may read memory of another by process_vm_readv: seccomp filters of containers
 * refuse the call (EPERM) even for the process's own memory, and some kernels lack it (ENOSYS). */
static bool may_read_memory(void)
{
    char there = 1, here = 0;
    const struct iovec from = {&there, 1}, to = {&here, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 ||
           (errno != EPERM && errno != ENOSYS);
}

static void set_environment(const char *folder)
{
    setenv("OMPI_MCA_orte_execute_quiet", "1", 0);       /* the ranks report failures themselves */
    setenv("OMPI_MCA_orte_forward_job_control", "1", 0); /* SIGTSTP and SIGCONT */
    unsetenv("SLURM_JOBID"); /* all ranks run on this machine, even if Slurm has allocated */
    setenv("OMPI_MCA_plm", "isolated", 0);   /* others, and need no ssh */
    setenv(network_variable, "lo", 0);       /* no other machine connects to mpirun, */
    setenv("OMPI_MCA_btl", "self,vader", 0); /* nor to a rank, which would listen for btl tcp */
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);   /* nor to NCCL */
    if (!may_read_memory()) /* else ranks try it for each large message, and print that it fails */
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    setenv("OMPI_MCA_orte_tmpdir_base", folder, 0);
    setenv("OMPI_MCA_btl_vader_backing_directory", folder, 0);
    setenv(wd_launch_folder_variable, folder, 1);
}

/* Runs mpirun in the child. It has a process group of its own, because it would kill the ranks on
 * Ctrl-C. It ignores SIGUSR1 until it hands it on to the ranks, and after that. It gets SIGTERM
 * when its parent ends; if that has ended already there is no such signal, so it looks for itself.
 * Exits with NOT_RUN, or NOT_RUN + 1 if there is no mpirun. */
static _Noreturn void become_mpirun(const char **all, int ranks, pid_t parent,
                                    const wd_launch_folder *folder, const signals *s)
{
    setpgid(0, 0);
    if (!getenv(network_variable)) try_network();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(NOT_RUN);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    raise_files(ranks);
    set_environment(folder->path);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(folder->errors, STDERR_FILENO);
    close(folder->errors);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    execvp(all[0], (char *const *)all);
    _exit(NOT_RUN + (errno == ENOENT));
}

/* ---- this process, the parent ---- */

/* Asks the ranks to stop by SIGUSR1, which mpirun hands on to them. Ranks that have not begun find
 * the request in their folder. */
static void ask_to_stop(pid_t child, const wd_launch_folder *folder)
{
    wd_log(WD_LOG_WARNING, "stopping; Ctrl-C ends at once");
    wd__launch_folder_stop(folder);
    kill(child, SIGUSR1);
}

/* Stops the ranks on Ctrl-Z, which are in process groups of their own, and then this process, which
 * goes on when the shell continues it. */
static void pause_all(pid_t child)
{
    kill(child, SIGTSTP);
    raise(SIGSTOP);
    kill(child, SIGCONT);
}

/* Handles signals until the child has ended. Returns its status; *asked: whether the ranks were
 * asked to stop. Ctrl-C after a first request sends SIGTERM to mpirun, which kills the ranks then.
 */
static int wait_for_child(bool *asked, pid_t child, const wd_launch_folder *folder,
                          const signals *s)
{
    int status;
    pid_t ended;
    *asked = false;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        const int number = sigwaitinfo(&s->awaited, NULL);
        if (number == SIGTSTP) pause_all(child);
        if (number == SIGCHLD || number == SIGTSTP || number < 0) continue;
        if (!*asked)
            ask_to_stop(child, folder);
        else if (number == SIGINT)
            kill(child, SIGTERM);
        *asked = true;
    }
    return ended == child ? status : W_EXITCODE(NOT_RUN, 0);
}

static wd_status stopped_early(wd_err *err)
{
    return wd_fail(err, WD_INTERRUPTED, "stopped on request before all ranks had begun");
}

/* Turns the child's status into an exit code or an error. */
static wd_status judge(int *exit_code, int status, bool asked, wd_err *err)
{
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

static wd_status run_child(int *exit_code, const char **all, int ranks, const signals *s,
                           wd_err *err)
{
    wd_launch_folder folder;
    bool asked = false;
    if (wd_stop_requested()) return stopped_early(err);
    WD_TRY(wd__launch_folder_open(&folder, ranks, err));
    const pid_t parent = getpid(), child = fork();
    if (child == 0) become_mpirun(all, ranks, parent, &folder, s);
    const int status =
        child < 0 ? W_EXITCODE(NOT_RUN, 0) : wait_for_child(&asked, child, &folder, s);
    wd__launch_folder_close(&folder);
    return judge(exit_code, status, asked, err);
}

wd_status wd_launch_run(int *exit_code, int ranks, int argc, char *const *argv, wd_err *err)
{
    char self[4096], count[16];
    const char **all = NULL;
    signals s;
    snprintf(count, sizeof count, "%d", ranks);
    WD_TRY(check_files(ranks, err));
    WD_TRY(make_arguments(&all, self, sizeof self, count, argc, argv, err));
    take_signals(&s);
    const wd_status status = run_child(exit_code, all, ranks, &s, err);
    give_back_signals(&s);
    wd_free(all);
    return status;
}
