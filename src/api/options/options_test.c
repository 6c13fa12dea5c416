/* Options by their tables, and from JSON. */
#include <unistd.h>

#include "api/options/options.h"
#include "io/file/file.h"
#include "program.h"

static void assert_says(const wd_err *err, const char *text)
{
    if (!strstr(err->message, text)) fail_msg("\"%s\" lacks \"%s\"", err->message, text);
}

static void set(void *options, wd_job job, const char *name, const char *value)
{
    wd_err err = {0};
    const wd_option *o = wd_option_find(job, name, &err);
    if (!o) fail_msg("%s", err.message);
    if (wd_option_set(options, o, value, &err) != WD_OK) fail_msg("%s", err.message);
}

static void refuses(wd_job job, const char *name, const char *value, const char *text)
{
    char options[4096];
    wd_err err = {0};
    wd_options_default(options, wd_options_bytes(job), job);
    const wd_option *o = wd_option_find(job, name, &err);
    assert_int_equal(o ? wd_option_set(options, o, value, &err) : err.status, WD_INVALID_ARGUMENT);
    assert_says(&err, text);
}

static void tables_are_sound(void **state)
{
    (void)state;
    for (int job = 0; job <= WD_JOB_COMMON; job++) {
        int64_t count;
        const wd_option *table = wd_options_of((wd_job)job, &count);
        assert_true(count > 0 && wd_options_bytes((wd_job)job) <= 4096);
        for (int64_t i = 0; i < count; i++) {
            const wd_option *o = &table[i];
            assert_ptr_equal(wd_option_find((wd_job)job, o->name, NULL), o); /* no name twice */
            assert_non_null(o->help);
            assert_non_null(o->default_text);
            assert_true(o->help[strlen(o->help) - 1] != '.');
            assert_true(o->type == WD_OPTION_INT || /* words beside numbers */
                        (o->type == WD_OPTION_CHOICE) == (o->choices != NULL));
            assert_true(!o->choices || o->type == WD_OPTION_CHOICE || o->min >= 0);
            assert_true(o->choices || o->metavar || o->type == WD_OPTION_FLAG);
            assert_true(o->offset < wd_options_bytes((wd_job)job));
            const unsigned student = o->flags & (WD_OPTION_STUDENT | WD_OPTION_SAME_STUDENT);
            if (job == WD_JOB_TRAIN && student != WD_OPTION_STUDENT &&
                student != WD_OPTION_SAME_STUDENT)
                fail_msg("--%s: decide in its table whether it may change the student", o->name);
            if (job == WD_JOB_TRAIN && strstr(o->help, "Never changes the student"))
                assert_int_equal(student, WD_OPTION_SAME_STUDENT);
            if (o->type == WD_OPTION_INT || o->type == WD_OPTION_FLOAT)
                assert_true(o->min < o->max);
        }
    }
}

/* A whole number that exceeds int64_t is refused for every range. */
static void numbers_that_are_too_long_are_refused(void **state)
{
    (void)state;
    int tried = 0;
    for (int job = 0; job < WD_JOB_COMMON; job++) {
        static char options[4096];
        int64_t count;
        wd_err err;
        const wd_option *table = wd_options_of((wd_job)job, &count);
        for (int64_t i = 0; i < count; i++) {
            if (table[i].type != WD_OPTION_INT) continue;
            tried++;
            wd_test_refused(wd_option_set(options, &table[i], "99999999999999999999", &err), &err,
                            WD_INVALID_ARGUMENT, "99999999999999999999");
            wd_test_refused(wd_option_set(options, &table[i], "-99999999999999999999", &err), &err,
                            WD_INVALID_ARGUMENT, "-99999999999999999999");
        }
    }
    assert_true(tried > 20);
}

