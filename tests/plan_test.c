/* The program with teachers anywhere: one student under every strategy, also when a run changes its
 * strategy in the middle; plans that hold to the byte; and suggestions that work. */
#include "program.h"
#include "teacher_copy.h"

#include <sys/resource.h>

#include "sanitized.h"

#include "io/file/file.h"
#include "io/json/json.h"
#include "teacher/plan/strategy.h"

static wd_program program;
static const char teacher[] = WD_SOURCE_DIR "/models/wan-tiny";
static char prompts[256], student[256];

static int prepare(void **state)
{
    (void)state;
    wd_err err;
    static const char text[] = "a red apple\na blue star\na yellow smiling face\n";
    static const char config[] = "{\"hidden_size\": 1024, \"depth\": 16}";
    snprintf(prompts, sizeof prompts, "%s", wd_test_path("prompts.txt"));
    snprintf(student, sizeof student, "%s", wd_test_path("student.json"));
    return wd_file_write(prompts, text, sizeof text - 1, &err) ||
           wd_file_write(student, config, sizeof config - 1, &err);
}

/* Eight steps, by when every trajectory has gone its way twice. */
#define RUN(name)                                                                                  \
    "train", "--teacher_path", teacher, "--data_path", prompts, "--output_dir",                    \
        wd_test_path(name), "--batch_size", "8", "--target_reuse", "1", "--trajectories", "6",     \
        "--trajectory_steps", "4", "--guidance_scale", "2", "--num_steps", "8", "--target_replay", \
        "1024", "--optimizer_device", "device", IN_FP32

static void assert_same_student(const char *a, const char *b)
{
    char path[2][256], *data[2];
    size_t bytes[2];
    wd_err err;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s/transformer/diffusion_pytorch_model.safetensors",
                 wd_test_folder(), i ? b : a);
        wd_test_ok(wd_file_read(&data[i], &bytes[i], path[i], 1 << 26, &err), &err);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    wd_free(data[0]);
    wd_free(data[1]);
}

static void every_strategy_gives_one_student(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("host"));
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "teacher: cpu, by auto as the fastest of 2 that fit"));
    assert_non_null(strstr(program.err, "in all: 8 steps (--num_steps), 64 targets, each seen "));
    assert_null(strstr(program.err, "simulated"));
    for (int i = 0; i < WD_STRATEGY_COUNT; i++) {
        const char *strategy = wd_strategy_name((wd_strategy)i);
        if (i == WD_STRATEGY_custom) continue; /* see a_map_gives_the_same_student */
        wd_program_run(&program, RUN(strategy), "--devices", "sim:2x64MiB@link=1GB/s",
                       "--teacher_device_strategy", strategy);
        wd_program_succeeded(&program);
        assert_same_student("host", strategy);
    }
}

static void a_map_gives_the_same_student(void **state)
{
    (void)state;
    wd_err err;
    static const char map[] =
        "{\"text_encoder\": \"cpu\", \"vae\": \"cpu\", \"transformer_2\": \"disk\", "
        "\"transformer\": {\"patch_embedding\": 0, \"condition_embedder\": 0, \"rope\": 0, "
        "\"blocks.0-2\": 1, \"blocks.3-5\": \"cpu\", \"norm_out\": 1, \"proj_out\": 1, "
        "\"scale_shift_table\": 1}}";
    const char *file = wd_test_path("map.json");
    wd_test_ok(wd_file_write(file, map, sizeof map - 1, &err), &err);
    wd_program_run(&program, RUN("map"), "--devices", "sim:2x64MiB", "--teacher_device_map", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "teacher: custom"));
    assert_same_student("host", "map");
}

static void a_run_may_change_its_strategy(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("changed"), "--stop_at_step", "3", "--devices",
                   "sim:3x64MiB@link=500MB/s", "--balance_teacher");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("changed"), "--resume", "--stop_at_step", "6", "--devices",
                   "sim:64MiB", "--teacher_device_strategy", "disk", "--teacher_window", "4",
                   "--teacher_prefetch", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("changed"), "--resume", "--teacher_window", "1");
    wd_program_succeeded(&program);
    assert_same_student("host", "changed");
}

/* ---- plans ---- */

static json_t *load(const char *path)
{
    json_t *json;
    wd_err err;
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    return json;
}

static int64_t planned_peak_of(const char *run, const char *device)
{
    char path[256];
    snprintf(path, sizeof path, "%s/run.json", wd_test_path(run));
    json_t *json = load(path);
    const json_t *memory = json_object_get(json, "memory");
    const int64_t peak =
        json_integer_value(json_object_get(json_object_get(memory, "devices"), device));
    json_decref(json);
    assert_true(peak > 0);
    return peak;
}

static int64_t planned_peak(const char *run)
{
    return planned_peak_of(run, "sim:0");
}

/* Whether a command makes the student of RUN: other strategies, windows and checkpointing never
 * change it. */
static bool keeps_student(const char *command)
{
    return strstr(command, "--teacher_dtype float32") && strstr(command, "--mixed_precision no") &&
           strstr(command, "--batch_size 8 ") && !strstr(command, "--on_policy_share") &&
           !strstr(command, "--optimizer adamw8bit") && strstr(command, "--target_replay 1024");
}

/* Runs the commands that a refusal offers, the first `most` of them, and the fastest of those that
 * keep the student last: its student stays. Nothing in them needs quotes. */
static void run_the_suggestions(int most)
{
    static char offered[1 << 16], *line[5];
    int lines = 0;
    memcpy(offered, program.err, sizeof offered);
    for (char *end = offered; lines < most && (end = strstr(end, "  wandistiller train "));) {
        line[lines++] = end + strlen("  wandistiller ");
        end = strchr(end, '\n');
        *end++ = 0;
    }
    assert_true(lines > 0);
    for (int i = 0; i < lines; i++)
        if (keeps_student(line[i])) {
            char *first = line[0];
            line[0] = line[i];
            line[i] = first;
            break;
        }
    while (lines--) {
        const char *arguments[62];
        int n = 0;
        for (char *word = strtok(line[lines], " "); word && n < 61; word = strtok(NULL, " "))
            arguments[n++] = word;
        arguments[n] = NULL;
        wd_program_run_(&program, arguments);
        wd_program_succeeded(&program);
    }
}

