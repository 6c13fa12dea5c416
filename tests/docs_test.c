/* What the pages tell people to type works: every command of README.md and docs/ is run, in a
 * folder where the names that they use are those of a small teacher, a short file of prompts and so
 * on; every `json` block is a device map, a student, or a file of options. Lists that are made of
 * the program's own tables are whole. A page opens with the command that its readers want. */
#include "program.h"

#include <dirent.h>

#include "io/file/file.h"
#include "io/json/json.h"
#include "teacher/plan/strategy.h"
#include "wandistiller.h"

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
    static const char *const folders[] = {"Wan-AI", "config", "data", "shared"};
    static const char *const teachers[] = {"Wan-AI/Wan2.2-T2V-A14B-Diffusers",
                                           "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "shared/teacher"};
    wd_err err;
    if (chdir(wd_test_folder()) || symlink(WD_SOURCE_DIR "/models", "models") ||
        symlink(WD_SOURCE_DIR "/tools", "tools"))
        return -1;
    for (int i = 0; i < 4; i++) wd_test_ok(wd_folder_make(folders[i], &err), &err);
    for (int i = 0; i < 3; i++)
        if (symlink(WD_SOURCE_DIR "/models/wan-tiny", teachers[i])) return -1;
    write_file("prompts.txt", prompts);
    write_file("held-out.txt", prompts);
    write_file("data/static_prompts.txt", prompts);
    write_file("shared/prompts.txt", prompts);
    write_file("student.json", "{\"hidden_size\": 1536, \"depth\": 20}");
    write_file("config/student_config.json", "{\"hidden_size\": 96, \"depth\": 3}");
    write_file("config/device_map.json", "{\"text_encoder\": \"cpu\", \"vae\": \"cpu\", "
                                         "\"transformer\": 0, \"transformer_2\": 1}");
    return 0;
}

/* ---- pages ---- */

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

static const char *next_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return end ? end + 1 : text + strlen(text);
}

/* ---- command lines ---- */

typedef struct command {
    char text[TEXT_MAX];
    const char *word[WORDS_MAX + 9];
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

/* Whether a line outside of `sh` blocks is a command: of the program, or of what starts its ranks.
 */
static bool is_command(const char *line)
{
    static const char *const begins[] = {"wandistiller ", "mpirun ", "srun ", "exec mpirun "};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(line, begins[i], strlen(begins[i]))) return true;
    return false;
}

/* What `sh` blocks call and this test does not run. */
static bool is_of_other_program(const command *c)
{
    static const char *const others[] = {"make", "cc", "pip"};
    for (size_t i = 0; i < sizeof others / sizeof *others && c->words; i++)
        if (!strcmp(c->word[0], others[i])) return true;
    return false;
}

/* What only stands for words of the reader's. */
static bool is_template(const command *c)
{
    for (int i = 0; i < c->words; i++)
        if (!strcmp(c->word[i], "...")) return true;
    return false;
}

/* Whether a word names a part of a teacher in a file of its own. */
static bool is_part(const char *word)
{
    static const char *const parts[] = {"--transformer", "--transformer_2", "--text_encoder",
                                        "--vae"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(word, parts[i])) return true;
    return false;
}

/* Puts the small teacher in the place of files whose sizes are those of a published one. */
static void take_small_teacher(command *c)
{
    int to = 0, parts = 0;
    for (int i = 0; i < c->words; i++) {
        const bool is = is_part(c->word[i]);
        parts += is;
        if (!strncmp(c->word[i], "diffusion_models/", 17)) c->word[i] = "shared/teacher";
        if (is)
            i++;
        else
            c->word[to++] = c->word[i];
    }
    c->words = to;
    if (!parts) return;
    c->word[c->words++] = "--teacher_path";
    c->word[c->words++] = "shared/teacher";
}

/* Leaves out who starts ranks, of which this machine need have one only: the command line itself
 * asks for it. /shared is a folder here. A run is short, and of small pictures: of an option the
 * last value counts. */
