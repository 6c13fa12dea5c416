/* Makes ranks of real training jobs under mpirun fail at random times, and checks that nothing
 * hangs: after each failure all processes of the job end within 10 seconds, the exit code is not 0,
 * there is exactly one report, nothing is left in /dev/shm, and the next job continues from the
 * newest checkpoint.
 *
 * Usage: torture PROGRAM SOURCE_FOLDER [COUNT [SEED [KIND]]]
 *        build/release/torture build/release/wandistiller . 300
 *
 * SEED repeats the sequence of failures, but not their exact times within a process. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "io/file/file.h"
#include "train/output/components.h"

enum { RANKS = 3, TEXT_MAX = 1 << 18, ARGUMENTS_MAX = 256 };
static const double end_s_max = 10, start_s_max = 60;

/* Name, relative frequency, and description of each kind of failure. */
#define INJURIES(X)                                                                                \
    X(kill, 5, "SIGKILL")                                                                          \
    X(stop, 3, "SIGSTOP")                                                                          \
    X(crash, 2, "SIGSEGV")                                                                         \
    X(abort, 1, "SIGABRT")                                                                         \
    X(hang, 2, "its main thread stops, and the watch does not")                                    \
    X(starve, 2, "gets no more memory")                                                            \
    X(early, 1, "SIGSTOP while the ranks find one another")                                        \
    X(damage, 2, "finds its teacher's file damaged")                                               \
    X(option, 1, "has another option than the others")                                             \
    X(nonsense, 1, "has an option that there is not")

typedef enum injury {
#define X(name, weight, text) INJURY_##name,
    INJURIES(X)
#undef X
        INJURY_COUNT
} injury;

static const struct {
    const char *name, *text;
    int weight;
} known[] = {
#define X(name_, weight_, text_) {#name_, text_, weight_},
    INJURIES(X)
#undef X
};

typedef struct torture {
    const char *program, *source;
    char folder[64], mark[64]; /* mark: in the environment of every process of a job */
    uint64_t random;
    const char *injury; /* the current one, with its rank */
    int ill;
    int jobs;
    pid_t mpirun, rank[RANKS];
    pid_t hung; /* traced; 0: none */
    int code;   /* exit code of mpirun; -1: it runs */
    uint32_t job_number[2];
    double slowest_s;
    char text[TEXT_MAX];
} torture;

/* Ends all processes of the job, then this one. mpirun gives every rank a process group of its own.
 */
static _Noreturn void die(const torture *t, const char *what)
{
    const bool runs = t->mpirun > 0 && t->code < 0;
    if (runs) kill(-t->mpirun, SIGKILL);
    for (int r = 0; runs && r < RANKS; r++)
        if (t->rank[r]) kill(t->rank[r], SIGKILL);
    fprintf(stderr, "torture: %s: rank %d: %s; what the job said: %s/errors\n", t->injury, t->ill,
            what, t->folder);
    exit(1);
}

