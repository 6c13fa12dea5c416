/* What the pages of docs/ tell people to type works: every line of their `sh` blocks is run, in a
 * folder where the names that they use are those of a small teacher, a short file of prompts and so
 * on; every `json` block is a device map or a student of Wan2.2-A14B. */
#include "program.h"

#include "io/file.h"
#include "io/json.h"

enum { WORDS_MAX = 60, TEXT_MAX = 4096, PAGE_MAX = 1 << 20 };

static wd_program program;

static void write_file(const char *path, const char *text)
{
    wd_err err;
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

/* The folder that the pages' lines are run in. */
static int prepare(void **state)
{
    (void)state;
    static const char prompts[] = "a red apple\na blue star\na yellow smiling face\n";
    static const char *const folders[] = {"Wan-AI", "config", "data"};
    static const char *const teachers[] = {"Wan-AI/Wan2.2-T2V-A14B-Diffusers",
                                           "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"};
    wd_err err;
    if (chdir(wd_test_folder())) return -1;
    for (int i = 0; i < 3; i++) wd_test_ok(wd_folder_make(folders[i], &err), &err);
    for (int i = 0; i < 2; i++)
        if (symlink(WD_SOURCE_DIR "/models/wan-tiny", teachers[i])) return -1;
    write_file("prompts.txt", prompts);
    write_file("held-out.txt", prompts);
    write_file("data/static_prompts.txt", prompts);
    write_file("config/student_config.json", "{\"hidden_size\": 96, \"depth\": 3}");
    write_file("config/device_map.json", "{\"text_encoder\": \"cpu\", \"vae\": \"cpu\", "
                                         "\"transformer\": 0, \"transformer_2\": 1}");
    return 0;
}

/* ---- pages ---- */

/* Cuts the next block that opens with `fence` out of *page, which goes on behind it; NULL: none. */
static char *next_block(char **page, const char *fence)
{
    char *begin = strstr(*page, fence), *end;
    if (!begin) return NULL;
    begin += strlen(fence);
    end = strstr(begin, "\n```");
    assert_non_null(end);
    *end = 0;
    *page = end + 1;
    return begin;
}

static char *read_page(const char *name)
{
    char path[256], *page;
    size_t bytes;
    wd_err err;
    snprintf(path, sizeof path, "%s/%s", WD_SOURCE_DIR, name);
    wd_test_ok(wd_file_read(&page, &bytes, path, PAGE_MAX, &err), &err);
    page[bytes - 1] = 0; /* of the last line's end */
    return page;
}

/* ---- command lines ---- */

typedef struct command {
    char text[TEXT_MAX];
    const char *word[WORDS_MAX + 3];
    int words;
} command;

/* Splits the first command of `text` as a shell would: quotes of both kinds, lines that go on.
 * Returns what is behind it. */
static const char *read_command(command *c, const char *text)
{
    char *to = c->text, quote = 0;
    bool inside = false;
    c->words = 0;
    for (; *text && (quote || *text != '\n'); text++) {
        assert_true(to < c->text + sizeof c->text - 2 && c->words < WORDS_MAX);
        if (!quote && text[0] == '\\' && text[1] == '\n') {
            text++;
            continue;
        }
        if (!quote && *text == ' ') {
            if (inside) *to++ = 0;
            inside = false;
            continue;
        }
        if (!inside) c->word[c->words++] = to;
        inside = true;
        if (*text == quote)
            quote = 0;
        else if (!quote && (*text == '"' || *text == '\''))
            quote = *text;
        else
            *to++ = *text;
    }
    assert_int_equal(quote, 0);
    *to = 0;
    return *text ? text + 1 : text;
}

static void run_command(command *c)
{
    assert_string_equal(c->word[0], "wandistiller");
    if (!strcmp(c->word[1], "train")) {
        c->word[c->words++] = "--num_steps"; /* the last one counts */
        c->word[c->words++] = "2";
    }
    c->word[c->words] = NULL;
    wd_program_run_(&program, c->word + 1);
    if (!program.code) return;
    for (int i = 0; i < c->words; i++) print_error("%s ", c->word[i]);
    fail_msg("exit code %d: %s", program.code, program.err);
}

/* All of a page; `least`: as many there are, or none would be missed. */
static void run_page(const char *name, int least)
{
    static command c;
    char *page = read_page(name), *rest = page;
    int commands = 0;
    for (const char *block; (block = next_block(&rest, "```sh\n"));)
        while (*block) {
            block = read_command(&c, block);
            if (!c.words) continue;
            run_command(&c);
            commands++;
        }
    wd_free(page);
    assert_in_range(commands, least, least + 20);
}

static void readme(void **state)
{
    (void)state;
    run_page("README.md", 6);
}

static void strategies(void **state)
{
    (void)state;
    run_page("docs/strategies.md", 1);
}

static void from_python(void **state)
{
    (void)state;
    run_page("docs/from-python.md", 18);
}

/* ---- files ---- */

static bool is_device_map(const char *text)
{
    wd_err err;
    json_t *json;
    wd_test_ok(wd_json_parse(&json, text, strlen(text), "a page", &err), &err);
    const bool is = json_object_get(json, "transformer");
    json_decref(json);
    return is;
}

static void plan_files(const char *name, int maps, int students)
{
    char *page = read_page(name), *rest = page;
    for (const char *block; (block = next_block(&rest, "```json\n"));) {
        const bool map = is_device_map(block);
        const char *option = map ? "--teacher_device_map" : "--student_config";
        write_file("page.json", block);
        wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", option, "page.json",
                       "--devices", "sim:2x80GiB@link=50GB/s,compute=500TFLOP/s");
        wd_program_succeeded(&program);
        if (map) assert_null(strstr(program.out, "custom needs"));
        maps -= map;
        students -= !map;
    }
    wd_free(page);
    assert_int_equal(maps, 0);
    assert_int_equal(students, 0);
}

static void files(void **state)
{
    (void)state;
    plan_files("docs/strategies.md", 2, 0);
    plan_files("docs/from-python.md", 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readme),
        cmocka_unit_test(strategies),
        cmocka_unit_test(from_python),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
