/* `plan --largest_student`: the largest students fit, and the next larger ones do not; what it
 * prints can be pasted; and a refusal of the default student names the largest that fits. */
#include "program.h"

#include "io/file/file.h"
#include "io/json/json.h"

static wd_program program;
static const char teacher[] = WD_SOURCE_DIR "/models/wan-tiny";

#define A14B(devices)                                                                              \
    "plan", "--teacher_preset", "wan2.2-a14b", "--height", "512", "--width", "512",                \
        "--host_memory", "64GiB", "--devices", devices "@cpu=2TFLOP/s,memory=30GB/s"

static json_t *parsed(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    if (!json) fail_msg("line %d: %s", error.line, error.text);
    return json;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    assert_non_null(value);
    return value;
}

static void write_config(const json_t *config)
{
    wd_err err;
    wd_test_ok(wd_json_save(config, wd_test_path("student.json"), &err), &err);
}

/* Plans the run of a student.json with these options, as JSON. */
static json_t *plan_pasted(const char *const *base, bool checkpointing, json_int_t batch)
{
    const char *arguments[40];
    char size[24], accumulation[24];
    int n = 0;
    while (*base) arguments[n++] = *base++;
    snprintf(size, sizeof size, "%" JSON_INTEGER_FORMAT, batch);
    snprintf(accumulation, sizeof accumulation, "%" JSON_INTEGER_FORMAT, 16 / batch);
    const char *const more[] = {"--student_config",
                                wd_test_path("student.json"),
                                "--json",
                                "--batch_size",
                                size,
                                "--gradient_accumulation_steps",
                                accumulation};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) arguments[n++] = more[i];
    if (checkpointing) arguments[n++] = "--gradient_checkpointing";
    arguments[n] = NULL;
    wd_program_run_(&program, arguments);
    return parsed(program.out);
}

static const json_t *strategy_of(const json_t *plan, const char *name)
{
    const json_t *all = json_object_get(plan, "strategies");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!strcmp(text_of(json_array_get(all, i), "strategy"), name))
            return json_array_get(all, i);
    fail_msg("the plan has no strategy %s", name);
    return NULL;
}

/* The plan of the config and the options is the one that was promised. */
static void check_fits(const json_t *student, const char *const *base)
{
    write_config(json_object_get(student, "student_config"));
    json_t *plan =
        plan_pasted(base, json_is_true(json_object_get(student, "gradient_checkpointing")),
                    integer_of(student, "batch_size"));
    wd_program_succeeded(&program);
    const char *strategy = text_of(student, "strategy");
    assert_string_equal(text_of(plan, "train_takes"), strategy);
    assert_int_equal(integer_of(plan, "student_parameters"),
                     integer_of(student, "student_parameters"));
    const json_t *chosen = strategy_of(plan, strategy);
    assert_true(json_is_true(json_object_get(chosen, "fits")));
    assert_true(json_real_value(json_object_get(chosen, "seconds_per_step")) ==
                json_real_value(json_object_get(student, "seconds_per_step")));
    assert_string_equal(text_of(chosen, "limited_by"), text_of(student, "limited_by"));
    static const char *const places[] = {"optimizer_device", "ema_device"};
    for (int i = 0; i < 2; i++) /* where the state is, not where the options have it */
        assert_string_equal(text_of(plan, places[i]), text_of(student, places[i]));
    json_decref(plan);
}

/* With one block more, or one head, nothing fits but `cpu`, whatever may be changed. Returns
 * whether there was a larger one. */
