/* The program's memory is what it said: the peak of a run's anonymous and shared memory, watched
 * from outside, within 3 % of the plan in run.json. Where the system refuses memory it says so. */
#include "program.h"

#include <jansson.h>
#include <sys/resource.h>
#include <time.h>

#include "bench/random_transformer.h"
#include "io/json/json.h"
#include "model/files/pipeline.h"
#include "sanitized.h"
#include "teacher_copy.h"

enum { TOLERANCE_PERCENT = 3, BEFORE_MAX = 4 << 20, LOOK_NS = 500 * 1000 };

static wd_program program;

/* Anonymous and shared bytes of a process; 0 once it is gone. */
static int64_t own_bytes(pid_t pid)
{
    char path[64], line[256];
    long kib, sum = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1 || sscanf(line, "RssShmem: %ld", &kib) == 1)
            sum += kib;
    if (file) fclose(file);
    return (int64_t)sum * 1024;
}

/* Runs the program to its end; the most that it had at any look. */
static int64_t watch(const char *const *arguments)
{
    const pid_t pid = wd_program_start(arguments);
    siginfo_t ended = {0};
    int64_t most = 0;
    while (!waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid) {
        const int64_t now = own_bytes(pid);
        if (now > most) most = now;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    wd_program_wait(&program, pid);
    wd_program_succeeded(&program);
    return most;
}

static int64_t planned(const char *key)
{
    json_t *run = json_load_file(wd_test_path("student/run.json"), 0, NULL);
    const json_t *value = json_object_get(json_object_get(run, "memory"), key);
    if (!json_is_integer(value)) fail_msg("run.json: memory has no integer \"%s\"", key);
    const int64_t bytes = json_integer_value(value);
    json_decref(run);
    return bytes;
}

static void check(const char *const *arguments, int64_t least)
{
    wd_err err;
    wd_test_ok(wd_folder_remove(wd_test_path("student"), &err), &err);
    wd_test_ok(wd_folder_remove(wd_test_path("cache"), &err), &err);
    const int64_t most = watch(arguments), before = planned("bytes_before");
    const int64_t plan = planned("bytes_peak"), measured = most - before;
    print_message("planned %.1f MB, measured %.1f MB beside %.1f MB from before the job\n",
                  1e-6 * (double)plan, 1e-6 * (double)measured, 1e-6 * (double)before);
    assert_in_range(before, 1, BEFORE_MAX);
    assert_true(plan >= least);
    const int64_t off = measured > plan ? measured - plan : plan - measured;
    if (100 * off > TOLERANCE_PERCENT * plan)
        fail_msg("planned %lld bytes, measured %lld", (long long)plan, (long long)measured);
}

#define RUN(...)                                                                                   \
    (const char *const[])                                                                          \
    {                                                                                              \
        "train", "--teacher_path", WD_SOURCE_DIR "/models/wan-tiny", "--data_path",                \
            WD_SOURCE_DIR "/models/wan-tiny/prompts.txt", "--output_dir", wd_test_path("student"), \
            "--cache_dir", wd_test_path("cache"), "--num_threads", "2", "--log_level", "warning",  \
            IN_FP32, __VA_ARGS__, NULL                                                             \
    }

/* The demo's options: as much belongs to libraries and tables as to the student. */
static void demo(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    check(RUN("--teacher_dtype", "bfloat16", "--mixed_precision", "bf16", "--num_steps", "3"),
          50 << 20);
}

/* Activations of large batches. */
static void large_batches(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    check(RUN("--batch_size", "512", "--num_steps", "1"), 300 << 20);
}

static void checkpointing(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    check(RUN("--batch_size", "512", "--num_steps", "1", "--gradient_checkpointing"), 100 << 20);
}

/* Drawing takes more than training, fonts for prompts in other scripts than Latin included. */
static void samples(void **state)
{
    (void)state;
    static const char prompts[] = "\xe7\xba\xa2\xe8\x8b\xb9\xe6\x9e\x9c\na red apple\n"
                                  "\xd0\xbb\xd0\xb8\xd1\x81\xd0\xb0\na blue cube\n";
    const char *file = wd_test_path("samples.txt");
    wd_err err;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    wd_test_ok(wd_file_write(file, prompts, sizeof prompts - 1, &err), &err);
    check(RUN("--height", "256", "--width", "256", "--batch_size", "2", "--trajectories", "2",
              "--trajectory_steps", "2", "--num_steps", "2", "--target_replay", "8",
              "--save_samples", "--sample_steps", "2", "--sample_prompts", file),
          100 << 20);
}

/* States of many prompts in host memory, and a batch of them on the device. */
static void validation(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    check(RUN("--height", "128", "--width", "128", "--batch_size", "2", "--trajectories", "8",
              "--trajectory_steps", "2", "--num_steps", "2", "--target_replay", "8",
              "--validation_prompts", "120", "--save_samples", "false"),
          50 << 20);
}

/* wan-tiny, but for a teacher of one expert with two blocks of 38 MB; and a small student. */
static void write_large_teacher(void)
{
    char folder[WD_PATH_MAX];
    wd_err err;
    wd_pipeline tiny;
    wd_test_ok(wd_pipeline_open(&tiny, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_dit_config config = tiny.dit;
    config.heads = 6;
    config.head_dim = 128;
    config.ffn_dim = 3072;
    config.layers = 2;
    wd_test_copy_teacher(folder, "large");
    wd_test_ok(wd_folder_remove(wd_test_path("large/transformer_2"), &err), &err);
    wd_test_ok(wd_bench_write_transformer(wd_test_path("large/transformer"), &config, WD_F32, &err),
               &err);
    json_t *index = json_load_file(WD_SOURCE_DIR "/models/wan-tiny/model_index.json", 0, NULL);
    json_object_del(index, "boundary_ratio");
    json_object_del(index, "transformer_2");
    wd_test_ok(wd_json_save(index, wd_test_path("large/model_index.json"), &err), &err);
    json_decref(index);
    json_t *student = json_pack("{s:i, s:i, s:i, s:i}", "hidden_size", 128, "depth", 1, "num_heads",
                                1, "projection_factor", 4);
    wd_test_ok(wd_json_save(student, wd_test_path("large/student.json"), &err), &err);
    json_decref(student);
}

/* A teacher that dominates: streamed from disk, by slots, of which no more are planned than there
 * are blocks, and no room to read what stays as it is. */
static void large_teacher(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    write_large_teacher();
    check(RUN("--num_steps", "1", "--height", "64", "--width", "64", "--batch_size", "2",
              "--trajectories", "2", "--trajectory_steps", "2", "--teacher_path",
              wd_test_path("large"), "--student_config", wd_test_path("large/student.json"),
              "--teacher_device_strategy", "disk", "--teacher_dtype", "float32",
              "--teacher_prefetch", "7"),
          90 << 20);
}

static int64_t planned_while(const char *phase)
{
    size_t i;
    json_t *item, *run = json_load_file(wd_test_path("student/run.json"), 0, NULL);
    const json_t *items = json_object_get(json_object_get(run, "memory"), "items");
    int64_t bytes = 0;
    json_array_foreach(items, i, item)
    {
        if (!strcmp(json_string_value(json_object_get(item, "while")), phase))
            bytes += json_integer_value(json_object_get(item, "bytes"));
    }
    json_decref(run);
    return bytes;
}

/* A line of progress says what there is while training, not what drawing will take. A run of three
 * seconds has one, for there is one a second. */
static void progress_says_what_there_is(void **state)
{
    (void)state;
    double mb = 0;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    wd_program_run_(&program,
                    RUN("--height", "256", "--width", "256", "--batch_size", "2", "--trajectories",
                        "2", "--trajectory_steps", "2", "--max_minutes", "0.05", "--target_replay",
                        "8", "--save_samples", "--sample_steps", "2", "--log_level", "info"));
    wd_program_succeeded(&program);
    const char *said = strstr(program.err, "  memory ");
    if (!said || sscanf(said, "  memory %lf MB", &mb) != 1)
        fail_msg("no line of progress: %s", program.err);
    const int64_t training = planned_while("training") + planned_while("always");
    const double there = 1e-6 * (double)(training + planned("bytes_before"));
    assert_true(planned("bytes_peak") > training + training / 10);
    if (!(fabs(mb - there) <= TOLERANCE_PERCENT * 0.01 * there))
        fail_msg("planned for training %.1f MB, said %.0f MB", there, mb);
}

/* Of what a phase is said to have had, every item has its plan, and is as planned. */
static void check_profile(const char *phase, int least)
{
    char line[256];
    int items = 0;
    for (const char *at = strstr(program.err, "planned"); at; at = strstr(at + 1, "planned")) {
        const char *begin = at, *end = strchr(at, '\n');
        char planned[32], measured[32];
        while (begin > program.err && begin[-1] != '\n') begin--;
        snprintf(line, sizeof line, "%.*s", (int)(end - begin), begin);
        if (strncmp(line, "  ", 2)) continue; /* a place */
        if (sscanf(strstr(line, "planned"), "planned %31[^m] measured %31[^\n]", planned,
                   measured) != 2 ||
            strncmp(planned, measured, strlen(measured)))
            fail_msg("not as planned: %s", line);
        items += !strncmp(line + 2, phase, strlen(phase));
    }
    if (items < least) fail_msg("%d items of %s in\n%s", items, phase, program.err);
}

/* On a device that is none of the process's own memory: what it has, to the byte. */
static void profiles_say_what_was_planned(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_folder_remove(wd_test_path("cache"), &err), &err); /* nothing is encoded */
    wd_program_run_(&program, RUN("--num_steps", "2", "--save_samples", "--sample_steps", "3",
                                  "--profile_memory", "--devices", "sim:1x200MiB",
                                  "--teacher_device_strategy", "gpu", "--log_level", "info"));
    wd_program_succeeded(&program);
    check_profile("encoding", 1);
    check_profile("training", 10);
    check_profile("sampling", 5);
    wd_program_run_(&program, RUN("--num_steps", "2", "--validation_prompts", "9",
                                  "--profile_memory", "--devices", "sim:1x200MiB",
                                  "--teacher_device_strategy", "gpu", "--log_level", "info"));
    wd_program_succeeded(&program);
    check_profile("validating", 1);
    wd_test_ok(wd_folder_remove(wd_test_path("cache"), &err), &err);
    wd_program_run_(&program,
                    RUN("--num_steps", "2", "--profile_memory", "--devices", "sim:1x200MiB",
                        "--teacher_device_strategy", "gpu", "--log_level", "info"));
    wd_program_succeeded(&program);
    check_profile("encoding", 3);
    check_profile("opening", 1);
}

/* With so much address space, as `ulimit -v` gives it. */
static void run_within(rlim_t bytes, const char *const *arguments)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, before.rlim_max}), 0);
    const pid_t pid = wd_program_start(arguments);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    wd_program_wait(&program, pid);
}