/* A budget of what is planned is enough, one byte less is refused before anything is loaded. */
static void a_plan_holds_to_the_byte(void **state)
{
    (void)state;
    char devices[64];
    wd_program_run(&program, RUN("roomy"), "--devices", "sim:1GiB", "--teacher_window", "6",
                   "--teacher_device_strategy", "gpu");
    wd_program_succeeded(&program);
    int64_t peak = planned_peak("roomy");
    for (int less = 0; less < 2; less++) {
        snprintf(devices, sizeof devices, "sim:%lldB", (long long)(peak - less));
        wd_program_run(&program, RUN(less ? "short" : "exact"), "--devices", devices,
                       "--teacher_window", "6", "--teacher_device_strategy", "gpu");
        if (!less) {
            wd_program_succeeded(&program);
            assert_int_equal(planned_peak("exact"), peak);
            assert_same_student("host", "exact");
        }
    }
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
    assert_non_null(strstr(program.err, "1 B are missing (1 bytes)"));
    assert_non_null(strstr(program.err, "student first moments"));
    assert_false(wd_path_exists(wd_test_path("short")));
    run_the_suggestions(5);
    assert_same_student("host", "short");
}

/* Where the device has no room for the optimiser's state, or has none for a faster strategy beside
 * it, it is in host memory: the student is the same, also of a run that is resumed otherwise. */
static void state_moves_to_the_host_where_it_must(void **state)
{
    (void)state;
    char devices[64];
    wd_program_run(&program, RUN("state-here"), "--devices", "sim:1GiB", "--teacher_window", "6",
                   "--teacher_device_strategy", "gpu");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "in host memory"));
    const long long peak = (long long)planned_peak("state-here");
    snprintf(devices, sizeof devices, "sim:%lldB", peak - 1);
    wd_program_run(&program, RUN("state-there"), "--devices", devices, "--teacher_window", "6",
                   "--teacher_device_strategy", "gpu", "--optimizer_device", "auto",
                   "--stop_at_step", "2", "--save_samples", "false");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "EMA: in host memory, since sim:0 has no room for it"));
    snprintf(devices, sizeof devices, "sim:%lldB", peak / 4 * 3);
    wd_program_run(&program, "train", "--resume",
                   wd_test_path("state-there/checkpoints/"
                                "step-00000002"),
                   "--devices", devices, "--stop_at_step", "4");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "moments, EMA and master weights: in host memory, since "
                                        "sim:0 has no room for them"));
    wd_program_run(&program, "train", "--resume",
                   wd_test_path("state-there/checkpoints/"
                                "step-00000004"),
                   "--optimizer_device", "device", "--devices", "sim:1GiB", "--stop_at_step", "6");
    wd_program_succeeded(&program);
    wd_program_run(&program, "train", "--resume",
                   wd_test_path("state-there/checkpoints/"
                                "step-00000006"),
                   "--optimizer_device", "host", "--devices", "sim:1GiB", "--stop_at_step", "0");
    wd_program_succeeded(&program);
    assert_same_student("state-here", "state-there");
    wd_program_run(&program, RUN("no-state"), "--devices", "cpu", "--optimizer_device", "nowhere");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected auto, device or host");
}

/* The student's own steps are made for a few states at a time, for which oneDNN may need more
 * workspace in bf16 than for many. */
static void own_steps_of_all_sizes_are_planned(void **state)
{
    (void)state;
    char devices[64] = "sim:2GiB";
    for (int exact = 0; exact < 2; exact++) {
        wd_program_run(&program, RUN(exact ? "own-exact" : "own-roomy"), "--devices", devices,
                       "--height", "160", "--width", "160", "--trajectories", "11",
                       "--student_steps", "4", "--batch_size", "3", "--mixed_precision", "bf16",
                       "--teacher_device_strategy", "gpu", "--teacher_window", "11",
                       "--teacher_micro_batch", "11");
        wd_program_succeeded(&program);
        snprintf(devices, sizeof devices, "sim:%lldB", (long long)planned_peak("own-roomy"));
    }
    assert_same_student("own-roomy", "own-exact");
}

/* Runs a student of two steps that has all memory savings which keep its quality, with as much
 * memory of its device as it needs without a teacher there, and then with a byte less: that is
 * refused, with suggestions. */
static void run_a_byte_short(const char *run, const char *target_replay)
{
    char devices[64];
    const char *const usual[] = {
        "--student_steps", "2",        "--mixed_precision", "bf16", "--gradient_checkpointing",
        "--teacher_dtype", "bfloat16", "--batch_size",      "7"};
    for (int less = 0; less < 2; less++) {
        snprintf(devices, sizeof devices, less ? "sim:%lldB" : "sim:1GiB",
                 less ? (long long)planned_peak(run) - 1 : 0);
        wd_program_run(&program, RUN(less ? "led-short" : run), "--devices", devices,
                       "--teacher_window", "6", "--teacher_device_strategy", "cpu", usual[0],
                       usual[1], usual[2], usual[3], usual[4], usual[5], usual[6], usual[7],
                       usual[8], "--target_replay", target_replay, "--optimizer_device", "host",
                       "--optimizer", "adamw8bit");
        if (!less) wd_program_succeeded(&program);
    }
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
}

/* A student of few steps that does not fit is offered without the copy of its weights. */
static void off_policy_blocks_are_suggested(void **state)
{
    (void)state;
    run_a_byte_short("led", "1024");
    assert_non_null(strstr(program.err, "snapshot weights"));
    assert_non_null(strstr(program.err, "--on_policy_share 0"));
    run_the_suggestions(5);
}

/* A resumed run is offered only what --resume takes: of what makes another run nothing. Where that
 * is not enough the refusal says how much memory is. */
