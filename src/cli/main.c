/* wandistiller COMMAND [options]: finds the command, runs it, and reports how it ended.
 *
 * Results are written to standard output; errors and progress to standard error. The exit code is
 * the status (WD_STATUS_MAP in wandistiller_status.h). */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/cli.h"

#ifndef WD_COMMIT
#define WD_COMMIT "" /* " (0123456789ab)" in the build of a clone: see cmake/library.cmake */
#endif

/* What threads have where nothing limits it. oneDNN, MPI and CUDA need most of what is used. */
enum { STACK_BYTES = 8 << 20 };

/* Writes to standard error with functions that a signal handler may call. */
static void say(const char *text)
{
    const ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

/* How the job takes signals. */
static enum { ENDS_AT_ONCE, ENDS_UNLESS_IT_CLEANS_UP, STOPS } manner;

/* Asks the job to stop. After that a second Ctrl-C ends the program at once. A second SIGTERM does
 * not, since Slurm sends two in a row when a job's time is over. */
static void on_signal(int number)
{
    if (manner == ENDS_UNLESS_IT_CLEANS_UP && !wd_stop_cleans_up()) {
        signal(number, SIG_DFL);
        raise(number); /* when this handler returns */
        return;
    }
    signal(SIGINT, SIG_DFL);
    if (wd_request_stop()) say("\nstopping; Ctrl-C ends at once\n");
}

/* When asked to stop, `train` writes a checkpoint, and `convert` removes its unfinished file.
 * `sample` and `eval` only remove weights that they have merged with LoRAs: the pictures that were
 * drawn are there. A job that handles signals also ignores SIGPIPE, since in
 * `train 2>&1 | tee log` Ctrl-C ends tee first. */
static void choose_manner(wd_job job)
{
    if (job == WD_JOB_TRAIN || job == WD_JOB_CONVERT) manner = STOPS;
    if (job == WD_JOB_SAMPLE || job == WD_JOB_EVAL) manner = ENDS_UNLESS_IT_CLEANS_UP;
}

/* A page of a mapped file cannot be read, and the thread cannot continue. The first thread that
 * gets here names the file, and the program ends as after any other failed read. Other threads that
 * get here meanwhile wait for that. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    char path[1024] = "a file that is mapped into memory";
    (void)context;
    if (!wd_mapped_file_at(path, sizeof path, info->si_addr) && info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL);
        raise(number); /* when this handler returns */
        return;
    }
    while (atomic_flag_test_and_set(&reported)) pause();
    say("wandistiller: ");
    say(path);
    say(": became shorter while it was in use, or its disk cannot be read: leave a model's files "
        "as they are while a job runs; replace one by renaming another to its name\n");
    _exit(WD_IO);
}

static void catch_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); /* the signal that mpirun passes on to its ranks */
    struct sigaction inherited;        /* SIGHUP: the terminal was closed; nohup ignores it */
    if (!sigaction(SIGHUP, NULL, &inherited) && inherited.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of file sizes then fails with EFBIG */
}

/* Opens /dev/null for every standard stream that was closed; otherwise the log would be written
 * into a file that is opened later. */
static void open_missing_streams(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

static int fail(const wd_err *err)
{
    if (*err->message) fprintf(stderr, "wandistiller: %s\n", err->message);
    return (int)err->status;
}

/* Flushes standard output, and reports if that fails. A reader that has read enough and is gone, as
 * in `wandistiller ... | head -1`, is no failure. */
static int finish(void)
{
    wd_err err = {.status = WD_IO};
    if (fflush(stdout) == 0 && !ferror(stdout)) return WD_OK;
    const int error = errno;
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 1 && out.revents & POLLERR) return WD_OK;
    snprintf(err.message, sizeof err.message, "standard output: cannot be written: %s",
             strerror(error));
    return fail(&err);
}

/* `wandistiller help [COMMAND]`. --man, --bash and --zsh print what the build installs: the manual
 * page and the completions. */
