/* The ranks of a host share the teacher's host memory, as a user runs them: what four of them have
 * of it, seen from outside, is one copy; a rank has what was planned; and what ends them all at
 * once leaves nothing behind. */
#include "program.h"

#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>
#include <time.h>

#include "bench/random_transformer.h"
#include "sanitized.h"
#include "teacher_copy.h"

enum { RANKS = 4, LOOK_NS = 20 * 1000 * 1000, STOP_NS = 5 * 1000 * 1000, PLANNED_PERCENT = 3 };

static wd_program program;

/* Two experts of 58 MB each in float32, in the place of a tiny pipeline's. */
static int prepare(void **state)
{
    (void)state;
    static const wd_dit_config config = {.in_channels = 16,
                                         .out_channels = 16,
                                         .heads = 4,
                                         .head_dim = 128,
                                         .ffn_dim = 2048,
                                         .layers = 3,
                                         .freq_dim = 64,
                                         .text_dim = 96,
                                         .patch = {1, 2, 2},
                                         .rope_max_seq_len = 1024,
                                         .cross_attn_norm = true,
                                         .eps = 1e-6};
    static const char student[] = "{\"depth\": 1}", prompts[] = "red apple\nfox\n";
    char copy[WD_PATH_MAX];
    wd_err err;
    wd_test_copy_teacher(copy, "teacher");
    wd_test_ok(
        wd_bench_write_transformer(wd_test_path("teacher/transformer"), &config, WD_BF16, &err),
        &err);
    wd_test_ok(
        wd_bench_write_transformer(wd_test_path("teacher/transformer_2"), &config, WD_BF16, &err),
        &err);
    wd_test_ok(wd_file_write(wd_test_path("prompts.txt"), prompts, sizeof prompts - 1, &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("student.json"), student, sizeof student - 1, &err),
               &err);
    return 0;
}

#define START(ranks, ...)                                                                          \
    wd_program_start_as(                                                                           \
        "mpirun", MPIRUN(ranks, "train", "--distributed", "--num_threads", "1", __VA_ARGS__))

/* Four ranks whose teacher is kept in `dtype`. */
static pid_t start(const char *dtype, const char *steps)
{
    return START("4", "--teacher_path", wd_test_path("teacher"), "--teacher_device_strategy", "cpu",
                 "--teacher_dtype", dtype, "--data_path", wd_test_path("prompts.txt"),
                 "--student_config", wd_test_path("student.json"), "--output_dir",
                 wd_test_path(dtype), "--height", "32", "--width", "32", "--batch_size", "1",
                 "--trajectories", "4", "--trajectory_steps", "2", "--num_steps", steps);
}

/* ---- seen from outside ---- */

/* Whether `child` was started by `parent`, or by whom that has started. */
static bool descends(pid_t child, pid_t parent)
{
    while (child > 1 && child != parent) {
        char path[64], line[256];
        int ppid = 0;
        snprintf(path, sizeof path, "/proc/%d/status", (int)child);
        FILE *file = fopen(path, "r");
        if (!file) return false;
        while (fgets(line, sizeof line, file)) sscanf(line, "PPid: %d", &ppid);
        fclose(file);
        child = ppid;
    }
    return child == parent;
}

/* KiB behind `key` in a process's smaps_rollup; 0 once it is gone. */
static long rollup(pid_t pid, const char *key)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) sscanf(line + strlen(key), ": %ld", &kib);
    if (file) fclose(file);
    return kib;
}

/* The processes of this program that `parent` has started. */
static int ranks_of(pid_t *rank, int most, pid_t parent)
{
    int n = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (const struct dirent *entry; (entry = readdir(proc)) && n < most;) {
        char path[300], program_path[512] = {0};
        const pid_t pid = (pid_t)atoi(entry->d_name);
        snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
        if (pid <= 0 || readlink(path, program_path, sizeof program_path - 1) < 0) continue;
        if (!strcmp(program_path, WD_PROGRAM) && descends(pid, parent)) rank[n++] = pid;
    }
    closedir(proc);
    return n;
}