static void a_resumed_run_is_offered_what_it_may_change(void **state)
{
    (void)state;
    static const char *const others[] = {"--teacher_dtype bfloat16", "--mixed_precision bf16"};
    wd_program_run(&program, RUN("goes-on"), "--devices", "sim:64MiB", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("goes-on"), "--devices", "sim:30MiB", "--resume", "auto");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
    for (int i = 0; i < 2; i++) assert_null(strstr(program.err, others[i]));
    run_the_suggestions(5);
    wd_program_run(&program, RUN("goes-on"), "--devices", "sim:10MiB", "--resume", "auto");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "resume it with more memory (sim:0 lacks 10.");
    assert_non_null(strstr(program.err, "  nothing with what a resumed run may change\n"));
    assert_null(strstr(program.err, "  wandistiller train "));
    const char *plan[] = {
        RUN("goes-on"),
        "--resume",
        "auto",
        "--gradient_checkpointing",
        "--optimizer_device",
        "host",
        "--devices",
        "sim:24MiB@link=1GB/s,compute=100TFLOP/s,cpu=10MFLOP/s",
        NULL,
    };
    plan[0] = "plan";
    wd_program_run_(&program, plan);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, ". A resumed run may change nothing that makes so much"));
}

/* A run that keeps more targets than it has to is offered with fewer. */
static void fewer_targets_are_suggested(void **state)
{
    (void)state;
    run_a_byte_short("kept", "1025");
    assert_non_null(strstr(program.err, "--target_replay 1024"));
    run_the_suggestions(5);
}

/* A run with gradients in bf16 needs what its plan says, and is offered where one in fp32 does not
 * fit. */
static void gradients_in_bf16_are_suggested(void **state)
{
    (void)state;
    char devices[64] = "sim:1GiB";
    static const char *const run[] = {"bf16-roomy", "bf16-exact", "bf16-short"};
    for (int i = 0; i < 3; i++) {
        wd_program_run(&program, RUN(run[i]), "--devices", devices, "--teacher_device_strategy",
                       "cpu", "--teacher_window", "6", "--mixed_precision", "bf16",
                       "--gradient_checkpointing", "--teacher_dtype", "bfloat16", "--batch_size",
                       "7", "--optimizer_device", "host", "--optimizer", "adamw8bit",
                       "--gradient_dtype", i < 2 ? "bfloat16" : "float32");
        if (i < 2) wd_program_succeeded(&program);
        if (i == 0) snprintf(devices, sizeof devices, "sim:%lldB", (long long)planned_peak(run[0]));
    }
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
    assert_non_null(strstr(program.err, " --gradient_dtype bfloat16"));
    assert_same_student("bf16-roomy", "bf16-exact");
}

/* Nor does a run need more that has measured the devices first. */
static void measuring_leaves_no_memory(void **state)
{
    (void)state;
    char devices[64];
    wd_program_run(&program, RUN("known"), "--devices", "sim:2x1GiB", "--teacher_rank", "1");
    wd_program_succeeded(&program);
    snprintf(devices, sizeof devices, "sim:%lldB,1GiB", (long long)planned_peak("known"));
    wd_program_run(&program, RUN("measured"), "--devices", devices, "--teacher_rank", "1",
                   "--measure_rates");
    wd_program_succeeded(&program);
}

/* What libraries take counts as what is planned: whatever is offered has room for that, too. */
static void suggestions_fit_in_host_memory(void **state)
{
    (void)state;
    char bytes[32], path[256];
    wd_program_run(&program, RUN("host-roomy"), "--teacher_device_strategy", "cpu");
    wd_program_succeeded(&program);
    snprintf(path, sizeof path, "%s/run.json", wd_test_path("host-roomy"));
    json_t *json = load(path);
    const json_int_t peak =
        json_integer_value(json_object_get(json_object_get(json, "memory"), "bytes_peak"));
    json_decref(json);
    snprintf(bytes, sizeof bytes, "%lldB", (long long)(peak - (4 << 20)));
    wd_program_run(&program, RUN("host-tight"), "--host_memory", bytes, "--teacher_device_strategy",
                   "cpu");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
    run_the_suggestions(5);
}

/* What `plan` says fits into host memory, `train` runs in: both count libraries and prompts. */
static void what_a_plan_asks_for_is_enough(void **state)
{
    (void)state;
    char bytes[32];
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts, "--json",
                   "--batch_size", "8", "--target_reuse", "1", "--trajectories", "6",
                   "--trajectory_steps", "4", "--teacher_window", "6", "--output_dir",
                   wd_test_path("asked"));
    wd_program_succeeded(&program);
    wd_err err;
    json_t *plan;
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    const json_t *cpu = json_array_get(json_object_get(plan, "strategies"), 0);
    snprintf(bytes, sizeof bytes, "%lldB",
             (long long)json_integer_value(json_object_get(cpu, "host_peak")));
    json_decref(plan);
    wd_program_run(&program, RUN("asked"), "--teacher_window", "6", "--host_memory", bytes);
    wd_program_succeeded(&program);
}

/* A window that is too large is no reason to change the student, or where the teacher lives. */
static void a_smaller_window_is_suggested(void **state)
{
    (void)state;
    char devices[96];
    wd_program_run(&program, RUN("narrow"), "--devices", "sim:1GiB", "--teacher_device_strategy",
                   "disk", "--teacher_window", "1");
    wd_program_succeeded(&program);
    snprintf(devices, sizeof devices, "sim:%lldB@link=10GB/s,compute=10GFLOP/s,cpu=1GFLOP/s",
             (long long)planned_peak("narrow")); /* whose processor is no faster way */
    wd_program_run(&program, RUN("wide"), "--devices", devices, "--teacher_device_strategy", "disk",
                   "--teacher_window", "6", "--teacher_micro_batch", "6", "--teacher_prefetch",
                   "7");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
    char *way = strstr(program.err, " --teacher_device_strategy disk ");
    assert_non_null(way);
    *strchr(way, '\n') = 0;
    assert_null(strstr(way + 1, " --teacher_"));
}

/* However long it is. */
static void a_way_out_is_whole(void **state)
{
    (void)state;
    char negative[6000];
    memset(negative, 'x', sizeof negative);
    negative[sizeof negative - 1] = 0;
    wd_program_run(&program, RUN("whole"), "--devices", "sim:60MB", "--negative_prompt", negative,
                   "--teacher_device_strategy", "gpu");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
    assert_non_null(strstr(program.err, negative));
    run_the_suggestions(1);
    assert_true(wd_path_exists(wd_test_path("whole/run.json")));
}

