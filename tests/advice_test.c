/* A run that nearly fits on a device where it would be much faster is told what lets it fit. */
#include "program.h"

static wd_program program;

/* Plans A14B's teacher and student for one device with so much memory, and with these options. */
static void plan_with(const char *gib, const char *const *options)
{
    char devices[96];
    const char *arguments[40] = {"plan",
                                 "--teacher_preset",
                                 "wan2.2-a14b",
                                 "--teacher_dtype",
                                 "bfloat16",
                                 "--mixed_precision",
                                 "bf16",
                                 "--batch_size",
                                 "16",
                                 "--student_steps",
                                 "4",
                                 "--trajectory_steps",
                                 "8",
                                 "--gradient_checkpointing",
                                 "--host_memory",
                                 "64GiB",
                                 "--devices",
                                 devices};
    int n = 18;
    snprintf(devices, sizeof devices, "sim:%sGiB@link=25GB/s,compute=150TFLOP/s,cpu=2TFLOP/s", gib);
    while (*options) arguments[n++] = *options++;
    wd_program_run_(&program, arguments);
}

static const char *const none[] = {NULL};

/* Plans with the options that the warning names, which begins with `warning`. */
static void follow(const char *gib, const char *warning)
{
    const char *added[8] = {NULL};
    int n = 0;
    char *said = strstr(program.err, warning), *add = said ? strstr(said, "Add --") : NULL;
    assert_non_null(add);
    char *end = strstr(add, ": the run then takes ");
    assert_non_null(end);
    assert_non_null(strstr(end, ", with offload"));
    *end = 0;
    for (char *word = strtok(add + strlen("Add "), " "); word && n < 7; word = strtok(NULL, " "))
        added[n++] = strdup(word);
    plan_with(gib, added);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "* offload "));
    assert_null(strstr(program.err, "fastest strategy that fits"));
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)added[i]);
}

static void what_is_much_faster_is_named(void **state)
{
    (void)state;
    static const char *const here[] = {"--optimizer_device", "device", NULL};
    plan_with("18", here);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "* cpu "));
    assert_non_null(strstr(program.err, "Add --ema_device host: "));
    follow("18", "cpu is the fastest strategy that fits, and takes ");
}

/* Plans a student of 40 blocks, of batch 1, for a device with so much memory and these options. */
static void plan_deep(const char *gib, const char *const *options)
{
    static const char config[] = "{\"hidden_size\": 1536, \"depth\": 40}";
    wd_err err;
    char devices[96];
    const char *arguments[28] = {"plan",
                                 "--teacher_preset",
                                 "wan2.2-a14b",
                                 "--student_config",
                                 wd_test_path("student.json"),
                                 "--height",
                                 "512",
                                 "--width",
                                 "512",
                                 "--batch_size",
                                 "1",
                                 "--student_steps",
                                 "4",
                                 "--gradient_checkpointing",
                                 "--host_memory",
                                 "80GiB",
                                 "--optimizer_device",
                                 "host",
                                 "--devices",
                                 devices};
    int n = 20;
    snprintf(devices, sizeof devices, "sim:%sGiB@link=25GB/s,compute=150TFLOP/s,cpu=2TFLOP/s", gib);
    wd_test_ok(wd_file_write(arguments[4], config, strlen(config), &err), &err);
    while (*options) arguments[n++] = *options++;
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "* cpu "));
}

/* Where gradients in bf16 help, where only changes do that make a worse student, and where none. */
static void what_it_costs_is_said(void **state)
{
    (void)state;
    static const char *const narrow[] = {"--gradient_dtype", "bfloat16", NULL};
    static const char *const small[] = {
        "--gradient_dtype", "bfloat16", "--target_replay", "1024", "--on_policy_share", "0", NULL};
    plan_deep("12", none);
    assert_non_null(strstr(program.err, " Add --gradient_dtype bfloat16: the run then takes "));
    plan_deep("9", narrow);
    assert_non_null(strstr(program.err,
                           " Add --target_replay 1024 --on_policy_share 0, which makes "
                           "a worse student: the run then takes "));
    plan_deep("7", small);
    assert_non_null(strstr(program.err, "; offload would take "));
    assert_non_null(strstr(program.err, " s, but sim:0 lacks "));
    assert_null(strstr(program.err, "Add --"));
}

static void nothing_is_said_without_need(void **state)
{
    (void)state;
    static const char *const asked[] = {"--teacher_device_strategy", "cpu", NULL};
    plan_with("20", none);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "* offload "));
    assert_null(strstr(program.err, "fastest strategy that fits"));
    plan_with("19", asked);
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "fastest strategy that fits"));
}

/* The quick start's run, with other options for its batch, on this device. */
static void plan_quick_start(const char *devices, const char *const *options)
{
    const char *arguments[32] = {"plan",  "--teacher_preset", "wan2.1-1.3b", "--height",
                                 "512",   "--width",          "512",         "--student_steps",
                                 "4",     "--num_steps",      "10000",       "--host_memory",
                                 "32GiB", "--devices",        devices};
    int n = 15;
    while (*options) arguments[n++] = *options++;
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
}

static double seconds_of(const char *text, const char *before)
{
    const char *at = strstr(text, before);
    assert_non_null(at);
    return strtod(at + strlen(before), NULL);
}

/* Checkpointing that only costs time is named, with what the run takes without it: also where the
 * optimizer's state then moves to host memory. Not where the run does not fit without it. */
static void needless_checkpointing_is_named(void **state)
{
    (void)state;
    static const char said[] = "without --gradient_checkpointing, and then takes ";
    static const char *const with[] = {"--batch_size", "16", "--gradient_checkpointing", NULL};
    static const char *const without[] = {"--batch_size", "16", NULL};
    static const char *const on_device[] = {
        "--batch_size", "16", "--gradient_checkpointing", "--optimizer_device", "device", NULL};
    plan_quick_start("sim:rtx4090", with);
    const double expected = seconds_of(program.err, said);
    plan_quick_start("sim:rtx4090", without);
    assert_null(strstr(program.err, said));
    assert_non_null(strstr(program.out, "in host memory, since sim:0 has no room"));
    assert_float_equal(seconds_of(program.out, " hours at "), expected, 1e-9);
    plan_quick_start("sim:rtx4090", on_device);
    assert_null(strstr(program.err, said));
    plan_quick_start("sim:rtx4080", with);
    assert_null(strstr(program.err, said));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_much_faster_is_named),
        cmocka_unit_test(what_it_costs_is_said),
        cmocka_unit_test(nothing_is_said_without_need),
        cmocka_unit_test(needless_checkpointing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