static uint64_t draw(torture *t, uint64_t below)
{
    uint64_t z = t->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

static void nap(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static const char *path_in(const char *folder, const char *name)
{
    static char path[16][WD_PATH_MAX]; /* the last 16 paths stay valid */
    static int next;
    char made[WD_PATH_MAX];
    snprintf(made, sizeof made, "%s/%s", folder, name);
    return strcpy(path[next++ % 16], made);
}

/* Reads a file, cut to the size of `out`. */
static size_t read_some(char *out, size_t bytes, const char *path)
{
    size_t n = 0;
    ssize_t some;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n + 1 < bytes && (some = read(fd, out + n, bytes - 1 - n)) > 0)
        n += (size_t)some;
    if (fd >= 0) close(fd);
    out[n] = 0;
    return n;
}

/* ---- files of the jobs ---- */

/* Options of all ranks; their folders are in the folder of this file. Dtypes are among them, for
 * the default is another one on simulated GPUs: jobs that begin on different devices would train
 * different students. */
static const char options_json[] =
    "{\"teacher_path\": \"teacher\", \"data_path\": \"prompts.txt\", "
    "\"student_config\": \"student.json\", \"output_dir\": \"run\", "
    "\"height\": 32, \"width\": 32, \"batch_size\": 1, \"trajectories\": 6, "
    "\"trajectory_steps\": 4, \"lr\": 1e-4, \"lr_schedule\": \"constant\", "
    "\"num_steps\": 10000000, \"checkpoint_interval\": 3, \"resume\": \"auto\", "
    "\"num_threads\": 1, \"teacher_dtype\": \"float32\", \"mixed_precision\": \"no\"}";

static void write_text(const torture *t, const char *name, const char *text)
{
    if (wd_file_write(path_in(t->folder, name), text, strlen(text), NULL) != WD_OK)
        die(t, "the folder cannot be written");
}

/* Makes a folder with links to all entries of another. */
static void link_all(const torture *t, const char *to, const char *from)
{
    DIR *d = opendir(from);
    struct dirent *e;
    if (!d || wd_folder_make(to, NULL) != WD_OK) die(t, "the teacher cannot be linked");
    while ((e = readdir(d)))
        if (*e->d_name != '.' && symlink(path_in(from, e->d_name), path_in(to, e->d_name)))
            die(t, "the teacher cannot be linked");
    closedir(d);
}

/* Copies the files that a student takes from its teacher, since links to other folders are refused.
 */
static void copy_kept(const torture *t, const char *to, const char *from)
{
    static const char *const kept[] = {"vae", "text_encoder", "tokenizer"};
    wd_pipeline teacher;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) unlink(path_in(to, kept[i]));
    if (wd_pipeline_open(&teacher, from, NULL) != WD_OK ||
        wd_components_take(to, &teacher, WD_EXPORT_COPY, NULL) != WD_OK)
        die(t, "the teacher cannot be copied");
}

/* Makes a teacher with half a file of weights, in a folder of the same name. */
static void make_teachers(const torture *t)
{
    static const char weights[] = "diffusion_pytorch_model.safetensors";
    char models[PATH_MAX], damaged[WD_PATH_MAX], part[WD_PATH_MAX], *data;
    size_t bytes;
    snprintf(damaged, sizeof damaged, "%s/damaged/teacher", t->folder);
    snprintf(part, sizeof part, "%s/transformer", damaged);
    if (!realpath(path_in(t->source, "models/wan-tiny"), models)) die(t, "there is no wan-tiny");
    wd_folder_make(path_in(t->folder, "sound"), NULL);
    wd_folder_make(path_in(t->folder, "damaged"), NULL);
    if (symlink(models, path_in(t->folder, "sound/teacher"))) die(t, "no link to the teacher");
    link_all(t, damaged, models);
    copy_kept(t, damaged, models);
    unlink(part);
    link_all(t, part, path_in(models, "transformer"));
    if (wd_file_read(&data, &bytes, path_in(part, weights), (size_t)1 << 30, NULL) != WD_OK)
        die(t, "the teacher cannot be read");
    unlink(path_in(part, weights));
    if (wd_file_write(path_in(part, weights), data, bytes / 2, NULL) != WD_OK)
        die(t, "the teacher cannot be damaged");
    wd_free(data);
}