/* What a map says of text encoder and VAE is left out with it. Commands that were run for one map
 * are not run again for the other. */
static void a_map_may_be_what_does_not_fit(void **state)
{
    (void)state;
    wd_err err;
    static char offered[2][sizeof program.err];
    static const char *const maps[] = {"{\"text_encoder\": 1, \"vae\": \"cpu\", \"transformer\": "
                                       "\"cpu\", \"transformer_2\": \"cpu\"}",
                                       "{\"text_encoder\": \"cpu\", \"vae\": 1, \"transformer\": "
                                       "\"cpu\", \"transformer_2\": \"cpu\"}"};
    const char *file = wd_test_path("small.json");
    for (int i = 0; i < 2; i++) {
        wd_test_ok(wd_file_write(file, maps[i], strlen(maps[i]), &err), &err);
        wd_program_run(&program, RUN("small"), "--devices", "sim:64MiB,100kB", "--save_samples",
                       "--sample_steps", "2", "--teacher_device_map", file);
        wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
        assert_null(strstr(program.err, " --teacher_device_map "));
        const char *commands = strstr(program.err, "  wandistiller train ");
        assert_non_null(commands);
        snprintf(offered[i], sizeof offered[i], "%s", commands);
        if (!i || strcmp(offered[0], offered[1])) {
            run_the_suggestions(5);
            assert_same_student("host", "small");
        }
        wd_program_run(&program, RUN("small"), "--devices", "sim:64MiB,100kB", "--save_samples",
                       "--sample_steps", "2", "--teacher_device_map", file, "--host_memory",
                       "1MiB");
        wd_program_refused(&program, WD_DOES_NOT_FIT, "elsewhere in --teacher_device_map");
        assert_null(strstr(program.err, "  wandistiller train "));
    }
}

/* A device has one workspace for teacher and VAE: the planner counts it as the dry run does, once.
 */
static void what_a_map_puts_together_has_one_workspace(void **state)
{
    (void)state;
    wd_err err;
    char path[256];
    size_t d;
    json_t *device;
    int compared = 0;
    static const char map[] = "{\"text_encoder\": 1, \"vae\": 1, \"transformer\": 1, "
                              "\"transformer_2\": \"disk\"}";
    const char *file = wd_test_path("together.json");
    wd_test_ok(wd_file_write(file, map, sizeof map - 1, &err), &err);
    wd_program_run(&program, RUN("together"), "--devices", "sim:2x64MiB", "--save_samples",
                   "--teacher_device_map", file);
    wd_program_succeeded(&program);
    snprintf(path, sizeof path, "%s/run.json", wd_test_path("together"));
    json_t *run = load(path);
    const json_t *memory = json_object_get(json_object_get(run, "memory"), "devices");
    const json_t *devices = json_object_get(json_object_get(run, "teacher"), "devices");
    assert_int_equal(json_object_size(memory), 2);
    assert_int_equal(json_array_size(devices), 3);
    json_array_foreach(devices, d, device)
    {
        const char *name = json_string_value(json_object_get(device, "name"));
        const json_t *peak = json_object_get(memory, name), *planned;
        if (!peak) continue;
        planned = json_object_get(device, "peak");
        assert_true(json_is_integer(peak) && json_is_integer(planned));
        assert_true(json_integer_value(peak) > 0);
        assert_int_equal(json_integer_value(planned), json_integer_value(peak));
        compared++;
    }
    assert_int_equal(compared, 2);
    json_decref(run);
}

/* What encoding had of a device is gone when the teacher comes: a budget of what is planned is
 * enough where that is next to nothing. */
static void a_text_encoder_leaves_nothing(void **state)
{
    (void)state;
    wd_err err;
    char devices[64];
    static const char map[] =
        "{\"text_encoder\": 1, \"vae\": \"cpu\", \"transformer\": {\"patch_embedding\": 0, "
        "\"condition_embedder\": 0, \"rope\": 0, \"blocks\": 0, \"norm_out\": 1, "
        "\"proj_out\": 1, \"scale_shift_table\": 1}, \"transformer_2\": 0}";
    const char *file = wd_test_path("head.json");
    wd_test_ok(wd_file_write(file, map, sizeof map - 1, &err), &err);
    for (int tight = 0; tight < 2; tight++) {
        snprintf(devices, sizeof devices, "sim:64MiB,%lldB",
                 tight ? (long long)planned_peak_of("encoded", "sim:1") : 1LL << 26);
        wd_program_run(&program, RUN(tight ? "encoded-tight" : "encoded"), "--devices", devices,
                       "--cache_dir", wd_test_path(tight ? "cache-tight" : "cache"),
                       "--teacher_device_map", file);
        wd_program_succeeded(&program);
    }
}

/* So is the device of gpu0. */
static void a_rank_may_be_what_does_not_fit(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("ranked"), "--devices", "sim:64MiB,100kB", "--teacher_rank", "1");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under");
    run_the_suggestions(5);
    assert_same_student("host", "ranked");
}

static void a_host_budget_holds_too(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("host-short"), "--host_memory", "20MiB");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit, whatever the strategy");
    assert_non_null(strstr(program.err, "host memory: "));
    wd_program_run(&program, RUN("host-short"), "--host_memory", "much");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--host_memory");
}

/* Memory that is gone when it is taken, though the plan fits: the process may not have as much
 * address space. */