static void run_command(command *c)
{
    int at = 0;
    bool ranks = false;
    char workflow[WD_PATH_MAX];
    while (at < c->words && strcmp(c->word[at], "wandistiller")) at++;
    assert_in_range(at, 0, c->words - 2);
    take_small_teacher(c);
    for (int i = at; i < c->words; i++) {
        const char *w = c->word[i];
        if (!strncmp(w, "/shared/", 8)) c->word[i] = w + 1;
        if (!strncmp(w, "cuda:", 5)) c->word[i] = "sim:4x80GiB"; /* this machine has no GPU */
        ranks |= !strcmp(w, "--distributed") || !strcmp(w, "--nproc_per_node");
    }
    static const char *const shorter[] = {"--num_steps", "2",  "--height",         "64",
                                          "--width",     "64", "--nproc_per_node", "1"};
    if (!strcmp(c->word[at + 1], "train")) {
        for (int i = at; i < c->words; i++) /* sizes that the small teacher can give */
            if (!strcmp(c->word[i], "student.json")) c->word[i] = "config/student_config.json";
        for (int i = 0; i < (ranks ? 8 : 6); i++) c->word[c->words++] = shorter[i];
    }
    if (!strcmp(c->word[at + 1], "convert")) { /* what an earlier page made */
        snprintf(workflow, sizeof workflow, "%s.json", c->word[c->words - 1]);
        unlink(c->word[c->words - 1]);
        unlink(workflow);
    }
    c->word[c->words] = NULL;
    wd_program_run_(&program, c->word + at + 1);
    if (!program.code) return;
    for (int i = 0; i < c->words; i++) print_error("%s ", c->word[i]);
    fail_msg("exit code %d: %s", program.code, program.err);
}

/* All commands of a page: the lines of `sh` blocks, and those of other blocks with a language and
 * of indented ones that are commands. A block without a language is what a program has printed. */
static void run_page(const char *name, int commands)
{
    static command c;
    int run = 0;
    bool fence = false, shell = false, printed = false;
    char *page = read_page(name);
    for (const char *line = page; *line;) {
        const char *text = line + strspn(line, " ");
        if (!strncmp(line, "```", 3)) {
            fence = !fence;
            shell = fence && !strncmp(line, "```sh\n", 6);
            printed = fence && line[3] == '\n';
        } else if (!printed &&
                   (shell ? *text != '\n' : (fence || text - line >= 4) && is_command(text))) {
            line = read_command(&c, text);
            if (is_template(&c) || is_of_other_program(&c)) continue;
            run_command(&c);
            run++;
            continue;
        }
        line = next_line(line);
    }
    wd_free(page);
    if (run != commands)
        fail_msg("%s: expected %d commands, found %d: mend the number if they are all there", name,
                 commands, run);
}

/* How many commands each page has, lest one is not seen as one, and whether it opens with one. */
static const struct {
    const char *name;
    int commands;
    bool opens;
} pages[] = {
    {"README.md", 5, false},
    {"docs/a14b.md", 7, true},
    {"docs/design.md", 0, false},
    {"docs/from-python.md", 18, true},
    {"docs/glossary.md", 0, false},
    {"docs/gpu.md", 0, true},
    {"docs/library.md", 0, true},
    {"docs/models.md", 8, true},
    {"docs/monitoring.md", 3, true},
    {"docs/options.md", 1, true},
    {"docs/ranks.md", 6, true},
    {"docs/recipe.md", 4, true},
    {"docs/strategies.md", 3, true},
    {"docs/student-config.md", 8, true},
    {"docs/troubleshooting.md", 2, true},
    {"docs/which-recipe.md", 2, true},
};

enum { PAGES = sizeof pages / sizeof *pages };

static void commands_work(void **state)
{
    (void)state;
    for (int i = 0; i < PAGES; i++) run_page(pages[i].name, pages[i].commands);
}

static void every_page_is_known(void **state)
{
    (void)state;
    DIR *folder = opendir(WD_SOURCE_DIR "/docs");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        bool known = !strstr(entry->d_name, ".md");
        for (int i = 0; i < PAGES; i++) known |= !strcmp(pages[i].name + 5, entry->d_name);
        if (!known) fail_msg("docs/%s: name it in the test of the pages", entry->d_name);
    }
    closedir(folder);
}