static void words_stand_beside_numbers(void **state)
{
    (void)state;
    char text[64];
    wd_err err;
    wd_train_options options = wd_train_defaults();
    const wd_option *reuse = wd_option_find(WD_JOB_TRAIN, "target_reuse", &err);
    wd_test_ok(wd_option_set(&options, reuse, "auto", &err), &err);
    assert_int_equal(options.target_reuse, -1);
    assert_string_equal(wd_option_text(text, sizeof text, &options, reuse), "auto");
    options.teacher_path = options.data_path = "x";
    wd_test_ok(wd_options_check(WD_JOB_TRAIN, &options, &err), &err);
    options.target_reuse = -2;
    wd_test_refused(wd_options_check(WD_JOB_TRAIN, &options, &err), &err, WD_INVALID_ARGUMENT,
                    "--target_reuse: expected auto or a whole number from 0 to 1000, found \"-2\"");
    static const char *const wrong[] = {"-1", "aut", "autos", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        wd_test_refused(wd_option_set(&options, reuse, wrong[i], &err), &err, WD_INVALID_ARGUMENT,
                        "--target_reuse: expected auto or a whole number");
}

static void seeds_have_64_bits(void **state)
{
    (void)state;
    char text[64];
    wd_err err;
    wd_sample_options options = wd_sample_defaults();
    const wd_option *seed = wd_option_find(WD_JOB_SAMPLE, "seed", &err);
    wd_test_ok(wd_option_set(&options, seed, "18446744073709551615", &err), &err);
    assert_true(options.seed == UINT64_MAX);
    wd_option_text(text, sizeof text, &options, seed);
    assert_string_equal(text, "18446744073709551615");
    static const char *const wrong[] = {"18446744073709551616", "-1", "1.5", "", "1e3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        wd_test_refused(wd_option_set(&options, seed, wrong[i], &err), &err, WD_INVALID_ARGUMENT,
                        "from 0 to 18446744073709551615");
    assert_true(options.seed == UINT64_MAX);
}

/* Who comes from another trainer is told this program's name, not the one with most like letters.
 */
static void names_of_other_programs_are_known(void **state)
{
    (void)state;
    static const struct {
        wd_job job;
        const char *there, *here;
    } names[] = {
        {WD_JOB_TRAIN, "max_train_steps", "is --num_steps meant?"},
        {WD_JOB_TRAIN, "train-batch-size", "is --batch_size meant?"},
        {WD_JOB_TRAIN, "pretrained_model_name_or_path", "is --teacher_path meant?"},
        {WD_JOB_SAMPLE, "num_inference_steps", "is --steps meant?"},
        {WD_JOB_TRAIN, "save_steps", "is --checkpoint_interval meant?"},
        {WD_JOB_TRAIN, "checkpointing_steps", "is --checkpoint_interval meant?"},
        {WD_JOB_TRAIN, "save_every_n_steps", "is --checkpoint_interval meant?"},
        {WD_JOB_TRAIN, "teacher_model", "is --teacher_path meant?"},
        {WD_JOB_PLAN, "resolution", "is --height or --width meant?"},
        {WD_JOB_TRAIN, "max-train-epochs", "is --num_epochs meant?"},
        {WD_JOB_TRAIN, "validation_prompt", "is --sample_prompts meant?"}, /* diffusers' pictures */
        {WD_JOB_TRAIN, "validation_steps", "is --validation_interval or --sample_interval meant?"},
        {WD_JOB_TRAIN, "load_best_model_at_end", "is --keep_best meant?"},
        {WD_JOB_TRAIN, "report_to",
         "metrics.jsonl and TensorBoard's files in --output_dir have it"},
        {WD_JOB_TRAIN, "learning_rate", "is --lr meant?"},
        {WD_JOB_TRAIN, "steps", "is --num_steps meant?"},
        {WD_JOB_TRAIN, "prompt", "is --data_path meant?"},
        {WD_JOB_PLAN, "ram", "is --host_memory meant?"},
        {WD_JOB_PLAN, "vram", "--devices sim:24GiB is for another one"},
        {WD_JOB_SAMPLE, "gpus", "is --device meant?"},
        {WD_JOB_SAMPLE, "teacher_model", "is --model meant?"},
        {WD_JOB_EVAL, "teacher_model", "is --teacher meant?"},
        {WD_JOB_EVAL, "report_to", "eval has no option --report_to"},
        {WD_JOB_TRAIN, "batchsize", "is --batch_size meant?"},
        {WD_JOB_TRAIN, "zzzzzzzzzzzzzzzzzzzz", "`wandistiller train --help` lists"},
    };
    wd_err err;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_null(wd_option_find(names[i].job, names[i].there, &err));
        wd_test_refused(err.status, &err, WD_INVALID_ARGUMENT, names[i].here);
    }
}