static void memory_that_is_gone_is_reported(void **state)
{
    (void)state;
    struct rlimit old, few;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    getrlimit(RLIMIT_AS, &old);
    few = (struct rlimit){(rlim_t)1200 << 20, old.rlim_max};
    setrlimit(RLIMIT_AS, &few);
    wd_program_run(&program, RUN("gone"), "--batch_size", "2048", "--num_threads", "1",
                   "--host_memory", "64GiB");
    setrlimit(RLIMIT_AS, &old);
    wd_program_refused(&program, WD_OUT_OF_MEMORY, "student activations: the system has no");
    assert_non_null(strstr(program.err, "out of memory, though the plan fits"));
    const char *then = strstr(program.err, "[Rank 0, cpu] allocated ");
    assert_non_null(then);
    double allocated;
    char unit[4]; /* the teacher and the student, which were there when there was no more */
    assert_int_equal(sscanf(then, "[Rank 0, cpu] allocated %lf %3s", &allocated, unit), 2);
    assert_string_equal(unit, "MiB");
    assert_true(allocated > 40);
    assert_non_null(strstr(program.err, "--gradient_checkpointing"));
    for (char *way = program.err; (way = strstr(way, "  wandistiller train "));) {
        char *end = strchr(way, '\n'); /* none of them is the run that has just failed */
        *end = 0;
        assert_true(strstr(way, "--gradient_checkpointing") || strstr(way, "--mixed_precision") ||
                    !strstr(way, "--batch_size 2048"));
        way = end + 1;
    }
}

/* What `plan` says of a published model: no file is there. */
static void a_published_model_is_planned(void **state)
{
    (void)state;
    json_t *plan, *strategy;
    wd_err err;
    size_t i;
    double weights = 0;
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype",
                   "bfloat16", "--student_config", student, "--height", "512", "--width", "512",
                   "--host_memory", "128GiB", "--json", "--devices",
                   "sim:4x24GiB@link=25GB/s,compute=150TFLOP/s");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    assert_string_equal(json_string_value(json_object_get(plan, "recommended")), "balanced");
    assert_int_equal(json_integer_value(json_object_get(plan, "teacher_parameters")), 14288491584);
    const json_t *strategies = json_object_get(plan, "strategies");
    assert_int_equal(json_array_size(strategies), 8);
    json_array_foreach(strategies, i, strategy)
    {
        const char *name = json_string_value(json_object_get(strategy, "strategy"));
        const bool fits = json_is_true(json_object_get(strategy, "fits"));
        const json_t *devices = json_object_get(strategy, "devices");
        assert_int_equal(fits,
                         strcmp(name, "gpu") && strcmp(name, "gpu0") && strcmp(name, "custom"));
        for (size_t d = 0; !strcmp(name, "balanced") && d < json_array_size(devices); d++)
            weights += json_number_value(json_object_get(json_array_get(devices, d), "weights"));
    }
    assert_true(weights > 2 * 28.57e9 && weights < 2 * 28.8e9);
    json_decref(plan);
}

/* Weights that are used where they are mapped need no memory of ours, but room to be kept in. What
 * libraries take is measured by every run: where the same windows are planned, whose kernels they
 * make, it varies by less than a MiB. */
static void mapped_weights_need_a_page_cache(void **state)
{
    (void)state;
    wd_err err;
    json_t *plan;
    char bytes[32];
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--teacher_dtype", "bfloat16",
                   "--devices", "cpu", "--host_memory", "1GiB", "--teacher_window", "64", "--json");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    const json_t *cpu = json_array_get(json_object_get(plan, "strategies"), 0);
    const json_int_t mapped = json_integer_value(json_object_get(cpu, "host_mapped"));
    const json_int_t peak = json_integer_value(json_object_get(cpu, "host_peak"));
    assert_in_range(mapped, 1 << 20, 1 << 25);
    for (int less = 0; less < 2; less++) {
        const int varies = less ? -(1 << 20) : 1 << 20;
        snprintf(bytes, sizeof bytes, "%lldB", (long long)(peak + mapped + varies));
        wd_program_run(&program, "plan", "--teacher_path", teacher, "--teacher_dtype", "bfloat16",
                       "--devices", "cpu", "--host_memory", bytes, "--teacher_window", "64",
                       "--teacher_device_strategy", "cpu");
        wd_program_succeeded(&program);
        assert_int_equal(strstr(program.out, "read from disk in every sweep") != NULL, less);
    }
    json_decref(plan);
}

/* Streaming that hides behind computing is no faster for that: what fits stays on the device. */
static void what_fits_is_not_streamed(void **state)
{
    (void)state;
    json_t *plan;
    wd_err err;
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype",
                   "bfloat16", "--student_config", student, "--height", "512", "--width", "512",
                   "--host_memory", "128GiB", "--json", "--devices",
                   "sim:80GiB@link=50GB/s,compute=500TFLOP/s");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    assert_string_equal(json_string_value(json_object_get(plan, "recommended")), "gpu");
    json_decref(plan);
}

/* A device that is too small to be measured has a plan and a suggestion nevertheless. */
static void a_device_may_be_too_small_to_measure(void **state)
{
    (void)state;
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--measure_rates", "--devices",
                   "sim:1B@link=1GB/s,compute=1GFLOP/s");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit, whatever the strategy");
    assert_non_null(strstr(program.out, "no, sim:0 lacks"));
    wd_program_run(&program, RUN("tiny"), "--measure_rates", "--devices", "sim:1B");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit, whatever the strategy");
}

static void plan_needs_a_teacher(void **state)
{
    (void)state;
    wd_program_run(&program, "plan");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--teacher_preset");
    wd_program_run(&program, "plan", "--teacher_preset", "wan3");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "wan2.1-1.3b");
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.1-14b", "--teacher_path", teacher);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "give one of them");
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--teacher_device_strategy",
                   "custom");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--teacher_device_map");
}

/* A teacher with another text encoder than its configuration says. */
static void plan_refuses_what_train_refuses(void **state)
{
    (void)state;
    char other[WD_PATH_MAX];
    int code[2];
    wd_err err;
    wd_test_copy_teacher(other, "other-encoder");
    wd_test_ok(wd_file_copy(wd_test_in(other, "text_encoder/model.safetensors"),
                            wd_test_in(other, "vae/diffusion_pytorch_model.safetensors"), &err),
               &err);
    for (int planned = 0; planned < 2; planned++) {
        wd_program_run(&program, planned ? "plan" : "train", "--teacher_path", other, "--data_path",
                       prompts, "--output_dir", wd_test_path("never"), "--num_steps", "1");
        code[planned] = program.code;
        assert_non_null(strstr(program.err, "text_encoder"));
    }
    assert_int_not_equal(code[0], 0);
    assert_int_equal(code[1], code[0]);
}

