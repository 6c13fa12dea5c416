/* Whether a run draws sample sheets where nobody says so: if they take little of its time and fit
 * into memory. `plan` and `train` say the same, and the student is the same. */
#include "io/json/json.h"
#include "runs.h"

static wd_program program;

/* A sheet of one picture in one step of the sampler takes little of 1000 steps. */
#define CHEAP "--num_steps", "1000", "--sample_steps", "1", "--sample_prompts", "a fox"
#define INFO "--log_level", "info"

static bool has_sheet(const char *run, int step)
{
    char name[64], path[WD_PATH_MAX];
    snprintf(name, sizeof name, "samples/step-%08d.png", step);
    return wd_path_join(path, run, name, NULL) == WD_OK && wd_path_exists(path);
}

/* The line of `text` that has `part`, without its end; it lives until the next call. */
static const char *line_with(const char *text, const char *part)
{
    static char line[512];
    const char *at = strstr(text, part);
    if (!at) fail_msg("no \"%s\" in\n%s", part, text);
    while (at > text && at[-1] != '\n') at--;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

/* Arguments of `train` as those of `plan`. */
static void run_plan(const char *const *train)
{
    const char *plan[64] = {"plan"};
    int n = 1;
    while (train[n] && n < 63) plan[n] = train[n], n++;
    wd_program_run_(&program, plan);
    wd_program_succeeded(&program);
}

/* The student is that of a run without sheets, to the bit. */
static void cheap_sheets_are_drawn(void **state)
{
    (void)state;
    char said[512];
    const char *out = wd_test_path("cheap"), *none = wd_test_path("none");
    const char *const arguments[] = {SMALL_RUN(out), CHEAP, INFO, "--stop_at_step", "100", NULL};
    run_plan(arguments);
    snprintf(said, sizeof said, "%s", line_with(program.out, "sample sheets: every 100 steps, "));
    assert_non_null(strstr(said, " % of the time"));
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
    assert_string_equal(line_with(program.err, "sample sheets"), said);
    assert_true(has_sheet(out, 100));
    wd_program_run(&program, SMALL_RUN(none), CHEAP, INFO, "--stop_at_step", "100",
                   "--save_samples", "false");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "sample sheets"));
    assert_non_null(strstr(program.err, "means nothing with --save_samples false"));
    assert_false(has_sheet(none, 100));
    assert_same_weights(out, none);
}

static int64_t number_in_run(const char *run, const char *key)
{
    char path[WD_PATH_MAX];
    wd_err err;
    json_t *file;
    wd_test_ok(wd_path_join(path, run, "run.json", &err), &err);
    wd_test_ok(wd_json_load(&file, path, &err), &err);
    const int64_t number = json_integer_value(json_object_get(file, key));
    json_decref(file);
    return number;
}

/* A sheet of the usual size takes longer than 8 steps. A prompt of the sheets that is longer than
 * all others makes rows of text, drawn or not: a faster machine makes the same student. */
static void dear_sheets_are_not_drawn(void **state)
{
    (void)state;
    static const char prompt[] = "a fox that sits in the snow beside an old red telephone box";
    char said[512];
    const char *out = wd_test_path("dear"), *asked = wd_test_path("asked");
    const char *const arguments[] = {SMALL_RUN(out), INFO, "--sample_prompts", prompt, NULL};
    run_plan(arguments);
    snprintf(said, sizeof said, "%s", line_with(program.out, "no sample sheets: one would take "));
    assert_non_null(strstr(said, "% of the time of the run; --save_samples true draws them"));
    assert_null(strstr(program.out, "while sampling")); /* no memory is planned for them */
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
    assert_string_equal(line_with(program.err, "sample sheets"), said);
    assert_false(has_sheet(out, 8));
    wd_program_run(&program, SMALL_RUN(asked), INFO, "--sample_prompts", prompt, "--save_samples");
    wd_program_succeeded(&program);
    assert_non_null(
        strstr(line_with(program.err, "sample sheets: one at the end, "), "of the time"));
    assert_true(has_sheet(asked, 8));
    assert_int_equal(number_in_run(out, "text_tokens"), number_in_run(asked, "text_tokens"));
    assert_same_weights(out, asked);
    wd_program_run(&program, SMALL_RUN(asked), INFO, "--sample_prompts", prompt,
                   "--sample_interval", "4", "--stop_at_step", "1");
    wd_program_succeeded(&program);
    line_with(program.err, "% of the time between two; --save_samples true draws them");
}

/* Where the VAE has no room, a run that fits without sheets is not refused for them. */
static void sheets_that_do_not_fit_are_left_out(void **state)
{
    (void)state;
    wd_err err;
    static const char map[] = "{\"text_encoder\": \"cpu\", \"vae\": 1, \"transformer\": \"cpu\", "
                              "\"transformer_2\": \"cpu\"}";
    const char *file = wd_test_path("map.json"), *out = wd_test_path("small");
    wd_test_ok(wd_file_write(file, map, sizeof map - 1, &err), &err);
#define SMALL                                                                                      \
    SMALL_RUN(out), CHEAP, INFO, "--stop_at_step", "2", "--teacher_device_map", file, "--devices", \
        "sim:64MiB,100kB@compute=1TFLOP/s,link=1GB/s"
    wd_program_run(&program, SMALL);
    wd_program_succeeded(&program);
    line_with(program.err, "no sample sheets: there is no memory for them");
    wd_program_run(&program, SMALL, "--save_samples", "true");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit");
    wd_program_run(&program, SMALL, "--host_memory", "1MiB");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit");
    assert_null(strstr(program.err, "sample sheets"));
}