static void defaults_are_those_of_the_tables(void **state)
{
    (void)state;
    wd_train_options train = wd_train_defaults();
    assert_int_equal(train.trajectories, 64);
    assert_int_equal(train.trajectory_steps, 16);
    assert_null(train.teacher_device_strategy); /* chosen by the devices, as are dtypes */
    assert_true(!train.teacher_dtype && !train.mixed_precision);
    assert_string_equal(train.devices, "auto");
    assert_null(train.teacher_path);
    assert_true(isnan(train.flow_shift));
    assert_true(train.adam_beta2 == 0.99);
    char text[64];
    assert_string_equal(
        wd_option_text(text, sizeof text, &train, wd_option_find(WD_JOB_TRAIN, "adam-eps", NULL)),
        "1e-08");
}

static void values_are_read_by_type(void **state)
{
    (void)state;
    wd_train_options t = wd_train_defaults();
    set(&t, WD_JOB_TRAIN, "batch-size", "16");
    set(&t, WD_JOB_TRAIN, "lr", "1.5e-3");
    set(&t, WD_JOB_TRAIN, "gradient_checkpointing", "true");
    set(&t, WD_JOB_TRAIN, "mixed-precision", "fp16");
    set(&t, WD_JOB_TRAIN, "sample_prompts", "a cat");
    set(&t, WD_JOB_TRAIN, "sample_prompts", "a dog");
    set(&t, WD_JOB_TRAIN, "seed", "999999999999999");
    assert_int_equal(t.batch_size, 16);
    assert_true(t.lr == 1.5e-3 && t.gradient_checkpointing);
    assert_string_equal(t.mixed_precision, "fp16");
    assert_int_equal(t.sample_prompts.count, 2);
    assert_string_equal(t.sample_prompts.item[1], "a dog");
    assert_true(t.seed == 999999999999999u);
    char text[64];
    const wd_option *o = wd_option_find(WD_JOB_TRAIN, "sample_prompts", NULL);
    assert_string_equal(wd_option_text(text, sizeof text, &t, o), "a cat, a dog");
    wd_err err;
    for (int i = 2; i < WD_TEXTS_MAX; i++) assert_int_equal(wd_option_set(&t, o, "x", &err), WD_OK);
    assert_int_equal(wd_option_set(&t, o, "x", &err), WD_INVALID_ARGUMENT);
    assert_says(&err, "at most 64 texts");
}

static void python_flags_choose_a_strategy(void **state)
{
    (void)state;
    wd_train_options t = wd_train_defaults();
    const wd_option *o = wd_option_find(WD_JOB_TRAIN, "balance_teacher", NULL);
    assert_int_equal(wd_option_set(&t, o, o->bare, NULL), WD_OK);
    assert_string_equal(t.teacher_device_strategy, "balanced");
}

/* ---- contradictions ---- */

/* Gives "name=value" ... as one source. */
static wd_status give(wd_train_options *t, const char *const *words, wd_err *err)
{
    wd_option_source source = {0};
    wd_status status = WD_OK;
    for (; *words && status == WD_OK; words++) {
        char name[64];
        const char *value = strchr(*words, '=');
        snprintf(name, sizeof name, "%.*s", (int)(value - *words), *words);
        status =
            wd_option_give(&source, t, wd_option_find(WD_JOB_TRAIN, name, NULL), value + 1, err);
    }
    return status == WD_OK ? wd_option_source_end(&source, WD_JOB_TRAIN, t, err) : status;
}

