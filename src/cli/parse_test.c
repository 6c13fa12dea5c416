/* Tests of command lines: lists, files of options, and commands that the program prints for
 * pasting, which are read through a shell. */
#include "program.h"

#include "api/options/options.h"
#include "cli/cli.h"
#include "core/random.h"

enum { WORDS_MAX = 400, COMMAND_BYTES = 1 << 16, DRAWS = 300 };

/* Parses "train" and the words into *options; *input must be closed. */
static wd_status parse(wd_train_options *options, wd_cli_input *input, const char *const *words,
                       wd_err *err)
{
    char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "train"};
    int argc = 1;
    for (; *words; words++) {
        assert_true(argc <= WORDS_MAX);
        argv[argc++] = (char *)(uintptr_t)*words;
    }
    return wd_cli_open(input, WD_JOB_TRAIN, options, argc, argv, err);
}

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static const char *write_config(const char *name, const char *json)
{
    wd_err err;
    const char *path = wd_test_path(name);
    wd_test_ok(wd_file_write(path, json, strlen(json), &err), &err);
    return path;
}

static void assert_prompts(const char *const *words, const char *const *expected)
{
    wd_err err;
    wd_train_options o;
    wd_cli_input input;
    wd_test_ok(parse(&o, &input, words, &err), &err);
    int64_t n = 0;
    for (; expected[n]; n++) {
        assert_in_range(n, 0, o.sample_prompts.count - 1);
        assert_string_equal(o.sample_prompts.item[n], expected[n]);
    }
    assert_int_equal(o.sample_prompts.count, n);
    wd_cli_close(&input);
}

/* Lists are extended however they are given; the command line's list replaces that of a file. */
static void lists_add_up(void **state)
{
    (void)state;
    const char *file = write_config("list.json", "{\"sample_prompts\": [\"x\", \"y\"]}");
    assert_prompts(WORDS("--sample_prompts", "a", "b"), WORDS("a", "b"));
    assert_prompts(WORDS("--sample_prompts=a", "--sample_prompts=b"), WORDS("a", "b"));
    assert_prompts(WORDS("--sample_prompts", "a", "--sample_prompts", "b"), WORDS("a", "b"));
    assert_prompts(WORDS("--sample_prompts=--a", "--sample_prompts", "b", "c"),
                   WORDS("--a", "b", "c"));
    assert_prompts(WORDS("--config", file), WORDS("x", "y"));
    assert_prompts(WORDS("--config", file, "--sample_prompts=a"), WORDS("a"));
    assert_prompts(WORDS("--sample_prompts", "a", "--config", file, "--sample-prompts", "b"),
                   WORDS("a", "b"));
}

static void assert_batch(const char *const *words, int64_t batch_size)
{
    wd_err err;
    wd_train_options o;
    wd_cli_input input;
    wd_test_ok(parse(&o, &input, words, &err), &err);
    assert_int_equal(o.batch_size, batch_size);
    wd_cli_close(&input);
}

static void of_two_files_the_later_counts(void **state)
{
    (void)state;
    const char *one = write_config("one.json", "{\"batch_size\": 1, \"num_steps\": 9}");
    const char *two = write_config("two.json", "{\"batch_size\": 2}");
    assert_batch(WORDS("--config", one, "--config", two), 2);
    assert_batch(WORDS("--config", two, "--config=", "--config", one), 1);
    assert_batch(WORDS("--batch_size", "3", "--config", two, "--config", one), 3);
    assert_batch(WORDS("--config", one, "--negative_prompt", "--config"), 1); /* a name needs one */
    assert_batch(WORDS("--config", one, "--negative_prompt=--config", "--data_path", two), 1);
}

static void assert_refused(const char *json, const char *says)
{
    wd_err err;
    wd_train_options o;
    wd_cli_input input;
    const char *path = write_config("refused.json", json);
    wd_test_refused(parse(&o, &input, WORDS("--config", path), &err), &err, WD_INVALID_ARGUMENT,
                    says);
    wd_cli_close(&input);
}

static void what_stands_beside_options_is_known(void **state)
{
    (void)state;
    assert_batch(WORDS("--config", write_config("run.json", "{\"command\": \"train\", "
                                                            "\"options\": {\"batch_size\": 5}, "
                                                            "\"resolved\": {\"batch_size\": 7}}")),
                 5);
    assert_refused("{\"options\": {}, \"batch_size\": 4}",
                   "refused.json: \"batch_size\" stands beside \"options\": expected it in there");
    assert_refused("{\"option\": {\"batch_size\": 4}}", "train has no option --option");
    assert_refused("{\"options\": {\"batch_sice\": 4}}", "is --batch_size meant?");
}

/* ---- commands ---- */

static uint32_t next; /* of the stream of random numbers */

static uint32_t draw(uint32_t below)
{
    const wd_random key = {.seed = 29, .stream = WD_RANDOM_SAMPLE_NOISE};
    return (uint32_t)wd_random_below(key, next++, below);
}

