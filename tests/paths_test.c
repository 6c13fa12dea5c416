/* Paths are bytes: a folder whose name is Latin-1 works as any other, and JSON has U+FFFD there. */
#include "runs.h"

#include "io/json/json.h"
#include "teacher_copy.h"

static const char shown[] = "caf\xef\xbf\xbd";

static wd_program program;
static char model[WD_PATH_MAX], data[WD_PATH_MAX], out[WD_PATH_MAX];

static int prepare_latin_1(void **state)
{
    static const char prompts[] = "fox\nowl\n";
    wd_err err;
    prepare(state);
    wd_test_copy_teacher(model, "caf\xe9");
    snprintf(data, sizeof data, "%s", wd_test_in(wd_test_folder(), "prompts-\xe9.txt"));
    snprintf(out, sizeof out, "%s", wd_test_in(wd_test_folder(), "out-\xe9"));
    wd_test_ok(wd_file_write(data, prompts, sizeof prompts - 1, &err), &err);
    return 0;
}

static json_t *printed(void)
{
    json_t *json = json_loads(program.out, 0, NULL);
    assert_non_null(json);
    return json;
}

static void descriptions_show_where_it_is(void **state)
{
    (void)state;
    wd_program_run(&program, "inspect", model);
    wd_program_succeeded(&program);
    wd_program_run(&program, "inspect", model, "--json");
    wd_program_succeeded(&program);
    json_t *json = printed();
    assert_non_null(strstr(json_string_value(json_object_get(json, "path")), shown));
    json_decref(json);
    wd_program_run(&program, "plan", "--teacher_path", model, "--data_path", data, "--height", "32",
                   "--width", "32", "--json");
    wd_program_succeeded(&program);
    json = printed();
    assert_non_null(strstr(json_string_value(json_object_get(json, "teacher")), shown));
    json_decref(json);
}

static void a_run_goes_through(void **state)
{
    (void)state;
    wd_err err;
    json_t *run;
    wd_program_run(&program, "train", "--teacher_path", model, "--data_path", data, "--output_dir",
                   out, "--student_config", wd_test_path("student.json"), "--num_steps", "1",
                   "--batch_size", "2", "--trajectories", "2", "--height", "32", "--width", "32");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_load(&run, wd_test_in(out, "run.json"), &err), &err);
    const json_t *options = json_object_get(run, "options");
    assert_non_null(strstr(json_string_value(json_object_get(options, "teacher_path")), shown));
    json_decref(run);
    wd_program_run(&program, "sample", "--model", out, "--prompt", "fox", "--steps", "1", "--out",
                   wd_test_in(out, "fox-\xe9.png"));
    wd_program_succeeded(&program);
    wd_program_run(&program, "eval", "--teacher", model, "--student", out, "--prompts", data,
                   "--steps", "1", "--json");
    wd_program_succeeded(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptions_show_where_it_is),
        cmocka_unit_test(a_run_goes_through),
    };
    return cmocka_run_group_tests(tests, prepare_latin_1, NULL);
}
