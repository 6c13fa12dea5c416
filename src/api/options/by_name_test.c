/* Options by name: the same values and errors as by struct, texts that are copied, tables as JSON.
 */
#include "api/options/by_name.h"
#include "api/options/tables.h"
#include "failing.h"
#include "io/json/json.h"

static wd_options *new_options(wd_job job)
{
    wd_err err;
    wd_options *o;
    wd_test_ok(wd_options_new(&o, job, &err), &err);
    return o;
}

static void set(wd_options *o, const char *name, const char *value)
{
    wd_err err;
    wd_test_ok(wd_options_set(o, name, value, &err), &err);
}

static void refuses(wd_job job, const char *name, const char *value, const char *says)
{
    wd_err err;
    wd_options *o = new_options(job);
    wd_test_refused(wd_options_set(o, name, value, &err), &err, WD_INVALID_ARGUMENT, says);
    wd_options_free(o);
}

/* A value that an option takes and that is not its default. */
static const char *other_value(const wd_option *o)
{
    static char number[32];
    switch (o->type) {
    case WD_OPTION_FLAG:
        return "true";
    case WD_OPTION_INT:
    case WD_OPTION_FLOAT:
        snprintf(number, sizeof number, "%.9g", o->max < 1e6 ? o->max : 1e6);
        return number;
    case WD_OPTION_SEED:
        return "18446744073709551615";
    case WD_OPTION_CHOICE:
        return o->choices[1] ? o->choices[1] : o->choices[0];
    default:
        return "a text";
    }
}

static void every_option_has_the_value_that_was_set(void **state)
{
    (void)state;
    static char expected[4096];
    for (int job = 0; job < WD_JOB_COUNT; job++) {
        int64_t count;
        wd_err err;
        const wd_option *table = wd_options_of((wd_job)job, &count);
        for (int64_t i = 0; i < count; i++) {
            wd_options *o = new_options((wd_job)job);
            wd_options_default(expected, wd_options_bytes((wd_job)job), (wd_job)job);
            assert_memory_equal(o->fields, expected, wd_options_bytes((wd_job)job));
            set(o, table[i].name, other_value(&table[i]));
            wd_test_ok(wd_option_set(expected, &table[i], other_value(&table[i]), &err), &err);
            assert_true(wd__option_same(&table[i], o->fields, expected));
            wd_options_free(o);
        }
    }
}

static void texts_are_copied(void **state)
{
    (void)state;
    char value[] = "first", name[] = "prompt";
    wd_options *o = new_options(WD_JOB_SAMPLE);
    const wd_sample_options *sample = o->fields;
    set(o, name, value);
    memset(value, 'x', 5);
    memset(name, 'x', 6);
    set(o, "prompt", "second");
    set(o, "out", "a.png");
    set(o, "out", "b.png");
    assert_int_equal(sample->prompt.count, 2);
    assert_string_equal(sample->prompt.item[0], "first");
    assert_string_equal(sample->prompt.item[1], "second");
    assert_string_equal(sample->out, "b.png");
    wd_options_free(o);
    wd_options_free(NULL);
}

static void what_is_not_usable_is_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_options *o;
    refuses(WD_JOB_TRAIN, "learning_rate", "1e-4", "train has no option --learning_rate; is --lr");
    refuses(WD_JOB_TRAIN, "batch_sise", "2", "is --batch_size meant?");
    refuses(WD_JOB_TRAIN, "batch_size", "two", "--batch_size: expected a whole number");
    refuses(WD_JOB_CONVERT, "to", "onnx", "expected comfyui, gguf or diffusers, found \"onnx\"");
    refuses(WD_JOB_PLAN, "config", NULL, "--config: expected a file, found none");
    refuses(WD_JOB_PLAN, "log_level", "debug", "expected an option of plan; wd_log_to");
    wd_test_refused(wd_options_new(&o, WD_JOB_COMMON, &err), &err, WD_INVALID_ARGUMENT, "a job");
    o = new_options(WD_JOB_TRAIN);
    set(o, "teacher_on_cpu", NULL);
    assert_string_equal(((const wd_train_options *)o->fields)->teacher_device_strategy, "cpu");
    wd_test_refused(wd_options_set(o, "balance_teacher", NULL, &err), &err, WD_INVALID_ARGUMENT,
                    "contradict one another");
    wd_test_refused(wd_options_set(o, "batch_size", NULL, &err), &err, WD_INVALID_ARGUMENT,
                    "--batch_size: expected a value, found none");
    wd_options_free(o);
}