static int help(int argc, char **argv)
{
    wd_job job;
    wd_err err;
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "--man"))
        wd_cli_print_man(stdout);
    else if (!strcmp(what, "--bash"))
        wd_cli_print_bash(stdout);
    else if (!strcmp(what, "--zsh"))
        wd_cli_print_zsh(stdout);
    else if (!*what)
        wd_cli_print_usage(stdout);
    else if (wd_job_find(&job, what, &err) == WD_OK)
        wd_cli_print_help(stdout, job, argc > 2 && !strcmp(argv[2], "all"));
    else
        return fail(&err);
    return finish();
}

/* OpenMP's threads wait for one another by spinning for milliseconds. While another program runs on
 * one core, the threads on all other cores spin in vain (measured on two busy cores: a training
 * step took five times as long). On an idle machine a short spin is as fast. libgomp reads its
 * settings when it is loaded, so the program executes itself again with them, unless the user has
 * set how threads wait or where they are placed: this thread is already bound to a place, and would
 * stay so. */
static void limit_spinning(char **argv)
{
    static const char *const settings[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND",
                                           "OMP_PLACES", "GOMP_CPU_AFFINITY"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (getenv(settings[i])) return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv("/proc/self/exe", argv);
}

/* glibc raises its threshold for mmap when blocks are freed, and then keeps larger and larger
 * blocks on its heap instead of returning them to the system. A threshold that is set stays, so
 * freed blocks of this size are returned, and memory is as planned. */
static void keep_heap_small(void)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

/* ---- the job ---- */

typedef wd_status run_fn(int argc, char **argv, wd_err *err);

typedef struct call {
    run_fn *run;
    int argc;
    char **argv;
    wd_status status;
    wd_err err;
} call;

static void *run_call(void *context)
{
    call *c = context;
    c->status = c->run(c->argc, c->argv, &c->err);
    return NULL;
}

/* Runs the job, on a thread of its own where this one has little stack: batch systems set limits
 * such as `ulimit -s 512`, which nobody can raise again, and which other threads inherit unless
 * their stacks are given a size. */
static void run_with_stack(call *c)
{
    struct rlimit limit;
    pthread_attr_t attributes;
    pthread_t thread;
    const bool is_small = !getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur < STACK_BYTES;
    if (is_small && !pthread_attr_init(&attributes)) {
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
#ifdef __GLIBC__
        pthread_setattr_default_np(&attributes); /* also for the threads of OpenMP and of MPI */
#endif
        const bool started = !pthread_create(&thread, &attributes, run_call, c);
        pthread_attr_destroy(&attributes);
        if (started) {
            pthread_join(thread, NULL);
            return;
        }
    }
    run_call(c);
}

int main(int argc, char **argv)
{
    open_missing_streams();
    limit_spinning(argv);
    keep_heap_small();
    static run_fn *const run[] = {
#define X(JOB, job, summary) [WD_JOB_##JOB] = wd_cli_##job,
        WD_JOB_MAP(X)
#undef X
    };
    if (argc < 2) {
        wd_cli_print_usage(stderr);
        return WD_INVALID_ARGUMENT;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--version")) {
        printf("wandistiller %s%s\n%s", wd_version(), WD_COMMIT, wd_features());
        return finish();
    }
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return help(argc - 1, argv + 1);
    wd_job job;
    wd_err err = {.status = WD_INTERNAL, .message = "failed without saying why"};
    if (wd_job_find(&job, name, &err) != WD_OK) return fail(&err);
    catch_bus_errors();
    choose_manner(job);
    if (manner != ENDS_AT_ONCE) catch_signals();
    call job_call = {.run = run[job], .argc = argc - 1, .argv = argv + 1, .err = err};
    run_with_stack(&job_call);
    return job_call.status == WD_OK ? finish() : fail(&job_call.err);
}
