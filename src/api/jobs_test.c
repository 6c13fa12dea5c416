/* Jobs called as a library: the n-th allocation fails, whatever n is, and all is given back. */
#include "testing.h"

#include "api/run.h"
#include "core/random.h"

static const char fixture[] = WD_SOURCE_DIR "/tests/fixtures/dit-image";
static char out[128];

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
    o.model = WD_SOURCE_DIR "/models/wan-tiny";
    o.prompt = (wd_texts){.item = {"a fox"}, .count = 1};
    o.out = out;
    o.steps = 1;
    o.height = o.width = 16;
    o.guidance_scale = 1;
    o.num_threads = 1;
    return wd_sample(&o, err);
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

/* Every n at first, then ever wider apart: a job has a thousand allocations. */
static void survives(job_fn *job)
{
    wd_err err;
    wd_status status;
    int64_t n = 0, failures = 0;
    do {
        n += 1 + n / 12;
        err = (wd_err){0};
        wd_alloc_fail_at(n);
        status = job(&err);
        if (status != WD_OK && status != WD_OUT_OF_MEMORY)
            fail_msg("allocation %d: %s: %s", (int)n, wd_status_text(status), err.message);
        failures += status != WD_OK;
    } while (status != WD_OK);
    wd_alloc_fail_at(0);
    assert_true(failures > 10);
    wd_test_ok(job(&err), &err);
}

static void forward_survives(void **state)
{
    (void)state;
    survives(forward);
}

static void sample_survives(void **state)
{
    (void)state;
    snprintf(out, sizeof out, "%s/out.png", wd_test_folder());
    survives(sample);
}

static void inspect_survives(void **state)
{
    (void)state;
    survives(inspect);
}

static void a_request_to_stop_ends_a_job_and_is_forgotten(void **state)
{
    (void)state;
    wd_err err;
    wd_request_stop();
    wd_test_ok(sample(&err), &err);
    assert_false(wd_stop_requested());
    wd_request_stop();
    assert_int_equal(wd_run_go_on(&err), WD_INTERRUPTED);
}

static int prepare(void **state)
{
    (void)state;
    snprintf(out, sizeof out, "%s/out.safetensors", wd_test_folder());
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_survives),
        cmocka_unit_test(inspect_survives),
        cmocka_unit_test(sample_survives),
        cmocka_unit_test(a_request_to_stop_ends_a_job_and_is_forgotten),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
