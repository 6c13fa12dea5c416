/* A run that is asked to stop before it takes a step leaves off at once: while weights are loaded
 * or quantised, while prompts are encoded, and while the student gets its first weights. What it
 * does after the request is counted, not timed.
 *
 * Linked with --wrap=wd__umt5_bring_layer and --wrap=wd_tensor_values. */
#include "runs.h"

#include <dirent.h>

#include "dev/codec/values.h"
#include "dev/ops.h"
#include "model/text/umt5_impl.h"
#include "wandistiller.h"

/* ---- when it is asked, and what it does after that ---- */

static const char *asks_at; /* what is under way when the run is asked to stop */
static int asked;           /* how often it was asked */
static int done_since;      /* pieces of work of that kind since then */

static void ask(void)
{
    asked++;
    wd_request_stop();
}

static bool is_kind(const char *kind)
{
    return asks_at && !strcmp(asks_at, kind);
}

/* Asks once the first part is done. */
static void see_progress(void *context, const wd_progress *p)
{
    (void)context;
    if (!is_kind(p->what) || p->done == 0) return;
    if (asked)
        done_since++;
    else
        ask();
}

static void see_log(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    if (is_kind("student") && strstr(message, "the student starts from blocks")) ask();
}

void __real_wd__umt5_bring_layer(wd_tensor w[WD_UMT5_LAYER_SLOTS], wd_umt5 *e, int64_t layer);
void __wrap_wd__umt5_bring_layer(wd_tensor w[WD_UMT5_LAYER_SLOTS], wd_umt5 *e, int64_t layer);

void __wrap_wd__umt5_bring_layer(wd_tensor w[WD_UMT5_LAYER_SLOTS], wd_umt5 *e, int64_t layer)
{
    const bool counts = is_kind("layer") && !wd_device_is_dry(wd_queue_device(e->queue));
    if (counts && asked) done_since++;
    if (counts && !asked) ask();
    __real_wd__umt5_bring_layer(w, e, layer);
}

void __real_wd_tensor_values(float *to, const wd_tensor *t, int64_t first, int64_t count);
void __wrap_wd_tensor_values(float *to, const wd_tensor *t, int64_t first, int64_t count);

void __wrap_wd_tensor_values(float *to, const wd_tensor *t, int64_t first, int64_t count)
{
    if (asked && is_kind("student")) done_since++;
    __real_wd_tensor_values(to, t, first, count);
}

/* ---- runs ---- */

static wd_train_options options(const char *out)
{
    wd_train_options o = wd_train_defaults();
    o.teacher_path = teacher;
    o.data_path = wd_test_path("prompts.txt");
    o.student_config = wd_test_path("student.json");
    o.output_dir = out;
    o.height = o.width = 32;
    o.batch_size = 2;
    o.trajectories = 4;
    o.trajectory_steps = 4;
    o.guidance_scale = 2;
    o.num_steps = 4;
    o.save_samples = "false";
    return o;
}

static wd_status run_until(const char *kind, wd_train_result *result, const wd_train_options *o,
                           wd_err *err)
{
    asks_at = kind;
    asked = done_since = 0;
    wd_progress_to(see_progress, NULL);
    wd_log_to(see_log, NULL, WD_LOG_INFO);
    const wd_status status = wd_train(result, o, err);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    wd_progress_to(NULL, NULL);
    if (asked != 1) fail_msg("it was asked %d times to stop: %s", asked, err->message);
    if (done_since) fail_msg("%d pieces of %s after the request to stop", done_since, kind);
    asks_at = NULL;
    return status;
}

/* Files in a folder whose names begin so. */
static int files_called(const char *folder, const char *begin)
{
    int n = 0;
    const struct dirent *entry;
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir))) n += !strncmp(entry->d_name, begin, strlen(begin));
    if (dir) closedir(dir);
    return n;
}

static void assert_untouched(const char *out)
{
    char path[WD_PATH_MAX];
    static const char *const files[] = {"run.json", "checkpoints", "transformer", "metrics.jsonl"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        wd_test_ok(wd_path_join(path, out, files[i], NULL), NULL);
        assert_false(wd_path_exists(path));
    }
}

/* To a device, and to host memory: weights that are converted, and, from bfloat16, that are not. */
static void while_weights_are_loaded(void **state)
{
    (void)state;
    static const char *const strategy[] = {"gpu", "offload", "cpu"};
    for (size_t i = 0; i < sizeof strategy / sizeof *strategy; i++)
        for (int converts = 0; converts < 2; converts++) {
            wd_err err = {0};
            wd_train_result result;
            wd_train_options o = options(wd_test_path("loaded"));
            o.devices = "sim:1x2GiB";
            o.teacher_device_strategy = strategy[i];
            o.teacher_dtype = converts ? "bfloat16" : "float32";
            if (!strcmp(strategy[i], "cpu") && !converts) continue; /* used where it is mapped */
            wd_test_ok(run_until("loading weights", &result, &o, &err), &err);
            assert_true(result.stopped && result.steps == 0);
            assert_untouched(o.output_dir);
        }
}

static void while_the_student_gets_its_weights(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_train_result result;
    const wd_train_options o = options(wd_test_path("student"));
    wd_test_ok(run_until("student", &result, &o, &err), &err);
    assert_true(result.stopped && result.steps == 0);
    assert_untouched(o.output_dir);
}

static void while_weights_are_quantised(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_train_options o = options(wd_test_path("quantised"));
    o.cache_dir = wd_test_path("weights");
    o.teacher_dtype = "int8";
    wd_test_refused(run_until("quantising weights", NULL, &o, &err), &err, WD_INTERRUPTED, "stopp");
    assert_int_equal(files_called(o.cache_dir, "quantised-"), 0);
    assert_untouched(o.output_dir);
}

static void while_prompts_are_encoded(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_train_options o = options(wd_test_path("encoded"));
    o.cache_dir = wd_test_path("prompts");
    wd_test_refused(run_until("layer", NULL, &o, &err), &err, WD_INTERRUPTED,
                    "stopped after 0 of 4 prompts were encoded");
    assert_int_equal(files_called(o.cache_dir, "text-"), 0);
    assert_untouched(o.output_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_weights_are_loaded),
        cmocka_unit_test(while_the_student_gets_its_weights),
        cmocka_unit_test(while_weights_are_quantised),
        cmocka_unit_test(while_prompts_are_encoded),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