static int64_t planned_peak(const char *run, const char *device)
{
    char path[WD_PATH_MAX];
    wd_err err;
    json_t *file;
    wd_test_ok(wd_path_join(path, run, "run.json", &err), &err);
    wd_test_ok(wd_json_load(&file, path, &err), &err);
    const json_t *peaks = json_object_get(json_object_get(file, "memory"), "devices");
    const int64_t peak = json_integer_value(json_object_get(peaks, device));
    json_decref(file);
    assert_true(peak > 0);
    return peak;
}

/* Runs on a simulated device of so many bytes, with sheets, and checks what decodes them. */
static void decodes_within(int64_t bytes, const char *out, const char *decoder)
{
    char device[64], text[96];
    snprintf(device, sizeof device, "sim:%lldB@link=1GB/s,compute=1TFLOP/s", (long long)bytes);
    snprintf(text, sizeof text, "decoded on %s", decoder);
    wd_program_run(&program, SMALL_RUN(out), INFO, "--num_steps", "2", "--sample_steps", "2",
                   "--sample_prompts", "a fox", "--save_samples", "--devices", device,
                   "--teacher_device_strategy", "gpu", "--teacher_window", "4");
    wd_program_succeeded(&program);
    if (!strstr(line_with(program.err, "sample sheets"), text))
        fail_msg("expected \"%s\" in \"%s\"", text, line_with(program.err, "sample sheets"));
    assert_true(has_sheet(out, 2));
}

static void assert_same_sheet(const char *a, const char *b)
{
    char path[2][WD_PATH_MAX], hash[2][33];
    wd_err err;
    for (int i = 0; i < 2; i++) {
        wd_test_ok(wd_path_join(path[i], i ? b : a, "samples/step-00000002.png", &err), &err);
        wd_test_ok(wd_file_hash(hash[i], path[i], &err), &err);
    }
    assert_string_equal(hash[0], hash[1]);
}

/* The student's device decodes in a budget of what is planned, and the processor where there is a
 * byte less; a run is refused only if that does not fit either. The student is the same. */
static void the_students_device_decodes_where_it_has_room(void **state)
{
    (void)state;
    char device[64];
    const char *roomy = wd_test_path("roomy"), *exact = wd_test_path("exact"),
               *tight = wd_test_path("tight"), *tightest = wd_test_path("tightest");
    decodes_within((int64_t)1 << 28, roomy, "sim:0");
    const int64_t most = planned_peak(roomy, "sim:0");
    decodes_within(most, exact, "sim:0");
    decodes_within(most - 1, tight, "cpu to save memory of sim:0");
    const int64_t least = planned_peak(tight, "sim:0");
    assert_true(least < most - (1 << 20));
    decodes_within(least, tightest, "cpu to save memory of sim:0");
    assert_same_weights(roomy, tightest);
    assert_same_sheet(roomy, tightest);
    snprintf(device, sizeof device, "sim:%lldB@link=1GB/s,compute=1TFLOP/s", (long long)least - 1);
    wd_program_run(&program, SMALL_RUN(roomy), INFO, "--save_samples", "--sample_prompts", "a fox",
                   "--sample_steps", "2", "--devices", device, "--teacher_device_strategy", "gpu",
                   "--teacher_window", "4", "--optimizer_device", "device");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "1 B are missing (1 bytes)");
}

/* How long a run lasts says --data_path; a preset has nothing to decode pictures with. */
static void what_is_not_known_is_said(void **state)
{
    (void)state;
    wd_program_run(&program, "plan", "--teacher_path", teacher);
    wd_program_succeeded(&program);
    line_with(program.out, "sample sheets: whether there are any follows from the length of");
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--num_steps", "100000");
    wd_program_succeeded(&program);
    line_with(program.out, "sample sheets: every 10000 steps, ");
    line_with(program.out, "sampler and VAE, while sampling");
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--num_steps", "100000", "--json");
    line_with(program.out, "\"sample_sheets\": true");
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--max_minutes", "1e6");
    wd_program_succeeded(&program);
    line_with(program.out, "sample sheets: one at the end, less than 0.1 % of the time");
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.1-1.3b", "--num_steps", "100000",
                   "--devices", "sim:h100");
    line_with(program.out, "sample sheets are not planned for a preset");
}

/* The line that says how much of the time sheets take, which are drawn every 10 of 1e8 steps. */
static const char *sheets_of(const char *student_steps, const char *sample_steps)
{
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--num_steps", "100000000",
                   "--save_samples", "--sample_interval", "10", "--sample_steps", sample_steps,
                   "--student_steps", student_steps, "--trajectory_steps", "8", "--devices",
                   "sim:1x8GiB@link=25GB/s,compute=1TFLOP/s,cpu=1TFLOP/s,memory=50GB/s");
    wd_program_succeeded(&program);
    return line_with(program.out, "sample sheets: every 10 steps, ");
}

/* --sample_steps is how many steps the teacher makes for its one row of a run. */
static void students_of_few_steps_draw_with_their_own(void **state)
{
    (void)state;
    char two[512];
    snprintf(two, sizeof two, "%s", sheets_of("2", "2"));
    assert_string_equal(sheets_of("2", "200"), two);
    assert_string_not_equal(sheets_of("4", "2"), two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cheap_sheets_are_drawn),
        cmocka_unit_test(dear_sheets_are_not_drawn),
        cmocka_unit_test(sheets_that_do_not_fit_are_left_out),
        cmocka_unit_test(the_students_device_decodes_where_it_has_room),
        cmocka_unit_test(students_of_few_steps_draw_with_their_own),
        cmocka_unit_test(what_is_not_known_is_said),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