static void a_source_agrees_with_itself(void **state)
{
    (void)state;
    static const struct {
        const char *option[4], *says;
    } cases[] = {
        {{"teacher_on_cpu=cpu", "balance_teacher=balanced"},
         "--teacher_on_cpu (cpu) and --balance_teacher (balanced) contradict one another: leave "
         "one of them out"},
        {{"teacher_device_strategy=gpu", "sequential=sequential"},
         "--teacher_device_strategy (gpu) and --sequential (sequential) contradict"},
        {{"teacher_rank=0", "teacher_device_strategy=gpu"},
         "--teacher_device_strategy (gpu) and --teacher_rank contradict one another: a rank is for "
         "the strategy gpu0; leave"},
        {{"balanced_teacher=balanced", "teacher_rank=1"},
         "--balanced_teacher (balanced) and --teacher_rank"},
        {{"teacher_device_map=m.json", "teacher_on_cpu=cpu"},
         "--teacher_on_cpu (cpu) and --teacher_device_map contradict one another: a map is for the "
         "strategy custom; leave"},
        {{"teacher_device_map=m.json", "teacher_rank=1"},
         "--teacher_device_map and --teacher_rank contradict"},
        {{"teacher_device_strategy=cpu", "teacher_on_cpu=cpu"}, NULL},
        {{"balance_teacher=balanced", "balanced_teacher=balanced"}, NULL},
        {{"teacher_device_strategy=cpu", "teacher_device_strategy=gpu"},
         NULL}, /* the last value counts */
        {{"share_teacher=gpu0", "teacher_rank=1"}, NULL},
        {{"teacher_device_strategy=custom", "teacher_device_map=m.json"}, NULL},
        {{"teacher_device_strategy=auto", "teacher_device_map=m.json", "teacher_rank=1"}, NULL},
        {{"teacher_device_strategy=gpu", "teacher_rank=-1"}, NULL}, /* the default value */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_err err = {0};
        wd_train_options t = wd_train_defaults();
        const wd_status status = give(&t, cases[i].option, &err);
        assert_int_equal(status, cases[i].says ? WD_INVALID_ARGUMENT : WD_OK);
        if (cases[i].says) assert_says(&err, cases[i].says);
    }
    wd_err err;
    wd_train_options t = wd_train_defaults(); /* options that a program has set are a source, too */
    t.teacher_path = t.data_path = "x";
    t.teacher_device_strategy = "disk";
    assert_int_equal(wd_options_check(WD_JOB_TRAIN, &t, &err), WD_OK);
    t.teacher_rank = 1;
    assert_int_equal(wd_options_check(WD_JOB_TRAIN, &t, &err), WD_INVALID_ARGUMENT);
    assert_says(&err, "--teacher_device_strategy (disk) and --teacher_rank");
}