static void pause_a_little(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void signal_all(const pid_t *rank, int ranks, int number)
{
    for (int r = 0; r < ranks; r++) kill(rank[r], number);
}

/* KiB of all ranks together. */
typedef struct memory {
    long shared, own;
} memory;

/* The most that they had at any look. They stand still while they are looked at: one that maps what
 * another was just seen to have alone would count twice. */
static memory watch(pid_t job)
{
    siginfo_t ended = {0};
    memory most = {0};
    while (!waitid(P_PID, (id_t)job, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid) {
        pid_t rank[RANKS];
        memory now = {0};
        const int n = ranks_of(rank, RANKS, job);
        signal_all(rank, n, SIGSTOP);
        pause_a_little(STOP_NS);
        for (int r = 0; r < n; r++) now.shared += rollup(rank[r], "Pss_Shmem");
        for (int r = 0; r < n; r++) now.own += rollup(rank[r], "Pss_Anon");
        signal_all(rank, n, SIGCONT);
        if (now.shared > most.shared) most.shared = now.shared;
        if (now.own > most.own) most.own = now.own;
        pause_a_little(LOOK_NS);
    }
    wd_program_wait(&program, job);
    wd_program_succeeded(&program);
    return most;
}

/* Bytes of one copy, by the plan of the first rank: its part, of four. */
static int64_t planned_copy(const char *run_json)
{
    size_t i;
    json_t *item, *run = json_load_file(run_json, 0, NULL);
    const json_t *items = json_object_get(json_object_get(run, "memory"), "items");
    int64_t bytes = 0;
    json_array_foreach(items, i, item) if (!strcmp(json_string_value(json_object_get(item, "name")),
                                                   "part of the host's teacher weights")) bytes +=
        json_integer_value(json_object_get(item, "bytes"));
    json_decref(run);
    return RANKS * bytes;
}

static void four_ranks_have_one_copy(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    const memory mapped = watch(start("bfloat16", "2")), most = watch(start("float32", "2"));
    const int64_t copy = planned_copy(wd_test_path("float32/run.json"));
    const int64_t shared = 1024 * (int64_t)(most.shared - mapped.shared);
    const int64_t own = 1024 * (int64_t)(most.own - mapped.own); /* activations are larger, too */
    print_message("%.1f MB converted; %d ranks share %.1f MB, %.3f copies, and %.1f MB of MPI's; "
                  "%.1f MB more of their own\n",
                  1e-6 * (double)copy, RANKS, 1e-6 * (double)shared, (double)shared / (double)copy,
                  1.024e-3 * (double)mapped.shared, 1e-6 * (double)own);
    assert_int_equal(planned_copy(wd_test_path("bfloat16/run.json")), 0);
    assert_in_range(copy, 100 << 20, 140 << 20);
    assert_in_range(shared, copy - copy / 20, copy + copy / 20);
    assert_true(own < copy / 4);
}

/* ---- as planned ---- */

/* Bytes of a process, of whose shared memory it answers for one of so many parts; 0 once it is
 * gone. */
static int64_t part_of(pid_t pid, int parts)
{
    char path[64], line[256];
    long kib;
    int64_t bytes = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "RssAnon: %ld", &kib) == 1) bytes += 1024 * (int64_t)kib;
        if (sscanf(line, "RssShmem: %ld", &kib) == 1) bytes += 1024 * (int64_t)kib / parts;
    }
    if (file) fclose(file);
    return bytes;
}