/* The address space of the test itself: to start a program it needs some beyond. */
static rlim_t own_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* The least with which the loader can start the program: that far errors are its own. */
static rlim_t least_to_start(void)
{
    static rlim_t bytes;
    if (!bytes) bytes = own_space() + (1 << 20);
    while (run_within(bytes, (const char *const[]){"--version", NULL}), program.code)
        bytes += 2 << 20;
    return bytes;
}

/* Whatever the limit, a command does its work or says that there is no memory. That goes for the
 * making of kernels, too, for which the VAE's library does not look whether it has got memory, and
 * for threads, without which libgomp ends the process. Where there are 128 MiB more, glibc takes
 * them for what a thread allocates. */
static void check_limits(const char *const *arguments, const char *refusal)
{
    enum { STEP = 9 << 20, MOST = 112 << 20 };
    bool refused = false;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    const rlim_t least = least_to_start();
    for (rlim_t bytes = least; bytes < least + MOST; bytes += STEP) {
        run_within(bytes, arguments);
        if (program.code) wd_program_refused(&program, WD_OUT_OF_MEMORY, "memory");
        refused |= strstr(program.err, refusal) != NULL;
    }
    if (!refused) fail_msg("never refused for \"%s\"", refusal);
}

static void limited_training(void **state)
{
    (void)state;
    check_limits(RUN("--num_steps", "1", "--save_samples", "--sample_steps", "2"),
                 "no memory for kernels");
}