static const char *draw_text(void)
{
    static const char *const texts[] = {"plain",
                                        "",
                                        "two words",
                                        "it's",
                                        "\"quoted\"",
                                        "$(touch pwned)",
                                        "`id`",
                                        "a\\b",
                                        "--batch_size",
                                        "--",
                                        "-1",
                                        "=x",
                                        "name=value",
                                        "two\nlines",
                                        "*",
                                        "~",
                                        "#no",
                                        "a;b|c&d",
                                        "\xc3\xa4\xe2\x82\xac",
                                        "!history",
                                        "--x y",
                                        "'",
                                        "\\",
                                        "{a,b}",
                                        "<in >out"};
    return texts[draw(sizeof texts / sizeof *texts)];
}

static void draw_value(void *options, const wd_option *o)
{
    char number[64];
    wd_err err;
    const char *value = number;
    const double part = draw(1000) / 999.0, max = o->max < 1e6 ? o->max : 1e6;
    int64_t choices = 0;
    switch (o->type) {
    case WD_OPTION_FLAG:
        value = draw(2) ? "true" : "false";
        break;
    case WD_OPTION_SEED:
    case WD_OPTION_INT:
        snprintf(number, sizeof number, "%.0f", o->min + part * (max - o->min));
        break;
    case WD_OPTION_FLOAT:
        snprintf(number, sizeof number, "%.17g", o->min + part * (max - o->min));
        break;
    case WD_OPTION_CHOICE:
        while (o->choices[choices]) choices++;
        value = o->choices[draw((uint32_t)choices)];
        break;
    default:
        value = draw_text();
    }
    wd_test_ok(wd_option_set(options, o, value, &err), &err);
}

/* The words that a shell makes of a command, in one block of which `words` points to each. */
static void split_by_shell(char *block, const char **words, const char *command)
{
    char script[COMMAND_BYTES + 128];
    const char *path = wd_test_path("command.sh");
    wd_err err;
    snprintf(script, sizeof script, "wandistiller() { shift; printf '%%s\\000' \"$@\"; }\n%s\n",
             command);
    wd_test_ok(wd_file_write(path, script, strlen(script), &err), &err);
    snprintf(script, sizeof script, "sh %s", path);
    FILE *pipe = popen(script, "r");
    const size_t n = fread(block, 1, COMMAND_BYTES, pipe);
    assert_int_equal(pclose(pipe), 0);
    for (size_t at = 0; at < n; at += strlen(block + at) + 1) *words++ = block + at;
    *words = NULL;
}

static void assert_reads_back(const wd_train_options *options)
{
    static char command[COMMAND_BYTES], block[COMMAND_BYTES + 1];
    static const char *words[WORDS_MAX + 1];
    wd_err err;
    wd_train_options again;
    wd_cli_input input;
    wd_train_command(command, sizeof command, options);
    split_by_shell(block, words, command);
    if (parse(&again, &input, words, &err) != WD_OK) fail_msg("%s\n%s", err.message, command);
    json_t *a = wd_train_options_json(options, NULL);
    json_t *b = wd_train_options_json(&again, NULL);
    if (!json_equal(a, b)) fail_msg("%s\nmeans\n%s", command, json_dumps(b, 0));
    json_decref(a);
    json_decref(b);
    wd_cli_close(&input);
}

static void a_printed_command_means_what_was_run(void **state)
{
    (void)state;
    int64_t count, read_back = 0;
    const wd_option *table = wd_options_of(WD_JOB_TRAIN, &count);
    for (int i = 0; i < DRAWS; i++) {
        wd_train_options o = wd_train_defaults();
        o.teacher_path = o.data_path = "x";
        for (int64_t k = 0; k < count; k++)
            for (uint32_t n = draw(3) ? 0 : 1 + draw(3) * (table[k].type == WD_OPTION_TEXTS); n;
                 n--)
                draw_value(&o, &table[k]);
        if (wd_options_check(WD_JOB_TRAIN, &o, NULL) != WD_OK) continue; /* they contradict */
        assert_reads_back(&o);
        read_back++;
    }
    assert_true(read_back > DRAWS / 4);
}

/* A command that does not fit is replaced by "...", since a cut one would mean something else. */
static void a_long_command_is_not_cut(void **state)
{
    (void)state;
    char command[64];
    wd_train_options o = wd_train_defaults();
    o.num_steps = 5;
    wd_train_command(command, sizeof command, &o);
    assert_string_equal(command, "wandistiller train --num_steps 5");
    o.data_path = "a path that is too long for the command to have room for it";
    wd_train_command(command, sizeof command, &o);
    assert_string_equal(command, "wandistiller train ...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_add_up),
        cmocka_unit_test(of_two_files_the_later_counts),
        cmocka_unit_test(what_stands_beside_options_is_known),
        cmocka_unit_test(a_printed_command_means_what_was_run),
        cmocka_unit_test(a_long_command_is_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
