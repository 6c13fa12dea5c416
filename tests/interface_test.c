/* The public header, used as a program of somebody else's uses it. */
#define X(a) ((a) + 1)
#include <wandistiller.h>
_Static_assert(X(1) == 2, "a macro X of the caller's is left alone");
#undef X

#include <locale.h>
#include <sys/stat.h>

#include "runs.h"

static char folder[128], prompts[160], config[160];

/* A run of 6 steps of one block. */
static wd_train_options small_run(const char *out)
{
    static char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, out);
    wd_train_options o = wd_train_defaults();
    o.teacher_path = WD_SOURCE_DIR "/models/wan-tiny";
    o.data_path = prompts;
    o.student_config = config;
    o.output_dir = path;
    o.height = o.width = 16;
    o.batch_size = 1;
    o.trajectories = o.trajectory_steps = 2;
    o.num_steps = 6;
    o.sample_steps = 1;
    o.num_threads = 1;
    return o;
}

static void versions_agree(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", WD_VERSION_MAJOR, WD_VERSION_MINOR, WD_VERSION_PATCH);
    assert_string_equal(text, WD_VERSION);
    assert_string_equal(wd_version(), WD_VERSION);
    assert_int_equal(wd_version_number(), WD_VERSION_NUMBER);
}

/* A struct that grows, or whose fields move, breaks programs that were built before: a new field
 * takes the place of one of `reserved`. */
static void structs_keep_their_size(void **state)
{
    (void)state;
    static const size_t bytes[] = {
        [WD_JOB_TRAIN] = 1384,  [WD_JOB_PLAN] = 1496,   [WD_JOB_SAMPLE] = 792, [WD_JOB_EVAL] = 280,
        [WD_JOB_INSPECT] = 88,  [WD_JOB_CONVERT] = 160, [WD_JOB_REPORT] = 600, [WD_JOB_TELL] = 64,
        [WD_JOB_FORWARD] = 184, [WD_JOB_BENCH] = 104,   [WD_JOB_COMMON] = 88,
    };
    for (int job = 0; job <= WD_JOB_COMMON; job++)
        assert_int_equal(wd_options_bytes((wd_job)job), bytes[job]);
    assert_int_equal(offsetof(wd_train_options, seed), 320);
    assert_int_equal(offsetof(wd_train_options, output_dir), 328);
    assert_int_equal(offsetof(wd_train_options, optimizer_device), 1192);   /* reserved before */
    assert_int_equal(offsetof(wd_train_options, ema_device), 1200);         /* likewise */
    assert_int_equal(offsetof(wd_train_options, prompt_column), 1208);      /* likewise */
    assert_int_equal(offsetof(wd_train_options, targets), 1224);            /* likewise */
    assert_int_equal(offsetof(wd_train_options, validation_prompts), 1232); /* likewise */
    assert_int_equal(offsetof(wd_train_options, keep_best), 1248);          /* likewise */
    assert_int_equal(offsetof(wd_train_options, save_report), 1256);        /* likewise */
    assert_int_equal(offsetof(wd_train_options, gradient_dtype), 1264);     /* likewise */
    assert_int_equal(offsetof(wd_plan_options, svg), 1424);
    assert_int_equal(sizeof(wd_train_result), 104);
    assert_int_equal(sizeof(wd_progress), 128);
    assert_int_equal(sizeof(wd_picture), 64);
}

