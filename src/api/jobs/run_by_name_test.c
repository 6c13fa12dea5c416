/* Jobs whose options were set by name: their results as JSON, and the same student as by struct. */
#include "io/json/json.h"
#include "testing.h"
#include "wandistiller.h"

static char prompts[160], config[160];

typedef struct value {
    const char *name, *text;
} value;

/* Runs the job with `count` values; the caller frees the JSON. */
static json_t *run(wd_status expected, wd_job job, const value *v, int count, wd_err *err)
{
    wd_options *o;
    char *text = NULL;
    wd_test_ok(wd_options_new(&o, job, err), err);
    for (int i = 0; i < count; i++) wd_test_ok(wd_options_set(o, v[i].name, v[i].text, err), err);
    const wd_status status = wd_options_run(&text, o, err);
    wd_options_free(o);
    if (status != expected) wd_test_ok(status, err);
    assert_int_equal(status, expected);
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    wd_text_free(text);
    return json;
}

#define RUN(expected, job, err, ...)                                                               \
    run(expected, job, (const value[]){__VA_ARGS__},                                               \
        (int)(sizeof((const value[]){__VA_ARGS__}) / sizeof(value)), err)

static const char teacher[] = WD_SOURCE_DIR "/models/wan-tiny";

static void a_student_is_the_same_by_name(void **state)
{
    (void)state;
    wd_err err;
    char by_name[192], by_struct[192], a[256], b[256];
    snprintf(by_name, sizeof by_name, "%s/by-name", wd_test_folder());
    snprintf(by_struct, sizeof by_struct, "%s/by-struct", wd_test_folder());
    json_t *result =
        RUN(WD_OK, WD_JOB_TRAIN, &err, {"teacher_path", teacher}, {"data_path", prompts},
            {"student_config", config}, {"output_dir", by_name}, {"height", "16"}, {"width", "16"},
            {"batch_size", "1"}, {"trajectories", "2"}, {"trajectory_steps", "2"},
            {"num_steps", "3"}, {"num_threads", "1"}, {"save_samples", "false"});
    assert_true(json_is_false(json_object_get(result, "stopped")));
    assert_int_equal(json_integer_value(json_object_get(result, "steps")), 3);
    assert_true(json_integer_value(json_object_get(result, "targets")) > 0);
    assert_true(json_real_value(json_object_get(result, "loss")) > 0);
    assert_true(json_real_value(json_object_get(result, "seconds")) > 0);
    assert_string_equal(json_string_value(json_object_get(result, "output_dir")), by_name);
    json_decref(result);

    wd_train_options o = wd_train_defaults();
    o.teacher_path = teacher;
    o.data_path = prompts;
    o.student_config = config;
    o.output_dir = by_struct;
    o.height = o.width = 16;
    o.batch_size = 1;
    o.trajectories = o.trajectory_steps = 2;
    o.num_steps = 3;
    o.num_threads = 1;
    o.save_samples = "false";
    wd_test_ok(wd_train(NULL, &o, &err), &err);
    static const char weights[] = "transformer/diffusion_pytorch_model.safetensors";
    snprintf(a, sizeof a, "%s/%s", by_name, weights);
    snprintf(b, sizeof b, "%s/%s", by_struct, weights);
    wd_test_same_files(a, b);
}

static void every_job_gives_json(void **state)
{
    (void)state;
    wd_err err;
    char out[192], student[192], file[192];
    snprintf(out, sizeof out, "%s/apple.png", wd_test_folder());
    snprintf(file, sizeof file, "%s/student.safetensors", wd_test_folder());
    snprintf(student, sizeof student, "%s/by-name", wd_test_folder());
    json_t *json = RUN(WD_OK, WD_JOB_SAMPLE, &err, {"model", teacher}, {"prompt", "a fox"},
                       {"steps", "1"}, {"height", "16"}, {"width", "16"}, {"out", out});
    assert_string_equal(json_string_value(json_object_get(json, "out")), out);
    json_decref(json);
    json = RUN(WD_OK, WD_JOB_INSPECT, &err, {"path", teacher});
    assert_true(json_is_object(json));
    json_decref(json);
    json = RUN(WD_OK, WD_JOB_PLAN, &err, {"teacher_path", teacher}, {"data_path", prompts});
    assert_true(json_is_object(json));
    json_decref(json);
    json = RUN(WD_OK, WD_JOB_EVAL, &err, {"teacher", teacher}, {"student", student},
               {"prompts", prompts}, {"steps", "1"}, {"height", "16"}, {"width", "16"});
    assert_true(json_is_object(json));
    json_decref(json);
    json = RUN(WD_OK, WD_JOB_CONVERT, &err, {"model", student}, {"to", "comfyui"}, {"out", file});
    assert_string_equal(json_string_value(json_object_get(json, "out")), file);
    json_decref(json);
    json = RUN(WD_OK, WD_JOB_BENCH, &err, {"only", "peak"});
    assert_true(json_array_size(json_object_get(json, "lines")) > 0);
    json_decref(json);
}

static void errors_are_those_of_the_job(void **state)
{
    (void)state;
    wd_err err;
    assert_null(RUN(WD_INVALID_ARGUMENT, WD_JOB_TRAIN, &err, {"num_steps", "1"}));
    assert_non_null(strstr(err.message, "train needs --teacher_path"));
    assert_null(RUN(WD_NOT_FOUND, WD_JOB_INSPECT, &err, {"path", "/no/such/folder"}));
    assert_null(RUN(WD_INVALID_ARGUMENT, WD_JOB_TRAIN, &err, {"nproc_per_node", "2"}));
    assert_non_null(strstr(err.message, "start this program by mpirun"));
    assert_null(RUN(WD_INVALID_ARGUMENT, WD_JOB_TRAIN, &err, {"teacher_device_strategy", "gpu"},
                    {"teacher_device_map", "map.json"}));
    json_t *plan =
        RUN(WD_DOES_NOT_FIT, WD_JOB_PLAN, &err, {"teacher_preset", "wan2.1-14b"},
            {"devices", "sim:1GiB@link=25GB/s,compute=1TFLOP/s"}, {"host_memory", "64MiB"});
    assert_true(json_is_object(plan));
    json_decref(plan);
}

static int prepare(void **state)
{
    (void)state;
    static const char text[] = "red apple\nfox\n", one_block[] = "{\"depth\": 1}";
    wd_err err;
    snprintf(prompts, sizeof prompts, "%s/prompts.txt", wd_test_folder());
    snprintf(config, sizeof config, "%s/student.json", wd_test_folder());
    wd_test_ok(wd_file_write(prompts, text, sizeof text - 1, &err), &err);
    wd_test_ok(wd_file_write(config, one_block, sizeof one_block - 1, &err), &err);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_student_is_the_same_by_name),
        cmocka_unit_test(every_job_gives_json),
        cmocka_unit_test(errors_are_those_of_the_job),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