/* The texts of these samples are 128 GiB in host memory, of which a device has four on their way.
 */
static void what_no_machine_has_is_planned(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.1-1.3b", "--batch_size", "16384",
                   "--teacher_window", "16384", "--teacher_micro_batch", "16384", "--devices",
                   "sim:1x80GiB@link=50GB/s,compute=500TFLOP/s", IN_FP32);
    if (!strstr(program.out, "tables and staging") || !strstr(program.out, " 512 GiB\n") ||
        !strstr(program.out, "24.7 TiB"))
        fail_msg("exit code %d: %s%s", program.code, program.err, program.out);
}

#define TINY WD_SOURCE_DIR "/models/wan-tiny"

static void limited_sampling(void **state)
{
    (void)state;
    check_limits((const char *const[]){"sample", "--model", TINY, "--prompt", "apple", "fox",
                                       "--steps", "1", "--dtype", "bfloat16", "--num_threads", "2",
                                       "--out", wd_test_path("pictures"), "--log_level", "warning",
                                       NULL},
                 "no memory for kernels");
}

static void limited_comparing(void **state)
{
    (void)state;
    check_limits((const char *const[]){"eval",
                                       "--teacher",
                                       TINY,
                                       "--student",
                                       TINY,
                                       "--prompts",
                                       TINY "/prompts.txt",
                                       "--count",
                                       "3",
                                       "--steps",
                                       "1",
                                       "--batch_size",
                                       "2",
                                       "--dtype",
                                       "bfloat16",
                                       "--num_threads",
                                       "2",
                                       "--log_level",
                                       "warning",
                                       NULL},
                 "no memory for kernels");
}