static void a_file_comes_before_names(void **state)
{
    (void)state;
    static const char text[] = "{\"batch_size\": 3, \"lr\": 0.5, \"output_dir\": \"there\"}";
    char path[160];
    wd_err err;
    snprintf(path, sizeof path, "%s/options.json", wd_test_folder());
    wd_test_ok(wd_file_write(path, text, sizeof text - 1, &err), &err);
    wd_options *o = new_options(WD_JOB_TRAIN);
    const wd_train_options *train = o->fields;
    set(o, "config", path);
    set(o, "batch-size", "4");
    assert_int_equal(train->batch_size, 4);
    assert_true(train->lr == 0.5);
    assert_string_equal(train->output_dir + strlen(train->output_dir) - 6, "/there");
    wd_test_refused(wd_options_set(o, "config", path, &err), &err, WD_INVALID_ARGUMENT,
                    "expected before all other options");
    wd_options_free(o);
}

/* A list without texts replaces a file's, and may get texts afterwards. */
static void a_list_may_have_no_texts(void **state)
{
    (void)state;
    static const char text[] = "{\"prompt\": [\"a\", \"b\"]}";
    char path[160];
    wd_err err;
    snprintf(path, sizeof path, "%s/lists.json", wd_test_folder());
    wd_test_ok(wd_file_write(path, text, sizeof text - 1, &err), &err);
    wd_options *o = new_options(WD_JOB_SAMPLE);
    const wd_sample_options *sample = o->fields;
    set(o, "config", path);
    assert_int_equal(sample->prompt.count, 2);
    set(o, "prompt", NULL);
    assert_int_equal(sample->prompt.count, 0);
    set(o, "prompt", "c");
    assert_int_equal(sample->prompt.count, 1);
    assert_string_equal(sample->prompt.item[0], "c");
    wd_options_free(o);
}

static void tables_are_listed(void **state)
{
    (void)state;
    for (int job = 0; job <= WD_JOB_COMMON; job++) {
        int64_t count;
        wd_err err;
        char *text;
        json_t *list;
        const wd_option *table = wd_options_of((wd_job)job, &count);
        wd_test_ok(wd_options_list(&text, (wd_job)job, &err), &err);
        list = json_loads(text, 0, NULL);
        wd_text_free(text);
        assert_int_equal(json_array_size(list), count);
        for (int64_t i = 0; i < count; i++) {
            const json_t *o = json_array_get(list, (size_t)i);
            const json_t *choices = json_object_get(o, "choices");
            const char *type = json_string_value(json_object_get(o, "type"));
            const char *value = json_string_value(json_object_get(o, "default"));
            assert_int_equal(json_object_size(o), 15);
            assert_string_equal(json_string_value(json_object_get(o, "name")), table[i].name);
            assert_string_equal(json_string_value(json_object_get(o, "help")), table[i].help);
            assert_string_equal(value ? value : "", table[i].default_text);
            assert_int_equal(json_is_array(choices), table[i].choices != NULL);
            assert_int_equal(!strcmp(type, "flag"), table[i].type == WD_OPTION_FLAG);
            assert_int_equal(json_is_true(json_object_get(o, "required")),
                             (table[i].flags & WD_OPTION_REQUIRED) != 0);
        }
        json_decref(list);
    }
}

static wd_status attempt(void *context, wd_err *err)
{
    (void)context;
    wd_options *o;
    char *text;
    WD_TRY(wd_options_new(&o, WD_JOB_SAMPLE, err));
    wd_status status = wd_options_set(o, "prompt", "a fox", err);
    if (status == WD_OK) status = wd_options_set(o, "out", "a.png", err);
    wd_options_free(o);
    if (status != WD_OK) return status;
    WD_TRY(wd_options_list(&text, WD_JOB_SAMPLE, err));
    wd_text_free(text);
    return WD_OK;
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    wd_test_failing_allocations(attempt, NULL, NULL, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_has_the_value_that_was_set),
        cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(what_is_not_usable_is_refused),
        cmocka_unit_test(a_file_comes_before_names),
        cmocka_unit_test(a_list_may_have_no_texts),
        cmocka_unit_test(tables_are_listed),
        cmocka_unit_test(memory_may_end_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