static bool check_next_lacks(const json_t *student, const char *const *base)
{
    const bool narrows = !strcmp(text_of(student, "shape"), "the teacher's depth");
    const char *key = narrows ? "hidden_size" : "depth", *why = text_of(student, "no_larger_since");
    if (!strstr(why, narrows ? " for another head" : " for another block")) {
        assert_memory_equal(why, "th", 2); /* "these are all blocks of ..." */
        return false;
    }
    assert_non_null(strstr(why, " lacks "));
    json_t *larger = json_deep_copy(json_object_get(student, "student_config"));
    json_object_set_new(larger, key, json_integer(integer_of(larger, key) + (narrows ? 128 : 1)));
    write_config(larger);
    json_decref(larger);
    for (int checkpointing = 0; checkpointing < 2; checkpointing++) {
        json_t *plan = plan_pasted(base, checkpointing, 1);
        const json_t *all = json_object_get(plan, "strategies");
        for (size_t i = 0; i < json_array_size(all); i++) {
            const json_t *strategy = json_array_get(all, i);
            if (strcmp(text_of(strategy, "strategy"), "cpu"))
                assert_false(json_is_true(json_object_get(strategy, "fits")));
        }
        json_decref(plan);
    }
    return true;
}

/* Seeks the largest students as JSON and checks them; returns the weights of the largest. */
static json_int_t check_all(const char *const *base, int lacking)
{
    const char *arguments[40];
    int n = 0, larger = 0;
    json_int_t most = 0, before = 0;
    for (const char *const *from = base; *from;) arguments[n++] = *from++;
    arguments[n++] = "--batch_size";
    arguments[n++] = "16";
    arguments[n++] = "--largest_student";
    arguments[n++] = "--json";
    arguments[n] = NULL;
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
    json_t *found = parsed(program.out);
    assert_float_equal(json_real_value(json_object_get(found, "samples_per_step")), 16, 0);
    const json_t *students = json_object_get(found, "largest_students");
    assert_in_range(json_array_size(students), 3, 4);
    for (size_t i = 0; i < json_array_size(students); i++) {
        const json_t *student = json_array_get(students, i);
        const json_int_t weights = integer_of(student, "student_parameters");
        assert_int_equal(integer_of(student, "batch_size") *
                             integer_of(student, "gradient_accumulation_steps"),
                         16);
        assert_float_equal(
            json_real_value(json_object_get(student, "days_per_million_samples")),
            json_real_value(json_object_get(student, "seconds_per_step")) * 1e6 / 16 / 86400, 1e-4);
        assert_true(!i || weights <= before);
        if (!i) most = weights;
        before = weights;
        check_fits(student, base);
        larger += check_next_lacks(student, base);
    }
    assert_true(larger >= lacking);
    json_decref(found);
    return most;
}

static void the_largest_fit_and_larger_ones_do_not(void **state)
{
    (void)state;
    const char *const small[] = {A14B("sim:rtx3060"), NULL};
    const char *const large[] = {A14B("sim:rtx4090"), NULL};
    const char *const on_device[] = {A14B("sim:rtx4090"), "--optimizer_device", "device", NULL};
    const json_int_t few = check_all(small, 2), many = check_all(large, 2);
    assert_true(few < many);
    assert_true(check_all(on_device, 2) < many);
}

/* A strategy that is asked for is kept, be it slow. */
static void a_strategy_is_kept(void **state)
{
    (void)state;
    wd_program_run(&program, A14B("sim:rtx4090"), "--batch_size", "16", "--largest_student",
                   "--json", "--teacher_device_strategy", "cpu");
    wd_program_succeeded(&program);
    json_t *found = parsed(program.out);
    const json_t *students = json_object_get(found, "largest_students");
    for (size_t i = 0; i < json_array_size(students); i++) {
        const json_t *student = json_array_get(students, i);
        assert_string_equal(text_of(student, "strategy"), "cpu");
        assert_non_null(strstr(text_of(student, "command"), "--teacher_device_strategy cpu"));
    }
    assert_true(json_array_size(students) > 0);
    json_decref(found);
}

/* Text and JSON say the same; a shape is Wan2.1-1.3B's own. */
static void text_has_configs_and_commands(void **state)
{
    (void)state;
    wd_program_run(&program, A14B("sim:h100"), "--batch_size", "4", "--largest_student");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "  echo '{\"hidden_size\": 1536, \"depth\": 30, "
                                        "\"ffn_dim\": 8960}' > student.json\n"
                                        "  wandistiller train --teacher_path "));
    assert_non_null(strstr(program.out, "these are all blocks of Wan2.1-1.3B\n"));
    assert_non_null(strstr(program.out, "1.42 billion weights, Wan2.1-1.3B's sizes:\n"));
    assert_non_null(strstr(program.out, " --student_config student.json "));
    assert_null(strstr(program.out, "--largest_student"));
}