/* The most that any rank of a job had at any look. */
static int64_t watch_parts(pid_t job, int ranks)
{
    siginfo_t ended = {0};
    int64_t most = 0;
    while (!waitid(P_PID, (id_t)job, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid) {
        pid_t rank[RANKS];
        const int n = ranks_of(rank, ranks, job);
        for (int look = 0; look < 20; look++) {
            for (int r = 0; r < n; r++) {
                const int64_t now = part_of(rank[r], ranks);
                if (now > most) most = now;
            }
            pause_a_little(LOOK_NS / 20);
        }
    }
    wd_program_wait(&program, job);
    wd_program_succeeded(&program);
    return most;
}

static int64_t memory_of(const char *run_json, const char *key)
{
    json_t *run = json_load_file(run_json, 0, NULL);
    const json_t *value = json_object_get(json_object_get(run, "memory"), key);
    if (!json_is_integer(value)) fail_msg("%s: memory has no integer \"%s\"", run_json, key);
    const int64_t bytes = json_integer_value(value);
    json_decref(run);
    return bytes;
}

static void check_planned(const char *who, double measured, double planned)
{
    if (!(fabs(measured - planned) <= PLANNED_PERCENT * 0.01 * planned))
        fail_msg("planned %.1f MB, measured %s %.1f MB", 1e-6 * planned, who, 1e-6 * measured);
}

/* What MPI holds included, and all that ranks send one another: seen from outside, and by the
 * program itself, which says it at the end. The rank that writes files has the most. */
static void ranks_have_what_was_planned(void **state)
{
    (void)state;
    static const char *const ranks[] = {"2", "4"};
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    for (int i = 0; i < 2; i++) {
        double measured_mib = 0.0;
        const char *run = wd_test_path(ranks[i]);
        const int64_t most =
            watch_parts(START(ranks[i], "--teacher_path", WD_SOURCE_DIR "/models/wan-tiny",
                              "--data_path", WD_SOURCE_DIR "/models/wan-tiny/prompts.txt",
                              "--output_dir", run, "--num_steps", "3", "--profile_memory"),
                        atoi(ranks[i]));
        char json[300];
        snprintf(json, sizeof json, "%s/run.json", run);
        const double planned = (double)memory_of(json, "bytes_peak");
        const double measured = (double)(most - memory_of(json, "bytes_before"));
        const char *said = strstr(program.err, "host memory: planned");
        if (!said ||
            sscanf(said, "host memory: planned %*f MiB, measured %lf MiB", &measured_mib) != 1)
            fail_msg("no line of measured host memory: %s", program.err);
        print_message("%s ranks: planned %.1f MB, measured %.1f MB, as said %g MiB\n", ranks[i],
                      1e-6 * planned, 1e-6 * measured, measured_mib);
        check_planned("from outside", measured, planned);
        check_planned("by itself", 1048576 * measured_mib, planned);
    }
}

/* ---- killed ---- */

/* Files in /dev/shm that are this large. */
static int files_of(int64_t bytes)
{
    int files = 0;
    DIR *dir = opendir("/dev/shm");
    if (!dir) return 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat s;
        if (!fstatat(dirfd(dir), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) && s.st_size >= bytes)
            files++;
    }
    closedir(dir);
    return files;
}

static void nothing_is_left_of_killed_ranks(void **state)
{
    (void)state;
    const int64_t large = 50 << 20; /* a part of it would be, none of MPI's is */
    const int before = files_of(large);
    const pid_t job = start("float32", "1000000");
    pid_t rank[RANKS];
    int n = 0;
    long shared = 0;
    while (shared < large / 1024) {
        siginfo_t ended = {0};
        waitid(P_PID, (id_t)job, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid) fail_msg("the job ended by itself");
        n = ranks_of(rank, RANKS, job);
        shared = n == RANKS ? rollup(rank[RANKS - 1], "Shared_Dirty") : 0;
        pause_a_little(LOOK_NS);
    }
    signal_all(rank, n, SIGKILL);
    wd_program_wait(&program, job);
    assert_int_not_equal(program.code, 0);
    assert_int_equal(ranks_of(rank, RANKS, job), 0);
    assert_int_equal(files_of(large), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_ranks_have_one_copy),
        cmocka_unit_test(ranks_have_what_was_planned),
        cmocka_unit_test(nothing_is_left_of_killed_ranks),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