static void foreign_structs_are_refused(void **state)
{
    (void)state;
    wd_err err;
    char *text = NULL;
    const wd_train_options train = {0};
    const wd_plan_options plan = {.train = wd_train_defaults()};
    const wd_sample_options sample = {0};
    const wd_forward_options forward = {0};
    const wd_inspect_options inspect = {0};
    const wd_eval_options eval = {0};
    const wd_convert_options convert = {0};
    const wd_bench_options bench = {0};
    const wd_report_options report = {0};
    const wd_tell_options tell = {0};
    int exit_code;
    static const char says[] = "bytes, found 0: start from wd_";
    wd_test_refused(wd_train(NULL, &train, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_train_start_ranks(&exit_code, &train, 0, NULL, &err), &err,
                    WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_plan(&text, &plan, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_sample(&sample, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_forward(&forward, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_inspect(&text, &inspect, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_eval(&text, &eval, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_convert(&convert, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_tell(&tell, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_report(&report, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_test_refused(wd_bench(&bench, &err), &err, WD_INVALID_ARGUMENT, says);
    assert_null(text);
    wd_train_options older;
    memset(&older, 1, sizeof older);
    wd_options_default(&older, sizeof older - 8, WD_JOB_TRAIN); /* as of another header */
    assert_int_equal(older.bytes, 0);
}

/* ---- what a run tells ---- */

typedef struct seen {
    wd_progress training;
    int64_t steps; /* of training that were told */
    char picture[256];
    int64_t pixels;
} seen;

static void hear(void *context, const wd_progress *p)
{
    seen *s = context;
    assert_true(p->total == 0 || p->done <= p->total);
    if (!strcmp(p->what, "training")) {
        s->steps += p->done > s->training.done;
        s->training = *p;
    }
}

static void see(void *context, const wd_picture *p)
{
    seen *s = context;
    snprintf(s->picture, sizeof s->picture, "%s", p->path);
    s->pixels = p->height * p->width;
    assert_true(wd_path_exists(p->path));
    assert_in_range(p->rgb[3 * s->pixels - 1], 0, 255); /* the last byte is there */
}

static void a_run_tells_how_it_goes_and_how_it_ended(void **state)
{
    (void)state;
    wd_err err;
    seen s = {0};
    wd_train_result result = {.steps = -1};
    wd_train_options o = small_run("told");
    o.save_samples = "true";
    o.stop_at_step = 4;
    wd_progress_to(hear, &s);
    wd_pictures_to(see, &s);
    wd_test_ok(wd_train(&result, &o, &err), &err);
    assert_true(result.stopped);
    assert_int_equal(result.steps, 4);
    assert_true(result.targets > 0 && result.loss > 0 && result.seconds > 0);
    assert_int_equal(s.steps, 4);
    assert_int_equal(s.training.total, 6);
    const wd_train_result part = result;
    o.stop_at_step = 0;
    o.resume = "auto";
    wd_test_ok(wd_train(&result, &o, &err), &err);
    assert_false(result.stopped);
    assert_int_equal(result.steps, 6);
    assert_true(result.seconds > part.seconds && result.targets >= part.targets);
    assert_int_equal(s.steps, 6); /* two more */
    assert_int_equal(s.training.done, 6);
    assert_true(s.training.loss > 0);
    assert_non_null(strstr(s.picture, "told/samples/step-00000006.png"));
    assert_true(s.pixels >= 2 * 2 * 16 * 16); /* two prompts, teacher above student */
    result.steps = -1;
    o.teacher_path = "no/such/folder";
    assert_int_equal(wd_train(&result, &o, &err), WD_NOT_FOUND);
    assert_int_equal(result.steps, -1); /* only set on success */
    wd_progress_to(NULL, NULL);
    wd_pictures_to(NULL, NULL);
}

/* Asks a run to stop before its first step. */
static void stop_at_once(void *context, const wd_progress *p)
{
    (void)context;
    if (!strcmp(p->what, "training")) wd_request_stop();
}

static char *text_of(const char *run, const char *file)
{
    wd_err err;
    char path[WD_PATH_MAX], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, file);
    wd_test_ok(wd_file_read(&text, &bytes, path, 1 << 20, &err), &err);
    return text;
}

static bool has(const char *run, const char *file)
{
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, file);
    return wd_path_exists(path);
}

/* Removes the working folder, whose name is the context, once prompts are encoded. */
static void remove_folder(void *context, const wd_progress *p)
{
    if (!strcmp(p->what, "encoding prompts")) rmdir(context);
}

static void count_progress(void *context, const wd_progress *p)
{
    (void)p;
    ++*(int *)context;
}

/* The working folder is of no use to a run whose paths are whole: one that goes later does not end
 * it, and one that is gone already is said before anything is told or written. */
static void the_working_folder_may_go(void **state)
{
    (void)state;
    wd_err err, why;
    int told = 0;
    char before[WD_PATH_MAX], gone[192];
    wd_train_options o = small_run("homeless");
    snprintf(gone, sizeof gone, "%s/gone", folder);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(mkdir(gone, 0777), 0);
    assert_int_equal(chdir(gone), 0);
    wd_progress_to(remove_folder, gone);
    const wd_status status = wd_train(NULL, &o, &err);
    wd_progress_to(count_progress, &told);
    o = small_run("unmade");
    const wd_status again = wd_train(NULL, &o, &why);
    wd_progress_to(NULL, NULL);
    assert_int_equal(chdir(before), 0);
    wd_test_ok(status, &err);
    assert_false(wd_path_exists(gone));
    assert_true(has("homeless", "run.json") && has("homeless", "transformer"));
    wd_test_refused(again, &why, WD_IO, "the current folder cannot be found: No such file");
    assert_int_equal(told, 0);
    assert_false(has("unmade", ""));
}

/* Whether a --resume was forgotten or not: a run that takes no step leaves all of an earlier one
 * where it is, and none of itself. */
static void a_run_without_a_step_changes_nothing(void **state)
{
    (void)state;
    static const char *const files[] = {"metrics.jsonl", "run.json", "README.md"};
    enum { FILES = sizeof files / sizeof *files };
    wd_err err;
    wd_train_result result;
    char *before[FILES];
    wd_train_options o = small_run("steady");
    wd_progress_to(stop_at_once, NULL);
    wd_test_ok(wd_train(&result, &o, &err), &err);
    assert_true(result.stopped && result.steps == 0);
    assert_false(has("steady", "checkpoints") || has("steady", "transformer"));
    assert_false(has("steady", "run.json") || has("steady", "metrics.jsonl"));
    wd_progress_to(NULL, NULL);
    o.checkpoint_interval = 2;
    o.keep_checkpoints = 9;
    wd_test_ok(wd_train(&result, &o, &err), &err);
    for (int i = 0; i < FILES; i++) before[i] = text_of("steady", files[i]);
    wd_progress_to(stop_at_once, NULL);
    for (int again = 0; again < 2; again++) {
        char back[WD_PATH_MAX];
        snprintf(back, sizeof back, "%s/checkpoints/step-00000002", o.output_dir);
        o.resume = again ? back : NULL;
        o.seed = again ? 0 : 5;
        wd_test_ok(wd_train(&result, &o, &err), &err);
        assert_true(result.stopped && result.steps == 2 * again);
        assert_false(has("steady", "earlier-1") || has("steady", "checkpoints/step-00000000"));
        assert_true(has("steady", "checkpoints/step-00000006") && has("steady", "transformer"));
        for (int i = 0; i < FILES; i++) {
            char *after = text_of("steady", files[i]);
            assert_string_equal(after, before[i]);
            wd_free(after);
        }
    }
    wd_progress_to(NULL, NULL);
    for (int i = 0; i < FILES; i++) wd_free(before[i]);
}

static void errors_need_no_place(void **state)
{
    (void)state;
    char *text = NULL;
    wd_config *file = NULL;
    wd_train_options train = small_run("none"), other = train;
    wd_sample_options sample = wd_sample_defaults();
    wd_inspect_options inspect = wd_inspect_defaults();
    train.teacher_path = sample.model = inspect.path = "no/such/folder";
    sample.out = "none.png";
    assert_int_equal(wd_train(NULL, &train, NULL), WD_NOT_FOUND);
    assert_int_equal(wd_sample(&sample, NULL), WD_NOT_FOUND);
    assert_int_equal(wd_inspect(&text, &inspect, NULL), WD_NOT_FOUND);
    assert_int_equal(wd_config_open(&file, "no/such/file", NULL), WD_NOT_FOUND);
    other.distributed = true; /* and nobody has started ranks */
    assert_int_equal(wd_train(NULL, &other, NULL), WD_INVALID_ARGUMENT);
    assert_null(wd_option_find(WD_JOB_TRAIN, "no_such_option", NULL));
    const wd_option *lr = wd_option_find(WD_JOB_TRAIN, "lr", NULL);
    assert_int_equal(wd_option_set(&other, lr, "much", NULL), WD_INVALID_ARGUMENT);
    wd_train_fail(NULL); /* this process is no rank */
}

/* Makes a locale whose decimal mark is a comma, and gives it to this process. */
static void choose_decimal_comma(void)
{
    static wd_program p;
    char made[160];
    snprintf(made, sizeof made, "%s/de_DE.UTF-8", folder);
    wd_program_wait(
        &p, wd_program_start_as("sh", (const char *const[]){
                                          "-c", "localedef -i de_DE -f UTF-8 \"$0\"", made, NULL}));
    setenv("LOCPATH", folder, 1);
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) wd_test_skip("localedef makes no locale here");
    assert_string_equal(localeconv()->decimal_point, ",");
}

/* Options from all their sources. */
static void options_have_points(void)
{
    wd_err err;
    wd_config *file;
    wd_options *named;
    char path[160], text[64], *list;
    static const char json[] = "{\"lr\": 0.0002}";
    snprintf(path, sizeof path, "%s/options.json", folder);
    wd_test_ok(wd_file_write(path, json, sizeof json - 1, &err), &err);
    wd_train_options o = wd_train_defaults();
    assert_true(o.adam_beta1 == 0.9);
    wd_test_ok(wd_config_open(&file, path, &err), &err);
    wd_test_ok(wd_config_apply(file, WD_JOB_TRAIN, &o, &err), &err);
    wd_config_close(file);
    assert_true(o.lr == 0.0002);
    const wd_option *lr = wd_option_find(WD_JOB_TRAIN, "lr", &err);
    wd_test_ok(wd_option_set(&o, lr, "0.125", &err), &err);
    assert_string_equal(wd_option_text(text, sizeof text, &o, lr), "0.125");
    wd_test_refused(wd_option_set(&o, lr, "0,125", &err), &err, WD_INVALID_ARGUMENT, "\"0,125\"");
    wd_test_ok(wd_options_new(&named, WD_JOB_SAMPLE, &err), &err);
    wd_test_ok(wd_options_set(named, "guidance_scale", "2.5", &err), &err);
    wd_options_free(named);
    wd_test_ok(wd_options_list(&list, WD_JOB_TRAIN, &err), &err);
    json_t *parsed = json_loads(list, 0, NULL);
    assert_non_null(parsed);
    json_decref(parsed);
    wd_text_free(list);
}

static void a_decimal_comma_changes_nothing(void **state)
{
    (void)state;
    wd_err err;
    char *card[2];
    static const char *const run[] = {"point", "comma"};
    for (int comma = 0; comma < 2; comma++) {
        if (comma) choose_decimal_comma();
        options_have_points();
        wd_train_options o = small_run(run[comma]);
        o.lr = 0.0015;
        wd_test_ok(wd_train(NULL, &o, &err), &err);
        card[comma] = text_of(run[comma], "README.md");
        json_decref(metrics(o.output_dir));
        if (comma) assert_string_equal(localeconv()->decimal_point, ",");
    }
    setlocale(LC_ALL, "C");
    assert_same_weights(wd_test_path("point"), wd_test_path("comma"));
    assert_string_equal(card[0], card[1]);
    for (int i = 0; i < 2; i++) wd_free(card[i]);
}

static int name_files(void **state)
{
    snprintf(folder, sizeof folder, "%s", wd_test_folder());
    snprintf(prompts, sizeof prompts, "%s/prompts.txt", folder);
    snprintf(config, sizeof config, "%s/student.json", folder);
    return prepare(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_agree),
        cmocka_unit_test(structs_keep_their_size),
        cmocka_unit_test(foreign_structs_are_refused),
        cmocka_unit_test(a_run_tells_how_it_goes_and_how_it_ended),
        cmocka_unit_test(the_working_folder_may_go),
        cmocka_unit_test(a_run_without_a_step_changes_nothing),
        cmocka_unit_test(errors_need_no_place),
        cmocka_unit_test(a_decimal_comma_changes_nothing),
    };
    return cmocka_run_group_tests(tests, name_files, NULL);
}