/* ---- how a page opens ---- */

enum { OPENING_LINES = 15 };

/* A command of a page's first block is complete, and has only options of the command it calls. */
static void check_opening_command(const char *page, const command *c)
{
    int at = 0;
    wd_err err;
    wd_job job = WD_JOB_COMMON; /* of a call without a command */
    if (is_template(c)) fail_msg("%s: the first block has words left out (...)", page);
    while (at < c->words && strcmp(c->word[at], "wandistiller")) at++;
    if (at + 1 >= c->words) return; /* it calls another program */
    if (c->word[at + 1][0] != '-') wd_test_ok(wd_job_find(&job, c->word[at + 1], &err), &err);
    for (int i = at + 1; i < c->words; i++) {
        char name[64];
        if (strncmp(c->word[i], "--", 2)) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(c->word[i] + 2, "="), c->word[i] + 2);
        if (!strcmp(name, "help") || !strcmp(name, "version")) continue;
        if (!wd_option_find(job, name, NULL) && !wd_option_find(WD_JOB_COMMON, name, NULL))
            fail_msg("%s: the first block calls wandistiller %s with --%s, which it does not have",
                     page, c->word[at + 1], name);
    }
}

/* A page's first block of commands is near its top, where readers look for it. */
static void check_opening(const char *name)
{
    static command c;
    int line = 1;
    char *page = read_page(name), *rest = page;
    const char *block = next_block(&rest, "```sh\n");
    for (const char *at = page; block && at < block; at++) line += *at == '\n';
    if (!block || line - 1 > OPENING_LINES)
        fail_msg("%s: expected its first block of commands (```sh) within %d lines, found %s", name,
                 OPENING_LINES, block ? "it behind them" : "none");
    while (*block) {
        block = read_command(&c, block);
        check_opening_command(name, &c);
    }
    wd_free(page);
}

static void pages_open_with_a_command(void **state)
{
    (void)state;
    for (int i = 0; i < PAGES; i++)
        if (pages[i].opens) check_opening(pages[i].name);
}

/* ---- files ---- */

static bool has(const char *text, const char *key)
{
    wd_err err;
    json_t *json;
    wd_test_ok(wd_json_parse(&json, text, strlen(text), "a page", &err), &err);
    const bool is = json_object_get(json, key);
    json_decref(json);
    return is;
}

static void plan_file(const char *text, const char *preset, const char *option)
{
    write_file("page.json", text);
    wd_program_run(&program, "plan", "--teacher_preset", preset, option, "page.json", "--devices",
                   "sim:2x80GiB@link=50GB/s,compute=500TFLOP/s");
    wd_program_succeeded(&program);
}

static void plan_files(const char *name, int maps, int students, int options)
{
    char *page = read_page(name), *rest = page;
    for (const char *block; (block = next_block(&rest, "```json\n"));) {
        if (has(block, "teacher_path")) {
            write_file("page.json", block);
            wd_program_run(&program, "plan", "--config", "page.json");
            wd_program_succeeded(&program);
            options--;
        } else if (has(block, "transformer")) {
            plan_file(block, "wan2.2-a14b", "--teacher_device_map");
            assert_null(strstr(program.out, "custom needs"));
            maps--;
        } else {
            plan_file(block, "wan2.2-a14b", "--student_config");
            students--;
        }
    }
    wd_free(page);
    assert_int_equal(maps, 0);
    assert_int_equal(students, 0);
    assert_int_equal(options, 0);
}

/* Indented lines that are students: JSON, and what it is. */
static void plan_lines(const char *name, int students)
{
    char *page = read_page(name);
    for (const char *line = page; *line; line = next_line(line)) {
        char text[256];
        if (strncmp(line, "    {", 5)) continue;
        snprintf(text, sizeof text, "%.*s}", (int)strcspn(line, "}"), line);
        plan_file(text, "wan2.1-1.3b", "--student_config");
        students--;
    }
    wd_free(page);
    assert_int_equal(students, 0);
}

