/* What options of `wandistiller train` mean for a whole run: what its run.json keeps of them, and
 * that those which never change the student do not. */
#include "runs.h"

static wd_program program;

/* A run of 6 steps of one block at 32x32. */
#define RUN(out)                                                                                   \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", wd_test_path(out),       \
        "--height", "32", "--width", "32", "--trajectories", "4", "--trajectory_steps", "4",       \
        "--log_level", "warning", "--seed", "3"

static json_t *run_json(const char *run)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_path(run), "run.json", &err), &err);
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static double number_of(const json_t *run, const char *part, const char *name)
{
    const json_t *value = json_object_get(json_object_get(run, part), name);
    if (!json_is_number(value)) fail_msg("run.json: %s has no number \"%s\"", part, name);
    return json_number_value(value);
}

/* A value that followed from another one follows again when the run is repeated with another. */
static void a_file_keeps_what_was_said(void **state)
{
    (void)state;
    static const char deeper[] = "{\"depth\": 1, \"hidden_size\": 96}";
    wd_err err;
    wd_program_run(&program, RUN("said"), "--num_epochs", "2", "--guidance_scale", "2");
    wd_program_succeeded(&program);
    json_t *first = run_json("said");
    const json_t *said = json_object_get(first, "options");
    assert_int_equal(number_of(first, "options", "num_epochs"), 2);
    assert_null(json_object_get(said, "num_steps"));
    assert_null(json_object_get(said, "guidance_scale_2"));
    assert_null(json_object_get(said, "lr"));
    assert_int_equal(number_of(first, "options", "trajectory_steps"), 4);
    const double steps = number_of(first, "resolved", "num_steps");
    assert_true(steps > 0 && number_of(first, "resolved", "guidance_scale_2") == 2);
    wd_test_ok(wd_file_write(wd_test_path("narrow.json"), deeper, sizeof deeper - 1, &err), &err);
    wd_program_run(&program, "train", "--config", wd_test_path("said/run.json"), "--output_dir",
                   wd_test_path("again"), "--num_epochs", "4", "--guidance_scale", "3",
                   "--student_config", wd_test_path("narrow.json"));
    wd_program_succeeded(&program);
    json_t *again = run_json("again");
    assert_true(number_of(again, "resolved", "num_steps") == 2 * steps);
    assert_true(number_of(again, "resolved", "guidance_scale_2") == 3);
    assert_true(number_of(again, "resolved", "lr") > 1.2 * number_of(first, "resolved", "lr"));
    json_decref(first);
    json_decref(again);
}

static void one_rank_is_this_process(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("alone"), "--num_steps", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("one"), "--num_steps", "2", "--distributed", "--nproc_per_node",
                   "1");
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("alone"), wd_test_path("one"));
    wd_program_run(&program, RUN("one"), "--num_steps", "2", "--distributed", "--multi_gpu",
                   "--devices", "cpu");
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("alone"), wd_test_path("one"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_keeps_what_was_said),
        cmocka_unit_test(one_rank_is_this_process),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