/* Options of an earlier source are no contradiction. */
static void a_later_source_replaces_an_earlier_one(void **state)
{
    (void)state;
    static const struct {
        const char *first[4], *then[4];
        const char *strategy, *map;
        int64_t rank;
    } cases[] = {
        {{"teacher_on_cpu=cpu"}, {"balance_teacher=balanced"}, "balanced", NULL, -1},
        {{"share_teacher=gpu0", "teacher_rank=1"}, {"teacher_on_cpu=cpu"}, "cpu", NULL, -1},
        {{"share_teacher=gpu0", "teacher_rank=1"}, {"teacher_rank=2"}, "gpu0", NULL, 2},
        {{"teacher_rank=1"}, {"share_teacher=gpu0"}, "gpu0", NULL, 1},
        {{"teacher_on_cpu=cpu"}, {"teacher_rank=1"}, NULL, NULL, 1},
        {{"teacher_device_map=m"}, {"teacher_rank=1"}, NULL, NULL, 1},
        {{"teacher_device_map=m"}, {"teacher_device_strategy=gpu"}, "gpu", NULL, -1},
        {{"teacher_device_map=m"}, {"teacher_device_strategy=custom"}, "custom", "m", -1},
        {{"teacher_device_strategy=auto", "teacher_device_map=m"},
         {"teacher_rank=1"},
         "auto",
         "m",
         1},
        {{"share_teacher=gpu0", "teacher_rank=1"}, {"teacher_device_map=m"}, NULL, "m", -1},
        {{"teacher_device_map=m"}, {"batch_size=3"}, NULL, "m", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_err err = {0};
        wd_train_options t = wd_train_defaults();
        t.teacher_path = t.data_path = "x";
        assert_int_equal(give(&t, cases[i].first, &err), WD_OK);
        assert_int_equal(give(&t, cases[i].then, &err), WD_OK);
        assert_int_equal(!t.teacher_device_strategy, !cases[i].strategy);
        if (cases[i].strategy) assert_string_equal(t.teacher_device_strategy, cases[i].strategy);
        assert_int_equal(!t.teacher_device_map, !cases[i].map);
        assert_int_equal(t.teacher_rank, cases[i].rank);
        assert_int_equal(wd_options_check(WD_JOB_TRAIN, &t, &err), WD_OK);
    }
}

/* Other names of dtypes give the choice that the table has. */
static void dtypes_have_other_names(void **state)
{
    (void)state;
    static const char *const teacher[][2] = {{"bf16", "bfloat16"},
                                             {"fp16", "float16"},
                                             {"fp32", "float32"},
                                             {"fp8", "float8_e4m3fn"},
                                             {"bfloat16", "bfloat16"}};
    static const char *const student[][2] = {
        {"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "no"}, {"fp32", "no"}, {"no", "no"}};
    wd_train_options t = wd_train_defaults();
    for (size_t i = 0; i < sizeof teacher / sizeof *teacher; i++) {
        set(&t, WD_JOB_TRAIN, "teacher_dtype", teacher[i][0]);
        assert_string_equal(t.teacher_dtype, teacher[i][1]);
    }
    for (size_t i = 0; i < sizeof student / sizeof *student; i++) {
        set(&t, WD_JOB_TRAIN, "mixed_precision", student[i][0]);
        assert_string_equal(t.mixed_precision, student[i][1]);
    }
    wd_convert_options c = wd_convert_defaults();
    set(&c, WD_JOB_CONVERT, "dtype", "bf16");
    assert_string_equal(c.dtype, "bfloat16");
    wd_err err;
    t.teacher_path = t.data_path = "x";
    t.teacher_dtype = "bf16"; /* a program gives the name of the table */
    assert_int_equal(wd_options_check(WD_JOB_TRAIN, &t, &err), WD_INVALID_ARGUMENT);
}

static void unusable_values_are_refused(void **state)
{
    (void)state;
    refuses(WD_JOB_TRAIN, "batch_size", "-1",
            "--batch_size: expected a whole number from 0 to 65536, "
            "found \"-1\"");
    refuses(WD_JOB_TRAIN, "batch_size", "3x", "found \"3x\"");
    refuses(WD_JOB_TRAIN, "batch_size", "", "found \"\"");
    refuses(WD_JOB_TRAIN, "num_steps", "99999999999999999999", "of at least 0");
    refuses(WD_JOB_TRAIN, "lr", "nan", "--lr: expected a number from 0 to 1");
    refuses(WD_JOB_TRAIN, "teacher_dtype", "fp4",
            "expected float32, float16, bfloat16, float8_e4m3fn or int8");
    refuses(WD_JOB_TRAIN, "teacher_dtype", "no", "expected float32, float16, bfloat16");
    refuses(WD_JOB_TRAIN, "mixed_precision", "fp8", "expected no, bf16 or fp16");
    refuses(WD_JOB_TRAIN, "save_samples", "maybe", "expected auto, true or false, found \"maybe\"");
    refuses(WD_JOB_TRAIN, "bach_size", "1",
            "train has no option --bach_size; is --batch_size meant?");
    refuses(WD_JOB_SAMPLE, "promt", "1", "is --prompt meant?");
    refuses(WD_JOB_SAMPLE, "log-levle", "1", "is --log_level meant?");
    refuses(WD_JOB_SAMPLE, "xyzzy", "1", "`wandistiller sample --help`");
}

static void structs_are_checked(void **state)
{
    (void)state;
    wd_err err;
    wd_forward_options f = wd_forward_defaults();
    assert_int_equal(wd_options_check(WD_JOB_FORWARD, &f, &err), WD_INVALID_ARGUMENT);
    assert_says(&err, "forward needs --model");
    f.model = f.in = f.out = "x";
    f.component = "unet";
    assert_int_equal(wd_options_check(WD_JOB_FORWARD, &f, &err), WD_INVALID_ARGUMENT);
    assert_says(&err, "found \"unet\"");
    f.component = "transformer";
    f.num_threads = -1;
    assert_int_equal(wd_options_check(WD_JOB_FORWARD, &f, &err), WD_INVALID_ARGUMENT);
    assert_says(&err, "--num_threads: expected a whole number from 0 to 4096, found \"-1\"");
    f.num_threads = 0;
    assert_int_equal(wd_options_check(WD_JOB_FORWARD, &f, &err), WD_OK);
    f.out = ""; /* an empty path */
    assert_int_equal(wd_options_check(WD_JOB_FORWARD, &f, &err), WD_INVALID_ARGUMENT);
    assert_says(&err, "--out: expected a path, found \"\"");
}

/* A list is as long as it says, and has a text in each place. */
static void lists_are_checked(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        const char *says;
    } cases[] = {
        {-1, "--prompt: expected a list of 0 to 64 texts, found a count of -1"},
        {INT64_MIN, "found a count of -9223372036854775808"},
        {WD_TEXTS_MAX + 1, "found a count of 65"},
        {INT64_MAX, "found a count of 9223372036854775807"},
        {2, "--prompt: expected 2 texts, found NULL as item[1]"},
    };
    wd_err err;
    const wd_option *o = wd_option_find(WD_JOB_SAMPLE, "prompt", NULL);
    wd_sample_options s = wd_sample_defaults();
    s.model = s.out = "x";
    s.prompt.item[0] = "a fox";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s.prompt.count = cases[i].count;
        assert_int_equal(wd_options_check(WD_JOB_SAMPLE, &s, &err), WD_INVALID_ARGUMENT);
        assert_says(&err, cases[i].says);
        assert_int_equal(wd_sample(&s, &err), WD_INVALID_ARGUMENT);
        assert_says(&err, cases[i].says);
        assert_int_equal(wd_option_set(&s, o, "a cat", &err), WD_INVALID_ARGUMENT);
        assert_says(&err, cases[i].says);
    }
    for (int i = 0; i < WD_TEXTS_MAX; i++) s.prompt.item[i] = "a fox";
    s.prompt.count = WD_TEXTS_MAX;
    assert_int_equal(wd_options_check(WD_JOB_SAMPLE, &s, &err), WD_OK);
    s.prompt.count = 0;
    s.prompts = "x";
    assert_int_equal(wd_options_check(WD_JOB_SAMPLE, &s, &err), WD_OK);
}

static wd_status apply(wd_train_options *t, wd_config **config, const char *json, wd_err *err)
{
    const char *path = "options_test.json";
    FILE *file = fopen(path, "w");
    fputs(json, file);
    fclose(file);
    wd_status status = wd_config_open(config, path, err);
    if (status == WD_OK) status = wd_config_apply(*config, WD_JOB_TRAIN, t, err);
    unlink(path);
    return status;
}

static void files_set_options(void **state)
{
    (void)state;
    wd_train_options t = wd_train_defaults();
    wd_config *config = NULL;
    wd_err err;
    assert_int_equal(apply(&t, &config,
                           "{\"batch-size\": 4, \"lr\": 2e-4, \"save_samples\": true, "
                           "\"mixed_precision\": true, \"sample_prompts\": [\"a\", \"b\"], "
                           "\"num_steps\": 1e3, \"data_path\": \"p.txt\", \"resume\": null}",
                           &err),
                     WD_OK);
    assert_int_equal(t.batch_size, 4);
    assert_int_equal(t.num_steps, 1000);
    assert_true(t.lr == 2e-4);
    assert_string_equal(t.save_samples, "true");
    assert_string_equal(t.mixed_precision, "bf16");
    assert_string_equal(t.data_path, "p.txt");
    assert_int_equal(t.sample_prompts.count, 2);
    json_t *json = wd_train_options_json(&t, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "num_steps")), 1000);
    assert_true(json_is_null(json_object_get(json, "flow_shift")));
    assert_null(json_object_get(json, "num_workers"));
    char *text = json_dumps(json, 0); /* the options in run.json can be read */
    wd_train_options again = wd_train_defaults();
    wd_config *second = NULL;
    assert_int_equal(apply(&again, &second, text, &err), WD_OK);
    json_t *json_again = wd_train_options_json(&again, NULL);
    assert_true(json_equal(json, json_again));
    free(text);
    json_decref(json);
    json_decref(json_again);
    wd_config_close(second);
    wd_config_close(config);
}