static void files_work(void **state)
{
    (void)state;
    plan_files("docs/strategies.md", 2, 0, 0);
    plan_files("docs/from-python.md", 1, 1, 0);
    plan_files("docs/options.md", 0, 0, 1);
    plan_files("docs/student-config.md", 0, 1, 0);
    plan_lines("docs/student-config.md", 1);
}

/* ---- lists ---- */

/* The section that opens with `title`, cut at the next one. */
static char *section_of(char *page, const char *title)
{
    char *begin = strstr(page, title);
    assert_non_null(begin);
    char *end = strstr(begin + strlen(title), "\n## ");
    if (end) *end = 0;
    return begin;
}

static void options_that_keep_the_student_are_listed(void **state)
{
    (void)state;
    int64_t count;
    char name[64], *page = read_page("docs/options.md");
    const char *section = section_of(page, "## What never changes the student");
    const wd_option *table = wd_options_of(WD_JOB_TRAIN, &count);
    for (int64_t i = 0; i < count; i++) {
        if (table[i].flags & WD_OPTION_LEGACY) continue;
        const bool same = table[i].flags & WD_OPTION_SAME_STUDENT;
        snprintf(name, sizeof name, "`--%s`", table[i].name);
        if (same != (strstr(section, name) != NULL))
            fail_msg("docs/options.md: %s is %s what never changes the student", name,
                     same ? "missing in the list of" : "listed with, but is not,");
    }
    wd_free(page);
}

static void strategies_are_listed(void **state)
{
    (void)state;
    char row[64], *page = read_page("docs/strategies.md");
    const char *section = section_of(page, "## The nine strategies");
    assert_int_equal(WD_STRATEGY_COUNT, 9);
    for (int i = 0; i < WD_STRATEGY_COUNT; i++) {
        snprintf(row, sizeof row, "\n| `%s` |", wd_strategy_name((wd_strategy)i));
        if (!strstr(section, row)) fail_msg("docs/strategies.md: no row \"%s\"", row);
    }
    wd_free(page);
}

/* Whether `name` is an option of any command, by any of its names. */
static bool is_option(const char *name)
{
    for (int job = 0; job <= (int)WD_JOB_COMMON; job++)
        if (wd_option_find((wd_job)job, name, NULL)) return true;
    return false;
}

/* Options of other programs that the pages name: of mpirun, Slurm, ctest, CMake, Docker and
 * Apptainer. */
static bool is_of_another(const char *name)
{
    static const char *const others[] = {"map-by",        "bind-to",
                                         "oversubscribe", "allow-run-as-root",
                                         "mca",           "cpus-per-task",
                                         "signal",        "requeue",
                                         "with-pmix",     "preset",
                                         "gpus",          "shm-size",
                                         "ulimit",        "nv"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i])) return true;
    return false;
}

/* Checks every "`--name" of a page; returns how many there are. */
static int check_options_of(const char *page_name)
{
    int named = 0;
    char *page = read_page(page_name);
    for (const char *at = page; (at = strstr(at, "`--")); named++) {
        char name[64];
        at += 3;
        snprintf(name, sizeof name, "%.*s",
                 (int)strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_-"), at);
        if (!is_option(name) && !is_of_another(name))
            fail_msg("%s: --%s is no option of any command", page_name, name);
    }
    wd_free(page);
    return named;
}

static void every_option_that_is_named_exists(void **state)
{
    (void)state;
    int named = check_options_of("CONTRIBUTING.md") + check_options_of("SECURITY.md");
    for (int i = 0; i < PAGES; i++) named += check_options_of(pages[i].name);
    if (named < 100) fail_msg("the pages name only %d options", named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_work),
        cmocka_unit_test(every_page_is_known),
        cmocka_unit_test(pages_open_with_a_command),
        cmocka_unit_test(files_work),
        cmocka_unit_test(options_that_keep_the_student_are_listed),
        cmocka_unit_test(strategies_are_listed),
        cmocka_unit_test(every_option_that_is_named_exists),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
