/* Jobs called through the library when the n-th allocation fails, for every n: all memory is freed.
 */
#include "failing.h"

#include "api/setup/run.h"
#include "core/random.h"

static const char fixture[] = WD_SOURCE_DIR "/tests/fixtures/dit-image";
static const char tiny[] = WD_SOURCE_DIR "/models/wan-tiny";
static char out[128], student[128], config[128], prompts[128], pictures[128];

static wd_status forward(wd_err *err)
{
    wd_forward_options o = wd_forward_defaults();
    o.model = fixture;
    o.component = "transformer";
    o.in = WD_SOURCE_DIR "/tests/fixtures/dit-image/in.safetensors";
    o.out = out;
    o.grad = true;
    o.num_threads = 1;
    return wd_forward(&o, err);
}

static wd_status sample(wd_err *err)
{
    wd_sample_options o = wd_sample_defaults();
    o.model = tiny;
    o.prompt = (wd_texts){.item = {"a fox"}, .count = 1};
    o.out = out;
    o.steps = 1;
    o.height = o.width = 16;
    o.guidance_scale = 1;
    o.num_threads = 1;
    return wd_sample(&o, err);
}

static wd_status train(wd_err *err)
{
    wd_train_options o = wd_train_defaults();
    o.teacher_path = tiny;
    o.student_config = config;
    o.data_path = prompts;
    o.output_dir = student;
    o.height = o.width = 16;
    o.batch_size = 1;
    o.trajectories = o.trajectory_steps = 2;
    o.num_steps = 2;
    o.checkpoint_interval = o.sample_interval = 1;
    o.save_samples = "true";
    o.sample_prompts = (wd_texts){.item = {"a fox"}, .count = 1};
    o.sample_steps = 1;
    o.num_threads = 1;
    return wd_train(NULL, &o, err);
}

static wd_status eval(wd_err *err)
{
    char *text = NULL;
    wd_eval_options o = wd_eval_defaults();
    o.teacher = tiny;
    o.student = student;
    o.prompts = prompts;
    o.steps = 1;
    o.height = o.width = 16;
    o.out = pictures;
    o.num_threads = 1;
    wd_status status = wd_eval(&text, &o, err);
    wd_text_free(text);
    return status;
}

static wd_status convert(wd_err *err)
{
    char workflow[144];
    wd_convert_options o = wd_convert_defaults();
    o.model = student;
    o.to = "comfyui";
    o.out = out;
    wd_file_abandon(out); /* which is not replaced, nor is its workflow */
    snprintf(workflow, sizeof workflow, "%s.json", out);
    wd_file_abandon(workflow);
    return wd_convert(&o, err);
}

static wd_status inspect(wd_err *err)
{
    char *text = NULL;
    wd_inspect_options o = wd_inspect_defaults();
    o.path = fixture;
    wd_status status = wd_inspect(&text, &o, err);
    wd_text_free(text);
    return status;
}

typedef wd_status job_fn(wd_err *err);

typedef struct job {
    job_fn *run;
} job;

static wd_status attempt(void *context, wd_err *err)
{
    return ((const job *)context)->run(err);
}

static void survives(job_fn *run, int64_t allocations)
{
    wd_err err;
    job j = {run};
    wd_test_failing_job(attempt, &j, 12, allocations);
    wd_test_ok(run(&err), &err);
}

static void forward_survives(void **state)
{
    (void)state;
    survives(forward, 40);
}

static void sample_survives(void **state)
{
    (void)state;
    snprintf(out, sizeof out, "%s/out.png", wd_test_folder());
    survives(sample, 100);
}

static void train_survives(void **state)
{
    (void)state;
    survives(train, 500);
}

/* The student of the last test. */
static void eval_survives(void **state)
{
    (void)state;
    survives(eval, 100);
}

static void convert_survives(void **state)
{
    (void)state;
    snprintf(out, sizeof out, "%s/converted.safetensors", wd_test_folder());
    survives(convert, 20);
}

static void inspect_survives(void **state)
{
    (void)state;
    survives(inspect, 15);
}

static void a_request_to_stop_ends_a_job_and_is_forgotten(void **state)
{
    (void)state;
    wd_err err;
    snprintf(out, sizeof out, "%s/out.png", wd_test_folder());
    wd_request_stop();
    wd_test_ok(sample(&err), &err);
    assert_false(wd_stop_requested());
    wd_request_stop();
    assert_int_equal(wd__run_go_on(&err), WD_INTERRUPTED);
}

static int prepare(void **state)
{
    (void)state;
    static const char text[] = "red apple\nfox\n", one_block[] = "{\"depth\": 1}";
    const char *folder = wd_test_folder();
    wd_err err;
    snprintf(out, sizeof out, "%s/out.safetensors", folder);
    snprintf(student, sizeof student, "%s/student", folder);
    snprintf(config, sizeof config, "%s/student.json", folder);
    snprintf(prompts, sizeof prompts, "%s/prompts.txt", folder);
    snprintf(pictures, sizeof pictures, "%s/eval", folder);
    wd_test_ok(wd_file_write(prompts, text, sizeof text - 1, &err), &err);
    wd_test_ok(wd_file_write(config, one_block, sizeof one_block - 1, &err), &err);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_survives),
        cmocka_unit_test(inspect_survives),
        cmocka_unit_test(sample_survives),
        cmocka_unit_test(train_survives),
        cmocka_unit_test(eval_survives),
        cmocka_unit_test(convert_survives),
        cmocka_unit_test(a_request_to_stop_ends_a_job_and_is_forgotten),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