static void check_component(const char *fixture, const char *component, const char *dtype,
                            const char *refusal)
{
    char model[256], in[300];
    snprintf(model, sizeof model, WD_SOURCE_DIR "/tests/fixtures/%s", fixture);
    snprintf(in, sizeof in, "%s/in.safetensors", model);
    check_limits((const char *const[]){"forward", "--model", model, "--component", component,
                                       "--in", in, "--dtype", dtype, "--num_threads", "2", "--out",
                                       wd_test_path("out.safetensors"), NULL},
                 refusal);
}

#ifdef WD_OPENMP
static const char no_threads[] = "no memory for 2 threads";
#else /* there is but one */
static const char no_threads[] = "no memory for";
#endif

static void limited_components(void **state)
{
    (void)state;
    check_component("dit-image", "transformer", "bfloat16", no_threads);
    check_component("umt5", "text_encoder", "bfloat16", no_threads);
    check_component("vae-2.1", "vae_decoder", "float32", "no memory for kernels");
    check_component("vae-2.1-video", "vae_encoder", "float32", "no memory for kernels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_teacher),
        cmocka_unit_test(demo),
        cmocka_unit_test(large_batches),
        cmocka_unit_test(checkpointing),
        cmocka_unit_test(samples),
        cmocka_unit_test(validation),
        cmocka_unit_test(progress_says_what_there_is),
        cmocka_unit_test(profiles_say_what_was_planned),
        cmocka_unit_test(what_no_machine_has_is_planned),
        cmocka_unit_test(limited_training),
        cmocka_unit_test(limited_sampling),
        cmocka_unit_test(limited_comparing),
        cmocka_unit_test(limited_components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