static void prepare(torture *t)
{
    strcpy(t->folder, "/tmp/wandistiller-torture-XXXXXX");
    if (!mkdtemp(t->folder)) die(t, "no temporary folder");
    write_text(t, "prompts.txt", "red apple\npenguin, white background\nfox\n");
    write_text(t, "student.json", "{\"depth\": 1}");
    write_text(t, "options.json", options_json);
    make_teachers(t);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

/* ---- a job ---- */

/* Options that place teacher and student. */
static const char *const places[][5] = {
    {NULL},
    {"--teacher_device_strategy", "disk", NULL},
    {"--devices", "sim:3x512MiB", NULL},
    {"--devices", "sim:3x512MiB", "--teacher_device_strategy", "balanced", NULL},
    {"--devices", "sim:3x512MiB", "--teacher_device_strategy", "gpu0", NULL},
    {"--devices", "sim:3x512MiB", "--teacher_device_strategy", "offload", NULL},
};

typedef struct command {
    char *argv[ARGUMENTS_MAX];
    int arguments;
} command;

/* Appends `words`, which end with NULL, to the command; NULL: none. They are borrowed. */
static void add(const torture *t, command *c, const char *const *words)
{
    for (; words && *words; words++) {
        if (c->arguments + 1 == ARGUMENTS_MAX) die(t, "too many arguments");
        c->argv[c->arguments++] = (char *)*words;
    }
}

#define ADD(...) add(t, c, (const char *const[]){__VA_ARGS__, NULL})

/* Makes the command of a job. `ill`: the rank that has the failure from its start; -1: none. */
static void make_command(torture *t, command *c, injury what, int ill, const char *const *more)
{
    const char *const *place = places[draw(t, sizeof places / sizeof *places)];
    const char *sound = path_in(t->folder, "sound"), *damaged = path_in(t->folder, "damaged");
    const char *options = path_in(t->folder, "options.json");
    ADD("mpirun", "--oversubscribe", "--bind-to", "none");
    for (int r = 0; r < RANKS; r++) {
        const bool is_ill = r == ill;
        if (r) ADD(":");
        ADD("-n", "1", "-wdir", is_ill && what == INJURY_damage ? damaged : sound);
        ADD(t->program, "train", "--distributed", "--config", options, "--log_level", "info");
        add(t, c, place);
        add(t, c, more);
        if (what == INJURY_hang) /* a checkpoint may take longer */
            ADD("--step_timeout", "2", "--checkpoint_interval", "0");
        if (is_ill && what == INJURY_option) ADD("--guidance_scale", "2.5");
        if (is_ill && what == INJURY_nonsense) ADD("--no_such_option");
    }
}

static void start(torture *t, injury what, int ill, const char *const *more)
{
    command c = {0};
    make_command(t, &c, what, ill, more);
    snprintf(t->mark, sizeof t->mark, "%d.%d", (int)getpid(), ++t->jobs);
    setenv("WD_TORTURE", t->mark, 1);
    memset(t->rank, 0, sizeof t->rank);
    t->code = -1;
    t->mpirun = fork();
    if (t->mpirun < 0) die(t, "no process");
    if (t->mpirun) return;
    setsid();
    const int in = open("/dev/null", O_RDONLY);
    const int out =
        open(path_in(t->folder, "errors"), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    execvp(c.argv[0], c.argv);
    _exit(127);
}

/* The value of a variable in a process's environment, or NULL. */
static const char *variable(const char *environment, size_t bytes, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = environment; p < environment + bytes; p += strlen(p) + 1)
        if (!strncmp(p, name, n) && p[n] == '=') return p + n + 1;
    return NULL;
}

/* Whether one of the process's threads has this name, such as "wd-watch". */
static bool has_thread(pid_t pid, const char *wanted)
{
    char folder[64], comm[64];
    bool found = false;
    struct dirent *e;
    snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    DIR *d = opendir(folder);
    while (d && !found && (e = readdir(d))) {
        snprintf(comm, sizeof comm, "%.20s/comm", e->d_name);
        char name[32];
        read_some(name, sizeof name, path_in(folder, comm));
        found = !strncmp(name, wanted, strlen(wanted));
    }
    if (d) closedir(d);
    return found;
}

/* Whether mpirun has started the process, and not one of the ranks. */
static bool is_mpiruns(const torture *t, pid_t pid)
{
    char path[64], text[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    read_some(text, sizeof text, path);
    const char *end = strrchr(text, ')');
    return end && sscanf(end, ") %*c %d", &parent) == 1 && parent == t->mpirun;
}

/* Finds all processes of the job; returns their number. Zombies have no environment. */
static int look(torture *t)
{
    static char environment[1 << 16];
    struct dirent *e;
    int status, count = 0;
    if (t->hung && waitpid(t->hung, &status, WNOHANG | __WALL) == t->hung &&
        (WIFEXITED(status) || WIFSIGNALED(status)))
        t->hung = 0;
    if (t->code < 0 && waitpid(t->mpirun, &status, WNOHANG) == t->mpirun)
        t->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    DIR *d = opendir("/proc");
    while (d && (e = readdir(d))) {
        const int pid = atoi(e->d_name);
        char path[64], exe[WD_PATH_MAX];
        if (pid <= 0 || pid == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        const size_t bytes = read_some(environment, sizeof environment, path);
        const char *mark = variable(environment, bytes, "WD_TORTURE");
        if (!mark || strcmp(mark, t->mark)) continue;
        count++;
        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        const ssize_t n = readlink(path, exe, sizeof exe - 1);
        exe[n > 0 ? n : 0] = 0;
        const char *rank = variable(environment, bytes, "OMPI_COMM_WORLD_RANK");
        const char *job = variable(environment, bytes, "PMIX_NAMESPACE");
        if (!rank || strcmp(exe, t->program) || atoi(rank) >= RANKS || !is_mpiruns(t, pid))
            continue;
        t->rank[atoi(rank)] = pid;
        if (job) t->job_number[0] = (uint32_t)strtoul(job, NULL, 10);
    }
    if (d) closedir(d);
    return count;
}

static bool all_watched(torture *t)
{
    look(t);
    for (int r = 0; r < RANKS; r++)
        if (!t->rank[r] || !has_thread(t->rank[r], "wd-watch") || !has_thread(t->rank[r], "wd-mpi"))
            return false;
    return true;
}

static void wait_until_watched(torture *t)
{
    const double begun = wd_clock_s();
    while (!all_watched(t)) {
        if (t->code >= 0) die(t, "the job ended before it was injured");
        if (wd_clock_s() - begun > start_s_max) die(t, "the job does not start");
        nap(10);
    }
}

/* ---- injuries ---- */

static void limit(pid_t pid, int resource, rlim_t bytes)
{
    struct rlimit is;
    if (prlimit(pid, resource, NULL, &is)) return;
    is.rlim_cur = bytes;
    prlimit(pid, resource, &is, NULL);
}

static rlim_t address_space(pid_t pid)
{
    char path[64], text[128];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    read_some(text, sizeof text, path);
    return (rlim_t)strtoull(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Stops the main thread alone, as a kernel or a network that hangs would. */
static void hang(torture *t, pid_t pid)
{
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL))
        die(t, "a thread cannot be stopped: ptrace is not allowed");
    t->hung = pid;
}

static void injure(torture *t, injury what, int rank)
{
    const pid_t pid = t->rank[rank];
    switch (what) {
    case INJURY_kill:
        kill(pid, SIGKILL);
        break;
    case INJURY_stop:
        kill(pid, SIGSTOP);
        break;
    case INJURY_crash:
        kill(pid, SIGSEGV);
        break;
    case INJURY_abort:
        kill(pid, SIGABRT);
        break;
    case INJURY_hang:
        hang(t, pid);
        break;
    default: /* INJURY_starve */
        limit(pid, RLIMIT_AS, address_space(pid) + draw(t, 32 << 20));
    }
}

/* ---- checks after a failure ---- */

static int count_lines(const char *text, const char *begin, const char *inside)
{
    int n = 0;
    const size_t bytes = strlen(begin);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        const char *end = strchr(line, '\n'), *found = strstr(line, inside);
        n += !strncmp(line, begin, bytes) && found && (!end || found < end);
        if (!end) break;
    }
    return n;
}

/* Whether a segment is left; Open MPI names them after the job. */
static bool left_in_shm(const torture *t)
{
    char number[32];
    bool found = false;
    struct dirent *e;
    snprintf(number, sizeof number, ".%" PRIx32 ".", t->job_number[0]);
    DIR *d = opendir("/dev/shm");
    while (d && (e = readdir(d))) found |= strstr(e->d_name, number) != NULL;
    if (d) closedir(d);
    return found;
}

/* Waits until no process of the job is left. */
static void wait_for_end(torture *t)
{
    const double begun = wd_clock_s();
    while (look(t) || t->code < 0) {
        if (wd_clock_s() - begun > 2 * end_s_max) die(t, "processes are left after 20 s");
        nap(10);
    }
}

/* The step of the newest checkpoint of all jobs so far; -1: there is none. */
static long newest_checkpoint(const torture *t)
{
    long newest = -1, step;
    struct dirent *e;
    DIR *d = opendir(path_in(t->folder, "run/checkpoints"));
    while (d && (e = readdir(d)))
        if (sscanf(e->d_name, "step-%ld", &step) == 1 && step > newest) newest = step;
    if (d) closedir(d);
    return newest;
}

static bool has_checkpoint(const torture *t)
{
    return newest_checkpoint(t) >= 0;
}

static void see_resumed(torture *t, bool had_checkpoint)
{
    if (had_checkpoint && !count_lines(t->text, "", "going on from"))
        die(t, "the job did not go on from the newest checkpoint");
}

/* Waits until this job has done a step. */
static void wait_for_steps(torture *t, bool had_checkpoint)
{
    struct stat before = {0}, now = {0};
    const char *metrics = path_in(t->folder, "run/metrics.jsonl");
    const double begun = wd_clock_s();
    stat(metrics, &before);
    do {
        nap(20);
        look(t);
        if (t->code >= 0) die(t, "the job ended before it was injured");
        if (wd_clock_s() - begun > start_s_max) die(t, "the job makes no steps");
        stat(metrics, &now);
    } while (now.st_size <= before.st_size);
    read_some(t->text, sizeof t->text, path_in(t->folder, "errors"));
    see_resumed(t, had_checkpoint);
}

/* Whether a job makes steps nevertheless: a rank whose memory is limited after training began
 * allocates no more. False: the job has ended. */
static bool goes_on(torture *t)
{
    struct stat before = {0}, now = {0};
    const char *metrics = path_in(t->folder, "run/metrics.jsonl");
    const double begun = wd_clock_s();
    stat(metrics, &before);
    do {
        if (wd_clock_s() - begun > start_s_max) die(t, "the job neither ends nor goes on");
        nap(20);
        look(t);
        stat(metrics, &now);
    } while (t->code < 0 && now.st_size <= before.st_size);
    return t->code < 0;
}

static void judge(torture *t, injury what, int rank, double took_s)
{
    char found[160];
    read_some(t->text, sizeof t->text, path_in(t->folder, "errors"));
    const int reports = count_lines(t->text, "wandistiller: [Rank ", ", host ");
    snprintf(found, sizeof found, "[Rank %d, host ", rank);
    if (took_s > t->slowest_s) t->slowest_s = took_s;
    if (took_s > end_s_max) die(t, "the end took more than 10 s");
    if (t->code == 0) die(t, "the exit code is 0");
    if (reports != 1) die(t, "there is not exactly one report");
    const bool may_be_any = what == INJURY_early || what == INJURY_option;
    if (!may_be_any && !count_lines(t->text, "", found))
        die(t, "the report is not of the injured rank");
    if (left_in_shm(t)) die(t, "something is left in /dev/shm");
    printf("%-9s rank %d  %5.2f s  exit code %d\n", known[what].name, rank, took_s, t->code);
    fflush(stdout);
}

/* Whether the failure exists from the start of the rank. */
static bool is_born(injury what)
{
    return what == INJURY_damage || what == INJURY_option || what == INJURY_nonsense;
}

static void torture_once(torture *t, injury what)
{
    const int rank = (int)draw(t, RANKS);
    const bool had_checkpoint = has_checkpoint(t);
    t->injury = known[what].name;
    t->ill = rank;
    start(t, what, rank, NULL);
    double begun = wd_clock_s();
    if (what == INJURY_early) {
        nap((int)draw(t, 700));
        while (look(t), !t->rank[rank]) nap(5);
        kill(t->rank[rank], SIGSTOP);
        begun = wd_clock_s();
    } else if (!is_born(what)) {
        wait_until_watched(t);
        const int moment = (int)draw(t, 2);
        if (what != INJURY_starve && (moment || what == INJURY_hang)) {
            wait_for_steps(t, had_checkpoint);
            nap((int)draw(t, 1000));
        } else if (what != INJURY_starve) {
            nap((int)draw(t, 300));
        }
        look(t);
        injure(t, what, t->ill);
        begun = wd_clock_s();
        if (what == INJURY_starve && goes_on(t)) {
            kill(t->rank[rank], SIGKILL);
            begun = wd_clock_s();
        }
    }
    wait_for_end(t);
    judge(t, what, t->ill, wd_clock_s() - begun);
}

/* A job without a failure continues from the last checkpoint, and ends normally. */
static void end_in_order(torture *t)
{
    const char *const more[] = {"--max_minutes", "0.0001", NULL};
    const bool had_checkpoint = has_checkpoint(t);
    t->injury = "none";
    t->ill = -1;
    start(t, INJURY_kill, -1, more);
    wait_for_end(t);
    read_some(t->text, sizeof t->text, path_in(t->folder, "errors"));
    see_resumed(t, had_checkpoint);
    if (t->code) die(t, "the last job failed");
}

/* All jobs together have the result of one job without failures: weights, moments, EMA,
 * trajectories and targets are the same. */
static void see_same_student(torture *t)
{
    static const char *const runs[] = {"run", "alone"};
    char steps[32], file[64], hash[2][33];
    const char *const more[] = {"--output_dir", "../alone", "--stop_at_step", steps, NULL};
    const long step = newest_checkpoint(t);
    snprintf(steps, sizeof steps, "%ld", step);
    start(t, INJURY_kill, -1, more);
    while (look(t) || t->code < 0) nap(10);
    read_some(t->text, sizeof t->text, path_in(t->folder, "errors"));
    if (t->code) die(t, "the job that nobody injures failed");
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/checkpoints/step-%08ld/state.safetensors", runs[i], step);
        if (wd_file_hash(hash[i], path_in(t->folder, file), NULL) != WD_OK)
            die(t, "a last checkpoint cannot be read");
    }
    if (strcmp(hash[0], hash[1])) die(t, "injured jobs have trained another student");
    printf("after %ld steps the student is that of a job that nobody injures\n", step);
}

int main(int argc, char **argv)
{
    static torture t;
    char program[PATH_MAX];
    int weights = 0, only = -1;
    if (argc < 3 || !realpath(argv[1], program)) {
        fprintf(stderr, "usage: torture PROGRAM SOURCE_FOLDER [COUNT [SEED [KIND]]]\n");
        return 2;
    }
    t.program = program;
    t.source = argv[2];
    const int count = argc > 3 ? atoi(argv[3]) : 20;
    const uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : (uint64_t)time(NULL);
    for (int i = 0; i < INJURY_COUNT; i++) {
        weights += known[i].weight;
        if (argc > 5 && !strcmp(argv[5], known[i].name)) only = i;
    }
    printf("%d injuries, seed %" PRIu64 "\n", count, seed);
    t.random = seed;
    t.injury = "before any";
    prepare(&t);
    for (int i = 0; i < count; i++) {
        int what = 0, at = (int)draw(&t, (uint64_t)weights);
        while (at >= known[what].weight) at -= known[what++].weight;
        torture_once(&t, only < 0 ? (injury)what : (injury)only);
    }
    end_in_order(&t);
    see_same_student(&t);
    wd_folder_remove(t.folder, NULL);
    printf("%d injuries, the slowest end took %.2f s\n", count, t.slowest_s);
    return 0;
}