static void what_contradicts_is_refused(void **state)
{
    (void)state;
    wd_program_run(&program, A14B("sim:rtx4090"), "--largest_student", "--student_config",
                   "student.json");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--largest_student and --student_config: ");
    wd_program_run(&program, A14B("sim:rtx4090"), "--largest_student", "--resume", "auto");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--largest_student and --resume: ");
    wd_program_run(&program, A14B("sim:rtx4090"), "--largest_student", "--svg", "plan.svg");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--largest_student and --svg: ");
    wd_program_run(&program, "train", "--largest_student");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "largest_student");
}

static void what_lacks_is_said_if_none_fits(void **state)
{
    (void)state;
    wd_program_run(&program, A14B("sim:rtx3060"), "--devices",
                   "sim:1GiB@link=25GB/s,compute=80TFLOP/s,cpu=1TFLOP/s", "--largest_student");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "no student fits: with ");
    assert_non_null(strstr(program.err, " of width "));
    assert_non_null(strstr(program.err, " sim:0 lacks "));
}

/* ---- train ---- */

#define TINY(name)                                                                                 \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--output_dir", wd_test_path(name), "--batch_size", "64", "--num_steps", "2",              \
        "--target_replay", "1024", "--optimizer_device", "device", "--devices",                    \
        "sim:42MiB@link=1GB/s,compute=1TFLOP/s,cpu=1TFLOP/s"

/* Trains the student that a refusal names, with the options that it names. */
static void train_what_is_named(const char *line)
{
    const char *arguments[40] = {TINY("named"), "--student_config", wd_test_path("student.json")};
    int n = 0;
    char *config = strchr(line, '{'), *end = strchr(line, '}');
    assert_true(config && end);
    char *options = strstr(end, " in the file of --student_config");
    assert_non_null(options);
    options += strlen(" in the file of --student_config");
    *strchr(options, '\n') = 0;
    end[1] = 0;
    json_t *json = parsed(config);
    write_config(json);
    json_decref(json);
    while (arguments[n]) n++;
    if (*options) {
        assert_memory_equal(options, ", with ", 7);
        for (char *word = strtok(options + 7, " "); word; word = strtok(NULL, " ")) {
            assert_true(n < 39);
            arguments[n++] = word;
        }
    }
    arguments[n] = NULL;
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
}

static void a_refusal_names_the_largest(void **state)
{
    (void)state;
    wd_err err;
    static char refusal[sizeof program.err];
    static const char prompts[] = "a red apple\n", config[] = "{\"depth\": 6}";
    wd_test_ok(wd_file_write(wd_test_path("prompts.txt"), prompts, sizeof prompts - 1, &err), &err);
    wd_program_run(&program, TINY("refused"));
    wd_program_refused(&program, WD_DOES_NOT_FIT, "the largest student that fits has ");
    assert_non_null(strstr(program.err, "--largest_student lists students of several shapes"));
    memcpy(refusal, program.err, sizeof refusal);
    train_what_is_named(strstr(refusal, "the largest student that fits has "));
    wd_test_ok(wd_file_write(wd_test_path("deep.json"), config, sizeof config - 1, &err), &err);
    wd_program_run(&program, TINY("deep"), "--student_config", wd_test_path("deep.json"));
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit");
    assert_null(strstr(program.err, "the largest student"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_fit_and_larger_ones_do_not),
        cmocka_unit_test(a_strategy_is_kept),
        cmocka_unit_test(text_has_configs_and_commands),
        cmocka_unit_test(what_contradicts_is_refused),
        cmocka_unit_test(what_lacks_is_said_if_none_fits),
        cmocka_unit_test(a_refusal_names_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