#define TOO_SMALL "sim:1MiB,2MiB@link=1GB/s,compute=1GFLOP/s"

/* Whether no line from the table of strategies on, up to the verdict, is longer than a terminal. */
static void assert_narrow(const char *text)
{
    const char *line = strstr(text, "\n  strategy "), *end = strstr(text, "\nfits under ");
    assert_non_null(line);
    assert_non_null(end);
    while (++line < end) {
        if (strcspn(line, "\n") > 100) fail_msg("longer than 100 columns: %.200s", line);
        line += strcspn(line, "\n");
    }
}

/* The table has a line for every strategy that the devices can serve, and what the recommended one
 * takes. */
static void plan_prints_tables(void **state)
{
    (void)state;
    static const char *const always[] = {
        "cpu ",  "gpu ",          "gpu0 ",           "balanced ",   "sequential ", "offload ",
        "disk ", "by what it is", "teacher weights", "student EMA", "sim:1"};
    static const char *const more[] = {"custom needs --teacher_device_map", "window", "across",
                                       "gradient norm", "by what moves in a step"};
    for (int verbose = 0; verbose < 2; verbose++) {
        wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts,
                       "--devices", "sim:2x256MiB@link=1GB/s,compute=1TFLOP/s,cpu=1GFLOP/s",
                       verbose ? "--verbose" : NULL);
        wd_program_succeeded(&program);
        for (size_t i = 0; i < sizeof always / sizeof *always; i++)
            if (!strstr(program.out, always[i]))
                fail_msg("no \"%s\" in\n%s", always[i], program.out);
        for (size_t i = 0; i < sizeof more / sizeof *more; i++)
            if (verbose != (strstr(program.out, more[i]) != NULL))
                fail_msg("\"%s\" in\n%s", more[i], program.out);
        if (!verbose) assert_narrow(program.out);
        assert_memory_equal(program.out, "simulated: ", strlen("simulated: "));
        assert_non_null(strstr(program.out, "sim:0 to sim:1 256 MiB each"));
        assert_non_null(strstr(program.out, "\n* is the fastest strategy that fits."));
        assert_null(strstr(program.out, " \n"));
    }
}

/* However many devices and ranks there are, and however much they have. */
static void plans_are_narrow(void **state)
{
    (void)state;
    static const char *const devices[] = {"sim:h100", "sim:4xrtx4090", "sim:8xh100"};
    for (int i = 0; i < 3; i++)
        for (int ranks = 0; ranks < 2; ranks++) {
            wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype",
                           "bfloat16", "--student_config", student, "--devices", devices[i],
                           "--host_memory", "1TiB", "--ranks", ranks ? "8" : "1", "--hosts",
                           ranks && !i ? "8" : "1", "--num_steps", "10");
            if (ranks && i == 1) { /* four devices are too few for eight ranks */
                wd_program_refused(&program, WD_INVALID_ARGUMENT, "share equally");
                continue;
            }
            wd_program_succeeded(&program);
            assert_narrow(program.out);
        }
}

/* A plan ends with what the run takes, and with the command that starts it, which works. */
static void a_plan_ends_with_a_command(void **state)
{
    (void)state;
    const char *arguments[62];
    int n = 0;
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts, "--devices",
                   "sim:256MiB@link=1GB/s,compute=1TFLOP/s", "--num_steps", "2", "--output_dir",
                   wd_test_path("verdict"));
    wd_program_succeeded(&program);
    const char *verdict = strstr(program.out, "\nfits under ");
    assert_non_null(verdict);
    assert_non_null(strstr(verdict, " of host memory, "));
    assert_non_null(strstr(verdict, " of sim:0, "));
    assert_non_null(strstr(verdict, " samples, a trial: students of less than"));
    char *command = strstr(verdict, "\nrun on such a machine:\n  wandistiller train ");
    assert_non_null(command);
    command = strstr(command, "train ");
    assert_null(strstr(command, "sim:"));
    command[strcspn(command, "\n")] = 0;
    for (char *word = strtok(command, " "); word && n < 60; word = strtok(NULL, " "))
        arguments[n++] = word;
    arguments[n] = NULL;
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
    assert_true(wd_path_exists(wd_test_path("verdict/run.json")));
}

/* The command of a preset names the model to download. The plan says so in JSON, too. */
static void a_preset_becomes_a_hub_id(void **state)
{
    (void)state;
    static const char *const presets[][2] = {{"wan2.1-1.3b", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"},
                                             {"wan2.1-14b", "Wan-AI/Wan2.1-T2V-14B-Diffusers"},
                                             {"wan2.2-a14b", "Wan-AI/Wan2.2-T2V-A14B-Diffusers"},
                                             {"wan2.2-5b", "Wan-AI/Wan2.2-TI2V-5B-Diffusers"}};
    for (int i = 0; i < 4; i++) {
        json_t *plan;
        wd_err err;
        wd_program_run(&program, "plan", "--teacher_preset", presets[i][0], "--teacher_dtype",
                       "bfloat16", "--student_config", student, "--height", "512", "--width", "512",
                       "--host_memory", "512GiB", "--devices", "sim:h200", "--num_steps", "10000",
                       "--batch_size", "16", "--json");
        wd_program_succeeded(&program);
        wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
        const json_t *verdict = json_object_get(plan, "verdict");
        assert_true(json_is_true(json_object_get(verdict, "fits")));
        assert_float_equal(json_number_value(json_object_get(verdict, "samples")), 160000, 0);
        assert_int_equal(json_integer_value(json_object_get(verdict, "steps")), 10000);
        const char *command = json_string_value(json_object_get(verdict, "command"));
        assert_non_null(strstr(command, presets[i][1]));
        assert_non_null(strstr(command, "--data_path prompts.txt"));
        assert_non_null(strstr(command, "--output_dir student"));
        json_decref(plan);
    }
}

/* A strategy that does not fit is a failure, with the ways out that `train` names, the fastest
 * first. One that fits, but is slow, is warned of, by `train`, too. */
static void a_strategy_that_was_asked_for_is_judged(void **state)
{
    (void)state;
    double seconds, last = 0;
    int ways = 0;
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype",
                   "bfloat16", "--student_config", student, "--height", "512", "--width", "512",
                   "--host_memory", "64GiB", "--devices", "sim:rtx4090@cpu=2TFLOP/s",
                   "--teacher_device_strategy", "gpu");
    wd_program_refused(&program, WD_DOES_NOT_FIT,
                       "does not fit under --teacher_device_strategy "
                       "gpu; the commands above do");
    assert_non_null(strstr(program.out, "\ndoes not fit under gpu\n"));
    for (const char *at = program.err; (at = strstr(at, "  # ")); at++, ways++) {
        assert_int_equal(sscanf(at, "  # %lf s per step", &seconds), 1);
        assert_true(seconds >= last);
        last = seconds;
    }
    assert_true(ways >= 2);
    assert_non_null(strstr(program.err, "--teacher_device_strategy offload"));
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype",
                   "bfloat16", "--student_config", student, "--height", "512", "--width", "512",
                   "--host_memory", "64GiB", "--devices", "sim:rtx4090@cpu=2TFLOP/s",
                   "--teacher_device_strategy", "cpu");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--teacher_device_strategy cpu takes "));
    assert_non_null(strstr(program.err, " s per step; offload fits, too, and takes "));
    wd_program_run(&program, RUN("slow"), "--devices",
                   "sim:256MiB@link=100GB/s,compute=100TFLOP/s,cpu=1MFLOP/s",
                   "--teacher_device_strategy", "cpu");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--teacher_device_strategy cpu takes "));
}