/* Paths of a file are relative to its folder; what is not there is a Hub id or another word. */
static void paths_lie_beside_their_file(void **state)
{
    (void)state;
    static const char text[] =
        "{\"teacher_path\": \"Wan-AI/None\", \"data_path\": \"beside.txt\", \"output_dir\": "
        "\"out\", \"cache_dir\": \"/cache\", \"teacher_lora\": \"a.lora:0.5,none:2,a.lora\", "
        "\"sample_prompts\": [\"beside.txt\"]}";
    static const char more[] = "{\"sample_prompts\": [\"a cat\", \"beside.txt\"], "
                               "\"teacher_lora\": \"\"}";
    char folder[512], file[512], expected[2048];
    wd_train_options t = wd_train_defaults();
    wd_config *config = NULL;
    wd_err err;
    snprintf(folder, sizeof folder, "%s", wd_test_path("configs"));
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("configs/beside.txt"), "a", 1, &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("configs/a.lora"), "a", 1, &err), &err);
    snprintf(file, sizeof file, "%s", wd_test_path("configs/options.json"));
    wd_test_ok(wd_file_write(file, text, sizeof text - 1, &err), &err);
    wd_test_ok(wd_config_open(&config, file, &err), &err);
    wd_test_ok(wd_config_apply(config, WD_JOB_TRAIN, &t, &err), &err);
    assert_string_equal(t.teacher_path, "Wan-AI/None");
    assert_string_equal(t.data_path, wd_test_path("configs/beside.txt"));
    assert_string_equal(t.output_dir, wd_test_path("configs/out"));
    assert_string_equal(t.cache_dir, "/cache");
    assert_string_equal(t.sample_prompts.item[0], wd_test_path("configs/beside.txt"));
    snprintf(expected, sizeof expected, "%s/a.lora:0.5,none:2,%s/a.lora", folder, folder);
    assert_string_equal(t.teacher_lora, expected);
    wd_test_ok(wd_config_apply(config, WD_JOB_TRAIN, &t, &err), &err); /* as before */
    assert_string_equal(t.output_dir, wd_test_path("configs/out"));
    wd_config_close(config);
    t = wd_train_defaults(); /* of several prompts none is a file, and an empty list has none */
    wd_test_ok(wd_file_write(file, more, sizeof more - 1, &err), &err);
    wd_test_ok(wd_config_open(&config, file, &err), &err);
    wd_test_ok(wd_config_apply(config, WD_JOB_TRAIN, &t, &err), &err);
    assert_string_equal(t.sample_prompts.item[1], "beside.txt");
    assert_string_equal(t.teacher_lora, "");
    wd_config_close(config);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[1]", "options_test.json: expected a JSON object"},
        {"{\"batch_sise\": 1}", "options_test.json: train has no option --batch_sise"},
        {"{\"batch_size\": \"x\"}", "options_test.json: --batch_size: expected a whole number"},
        {"{\"batch_size\": true}", "--batch_size: expected a whole number, found true"},
        {"{\"data_path\": 3}", "--data_path: expected a text, found a whole number"},
        {"{\"save_samples\": 1.5}", "--save_samples: expected auto, true or false, found \"1.5\""},
        {"{\"lr_schedule\": true}", "--lr_schedule: expected cosine or constant, found \"true\""},
        {"{\"sample_prompts\": [\"a\", 1]}", "expected a text or an array of texts"},
        {"{\"lr\": {}}", "--lr: expected a number, found an object"},
        {"{\"teacher_on_cpu\": true, \"sequential\": true}",
         "options_test.json: --teacher_on_cpu (cpu) and --sequential (sequential) contradict"},
        {"{\"teacher_device_strategy\": \"gpu\", \"teacher_rank\": 1}",
         "options_test.json: --teacher_device_strategy (gpu) and --teacher_rank contradict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_train_options t = wd_train_defaults();
        wd_config *config = NULL;
        wd_err err = {0};
        assert_int_not_equal(apply(&t, &config, cases[i][0], &err), WD_OK);
        assert_says(&err, cases[i][1]);
        wd_config_close(config);
    }
    wd_config *config = NULL;
    wd_err err = {0};
    assert_int_equal(wd_config_open(&config, "no-such.json", &err), WD_NOT_FOUND);
    assert_says(&err, "no-such.json");
}

static void a_stop_is_remembered(void **state)
{
    (void)state;
    assert_false(wd_stop_requested());
    wd_request_stop();
    assert_true(wd_stop_requested());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_sound),
        cmocka_unit_test(numbers_that_are_too_long_are_refused),
        cmocka_unit_test(words_stand_beside_numbers),
        cmocka_unit_test(seeds_have_64_bits),
        cmocka_unit_test(names_of_other_programs_are_known),
        cmocka_unit_test(defaults_are_those_of_the_tables),
        cmocka_unit_test(values_are_read_by_type),
        cmocka_unit_test(python_flags_choose_a_strategy),
        cmocka_unit_test(a_source_agrees_with_itself),
        cmocka_unit_test(a_later_source_replaces_an_earlier_one),
        cmocka_unit_test(dtypes_have_other_names),
        cmocka_unit_test(unusable_values_are_refused),
        cmocka_unit_test(structs_are_checked),
        cmocka_unit_test(lists_are_checked),
        cmocka_unit_test(files_set_options),
        cmocka_unit_test(paths_lie_beside_their_file),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(a_stop_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