/* A plan in which nothing fits recommends nothing, says what is missing, and is a failure. */
static void plan_fails_where_nothing_fits(void **state)
{
    (void)state;
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts, "--devices",
                   TOO_SMALL, "--host_memory", "1MiB", IN_FP32, "--verbose");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit, whatever the strategy");
    assert_non_null(strstr(program.out, "sim:0 1 MiB ("));
    assert_non_null(strstr(program.out, "\nNo strategy fits; "));
    assert_non_null(strstr(program.out, "\ndoes not fit, whatever the strategy\n"));
    assert_null(strstr(program.out, "*"));
    assert_null(strstr(program.out, "wandistiller train"));
    const char *items = strstr(program.out, "by what it is:\n");
    assert_non_null(items);
    assert_memory_equal(items + strcspn(items, "\n") + 48, "     host     sim:0     sim:1\n", 30);
    const char *links = strstr(items, "by what moves in a step:\n");
    assert_non_null(links);
    assert_non_null(strstr(links, "\n  host memory to sim:0 "));
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--devices", TOO_SMALL, "--json");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit");
    assert_non_null(strstr(program.out, "\"recommended\": null"));
    assert_non_null(strstr(program.out, "\"command\": null"));
}

static void plan_says_how_long_a_run_takes(void **state)
{
    (void)state;
    static const char devices[] = "sim:1GiB@link=1GB/s,compute=1GFLOP/s,cpu=1GFLOP/s";
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--devices", devices);
    wd_program_succeeded(&program);
    assert_non_null(
        strstr(program.out, "\n10 epochs of the prompts, which --data_path names, at "));
    assert_non_null(strstr(program.out, " s per step; a million samples take "));
    assert_non_null(strstr(program.out, " for each million samples, "));
    assert_null(strstr(program.out, "guidance"));
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--devices", devices,
                   "--guidance_scale", "1");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "\nthis run has no guidance; with it the teacher makes "));
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts, "--devices",
                   devices, "--num_epochs", "4", "--batch_size", "2", "--target_reuse", "1",
                   "--ranks", "2", "--devices", "sim:2x1GiB@link=1GB/s,compute=1GFLOP/s");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "\n4 steps (4 epochs of 3 prompts), 16 targets, each seen "
                                        "once: "));
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts, "--devices",
                   devices, "--num_steps", "100000", "--max_minutes", "30");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, " (--max_minutes), "));
    assert_non_null(strstr(program.out, ", each seen twice: 30 minutes at "));
}

/* The plan of a student of four steps, with that guidance; json_decref it. */
static json_t *plan_of_guidance(const char *scale)
{
    json_t *plan;
    wd_err err;
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype",
                   "bfloat16", "--student_config", student, "--height", "512", "--width", "512",
                   "--student_steps", "4", "--guidance_scale", scale, "--host_memory", "128GiB",
                   "--devices", "sim:4x24GiB@link=25GB/s,compute=150TFLOP/s", "--json");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    return plan;
}

static double recommended_seconds(const json_t *plan)
{
    const char *recommended = json_string_value(json_object_get(plan, "recommended"));
    const json_t *strategy;
    size_t i;
    json_array_foreach(json_object_get(plan, "strategies"), i, strategy)
    {
        if (!strcmp(json_string_value(json_object_get(strategy, "strategy")), recommended))
            return json_number_value(json_object_get(strategy, "seconds_per_step"));
    }
    fail_msg("no strategy %s", recommended);
    return 0;
}

/* Without guidance the teacher makes one evaluation for each velocity. The plan also says what two
 * would take, as the plan with guidance does; and that one says what LoRAs for four steps save. */
static void guidance_has_its_cost_beside(void **state)
{
    (void)state;
    json_t *without = plan_of_guidance("1"), *with = plan_of_guidance("4");
    const json_t *guided = json_object_get(without, "guided_seconds_per_step");
    assert_true(recommended_seconds(without) < recommended_seconds(with));
    assert_float_equal(json_number_value(guided), recommended_seconds(with), 1e-9);
    assert_true(json_is_null(json_object_get(with, "guided_seconds_per_step")));
    const json_t *loras = json_object_get(with, "step_loras_seconds_per_step");
    assert_float_equal(json_number_value(loras), recommended_seconds(without), 1e-9);
    assert_true(json_is_null(json_object_get(without, "step_loras_seconds_per_step")));
    json_decref(without);
    json_decref(with);
}

/* What a newcomer says fits the machine: a teacher of 2 x 14 billion weights on one card. */
static void defaults_fit_a_large_teacher(void **state)
{
    (void)state;
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--devices", "sim:rtx4090",
                   "--host_memory", "64GiB");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "wan2.2-a14b, bfloat16: 2 x 14.3 billion weights"));
    assert_non_null(strstr(program.out, "; 512x512 pixels, "));
    assert_non_null(strstr(program.out, "\n* offload "));
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--devices", "sim:rtx4090",
                   "--host_memory", "512GiB");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "wan2.2-a14b, bfloat16: 2 x 14.3 billion weights"));
}

static void plan_asks_for_speeds(void **state)
{
    (void)state;
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--devices", "sim:2x64MiB");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "state both speeds");
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--devices", "sim:h100");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "sim:0 80 GiB (494 TFLOP/s in bf16, link 50.4 GB/s)"));
}

/* The prompts are encoded by what the map says: a device without room for it is no plan. */
static void plan_says_what_cannot_encode(void **state)
{
    (void)state;
    wd_err err;
    static const char map[] = "{\"text_encoder\": 1, \"vae\": \"cpu\", \"transformer\": 0, "
                              "\"transformer_2\": 0}";
    const char *file = wd_test_path("encoder.json");
    wd_test_ok(wd_file_write(file, map, sizeof map - 1, &err), &err);
    for (int enough = 0; enough < 2; enough++) {
        wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts,
                       "--cache_dir", wd_test_path("none"), "--devices",
                       enough ? "sim:256MiB,4MiB@link=1GB/s,compute=1GFLOP/s"
                              : "sim:256MiB,128KiB@link=1GB/s,compute=1GFLOP/s",
                       "--teacher_device_map", file);
        assert_int_equal(program.code, enough ? WD_OK : WD_DOES_NOT_FIT);
        const char *said = strstr(program.out, "train refuses custom: sim:1 has no room for what "
                                               "encodes the prompts\n");
        assert_true(enough == !said);
    }
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path", prompts,
                   "--cache_dir", wd_test_path("none"), "--host_memory", "1MiB", "--json");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit, whatever the strategy");
    assert_non_null(strstr(program.out, "\"no_room_to_encode\": \"host memory\""));
}

/* The first device encodes the prompts if it has room for any, else the processor does: a run is
 * not refused for that, and its student is the same. */
static void the_first_device_encodes_where_it_has_room(void **state)
{
    (void)state;
    wd_err err;
    static const char config[] = "{\"hidden_size\": 32, \"depth\": 1}";
    static const char *const devices[] = {"sim:3MiB", "sim:64MiB"};
    static const char *const names[] = {"small-device", "large-device"};
    const char *file = wd_test_path("narrow.json");
    wd_test_ok(wd_file_write(file, config, sizeof config - 1, &err), &err);
    for (int large = 0; large < 2; large++) {
        wd_program_run(&program, RUN(names[large]), "--student_config", file, "--batch_size", "1",
                       "--trajectories", "2", "--num_steps", "4", "--height", "32", "--width", "32",
                       "--save_samples", "false", "--teacher_device_strategy", "cpu", "--devices",
                       devices[large], "--log_level", "info");
        wd_program_succeeded(&program);
        const char *said =
            strstr(program.err, "the processor encodes the prompts: sim:0 has 3 MiB, "
                                "and encoding may take ");
        assert_true(large == !said);
        assert_non_null(strstr(program.err, large ? " texts to encode in float32 on sim:0"
                                                  : " texts to encode in float32 on cpu"));
    }
    assert_same_student(names[0], names[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_device_encodes_where_it_has_room),
        cmocka_unit_test(every_strategy_gives_one_student),
        cmocka_unit_test(a_map_gives_the_same_student),
        cmocka_unit_test(a_run_may_change_its_strategy),
        cmocka_unit_test(a_plan_holds_to_the_byte),
        cmocka_unit_test(state_moves_to_the_host_where_it_must),
        cmocka_unit_test(measuring_leaves_no_memory),
        cmocka_unit_test(own_steps_of_all_sizes_are_planned),
        cmocka_unit_test(off_policy_blocks_are_suggested),
        cmocka_unit_test(a_resumed_run_is_offered_what_it_may_change),
        cmocka_unit_test(fewer_targets_are_suggested),
        cmocka_unit_test(gradients_in_bf16_are_suggested),
        cmocka_unit_test(suggestions_fit_in_host_memory),
        cmocka_unit_test(what_a_plan_asks_for_is_enough),
        cmocka_unit_test(a_smaller_window_is_suggested),
        cmocka_unit_test(a_way_out_is_whole),
        cmocka_unit_test(a_map_may_be_what_does_not_fit),
        cmocka_unit_test(what_a_map_puts_together_has_one_workspace),
        cmocka_unit_test(a_text_encoder_leaves_nothing),
        cmocka_unit_test(a_rank_may_be_what_does_not_fit),
        cmocka_unit_test(a_host_budget_holds_too),
        cmocka_unit_test(memory_that_is_gone_is_reported),
        cmocka_unit_test(a_published_model_is_planned),
        cmocka_unit_test(mapped_weights_need_a_page_cache),
        cmocka_unit_test(what_fits_is_not_streamed),
        cmocka_unit_test(a_device_may_be_too_small_to_measure),
        cmocka_unit_test(plan_needs_a_teacher),
        cmocka_unit_test(plan_refuses_what_train_refuses),
        cmocka_unit_test(plan_prints_tables),
        cmocka_unit_test(plans_are_narrow),
        cmocka_unit_test(a_plan_ends_with_a_command),
        cmocka_unit_test(a_preset_becomes_a_hub_id),
        cmocka_unit_test(a_strategy_that_was_asked_for_is_judged),
        cmocka_unit_test(plan_fails_where_nothing_fits),
        cmocka_unit_test(plan_says_how_long_a_run_takes),
        cmocka_unit_test(guidance_has_its_cost_beside),
        cmocka_unit_test(plan_asks_for_speeds),
        cmocka_unit_test(defaults_fit_a_large_teacher),
        cmocka_unit_test(plan_says_what_cannot_encode),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
