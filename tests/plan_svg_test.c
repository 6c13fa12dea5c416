/* `plan --svg`: well-formed XML, a block for every item of memory and a row for everything that
 * works, nothing outside the picture, no name upon another. */
#include "program.h"

#include <ctype.h>

#include "io/file/file.h"
#include "io/json/json.h"

enum { PICTURE_MAX = 1 << 20, DEPTH_MAX = 16, NAME_MAX_ = 32, TEXTS_MAX = 512 };

static wd_program program;

#define PLAN(...)                                                                                  \
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype",         \
                   "bfloat16", "--student_config", wd_test_path("student.json"), "--height",       \
                   "512", "--width", "512", "--batch_size", "4", "--mixed_precision", __VA_ARGS__)

static int prepare(void **state)
{
    (void)state;
    wd_err err;
    static const char config[] = "{\"hidden_size\": 1536, \"depth\": 20}";
    return wd_file_write(wd_test_path("student.json"), config, sizeof config - 1, &err);
}

static char *read_picture(const char *name)
{
    char *text;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_file_read(&text, &bytes, wd_test_path(name), PICTURE_MAX, &err), &err);
    return text;
}

/* ---- XML ---- */

/* Behind a reference; anything else that begins with & is none. */
static const char *skip_reference(const char *at)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    for (int i = 0; i < 4; i++)
        if (!strncmp(at, known[i], strlen(known[i]))) return at + strlen(known[i]);
    fail_msg("a stray &: %.40s", at);
    return at;
}

/* name="value" ... up to > or />. */
static const char *skip_attributes(const char *at)
{
    while (*at == ' ') {
        const char *name = ++at;
        while (isalnum((unsigned char)*at) || *at == '-') at++;
        if (at == name || at[0] != '=' || at[1] != '"') fail_msg("no attribute: %.40s", name);
        for (at += 2; *at != '"';) {
            assert_true(*at && *at != '<');
            at = *at == '&' ? skip_reference(at) : at + 1;
        }
        at++;
    }
    return at;
}

/* Elements that are closed in order, one root, text and attributes escaped: all that is used. */
static void assert_well_formed(const char *at)
{
    char open[DEPTH_MAX][NAME_MAX_];
    int depth = 0, roots = 0;
    while (*at) {
        if (*at == '&') {
            assert_true(depth);
            at = skip_reference(at);
            continue;
        }
        if (*at != '<') {
            if (*at == '>' || (!depth && !isspace((unsigned char)*at)) ||
                ((unsigned char)*at < ' ' && *at != '\n'))
                fail_msg("stray text: %.40s", at);
            at++;
            continue;
        }
        const bool closing = at[1] == '/';
        const char *name = at + 1 + closing;
        size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        assert_in_range(n, 1, NAME_MAX_ - 1);
        at = name + n;
        if (closing) {
            if (!depth || strlen(open[depth - 1]) != n || strncmp(open[depth - 1], name, n))
                fail_msg("closes what is not open: %.40s", name);
            depth--;
        } else {
            roots += !depth;
            assert_in_range(depth, 0, DEPTH_MAX - 1);
            snprintf(open[depth++], NAME_MAX_, "%.*s", (int)n, name);
            at = skip_attributes(at);
            if (*at == '/') at++, depth--;
        }
        if (*at++ != '>') fail_msg("a tag has no end: %.40s", name);
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}

/* ---- what is in it ---- */

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

static double attribute(const char *tag, const char *name)
{
    char wanted[32];
    snprintf(wanted, sizeof wanted, " %s=\"", name);
    const char *found = strstr(tag, wanted), *end = strchr(tag, '>');
    assert_true(found && found < end);
    return atof(found + strlen(wanted));
}

/* Rectangles are inside the picture. */
static void assert_inside(const char *picture)
{
    const double width = attribute(picture, "width"), height = attribute(picture, "height");
    int n = 0;
    for (const char *at = picture; (at = strstr(at, "<rect ")); at++, n++) {
        const double x = attribute(at, "x"), y = attribute(at, "y");
        const double w = attribute(at, "width"), h = attribute(at, "height");
        assert_true(x >= 0 && y >= 0 && w >= 0 && h >= 0);
        assert_true(x + w <= width + 0.1 && y + h <= height + 0.1);
    }
    assert_true(n > 10);
}

/* A text takes some height, and some width for each letter: no two share any of it, and none of it
 * is cut. */
static void assert_apart(const char *picture)
{
    static const double LETTER = 5.9, LETTER_BOLD = 8, HEIGHT = 10;
    static struct {
        double x0, x1, y;
    } text[TEXTS_MAX];
    int n = 0;
    for (const char *at = picture; (at = strstr(at, "<text ")); at++, n++) {
        assert_in_range(n, 0, TEXTS_MAX - 1);
        const char *words = strchr(at, '>') + 1, *end = strstr(words, "</text>");
        const char *bold = strstr(at, "\"name\""), *right = strstr(at, "right\"");
        const char *middle = strstr(at, "middle\""), *fixed = strstr(at, "textLength");
        double width = (double)(end - words) * (bold && bold < words ? LETTER_BOLD : LETTER);
        if (fixed && fixed < words) width = attribute(at, "textLength");
        text[n].x0 = attribute(at, "x");
        text[n].y = attribute(at, "y");
        if (right && right < words) text[n].x0 -= width;
        if (middle && middle < words) text[n].x0 -= width / 2;
        text[n].x1 = text[n].x0 + width;
        if (text[n].x0 < 0 || text[n].x1 > attribute(picture, "width"))
            fail_msg("a text that is cut: %.60s", words);
        for (int i = 0; i < n; i++)
            if (fabs(text[i].y - text[n].y) < HEIGHT && text[i].x0 < text[n].x1 &&
                text[n].x0 < text[i].x1)
                fail_msg("a text upon another: %.60s", words);
    }
    assert_true(n > 10);
}

/* Of the JSON plan: those that are there while training, or while a checkpoint is written. */
static int items_of(const json_t *plan)
{
    static const char *const fields[] = {"weights", "streaming", "widening", "activations",
                                         "workspace"};
    int n = 0;
    size_t i;
    const json_t *item, *strategy, *device;
    json_array_foreach(json_object_get(plan, "beside"), i, item)
    {
        const char *when = json_string_value(json_object_get(item, "while"));
        n += !strcmp(when, "always") || !strcmp(when, "training") || !strcmp(when, "saving");
    }
    const char *best = json_string_value(json_object_get(plan, "recommended"));
    json_array_foreach(json_object_get(plan, "strategies"), i, strategy)
    {
        if (strcmp(json_string_value(json_object_get(strategy, "strategy")), best)) continue;
        n += json_integer_value(json_object_get(strategy, "host_weights")) > 0;
        n += json_integer_value(json_object_get(strategy, "host_reading")) > 0;
        size_t d;
        json_array_foreach(json_object_get(strategy, "devices"), d, device) for (int f = 0; f < 5;
                                                                                 f++) n +=
            json_integer_value(json_object_get(device, fields[f])) > 0;
    }
    return n;
}

/* ---- tests ---- */

static void a_picture_shows_all(void **state)
{
    (void)state;
    static const struct {
        const char *devices;
        int pools, rows;
    } machine[] = {
        {"sim:1x24GiB@link=25GB/s,compute=90TFLOP/s,cpu=2TFLOP/s", 1, 3},
        {"sim:4x24GiB@link=25GB/s,compute=90TFLOP/s,cpu=2TFLOP/s", 4, 9},
        {"sim:15x80GiB@link=50GB/s,compute=500TFLOP/s,cpu=4TFLOP/s", 15, 31},
        {"cpu@compute=4TFLOP/s", 0, 2},
    };
    for (size_t i = 0; i < sizeof machine / sizeof *machine; i++) {
        json_t *plan;
        wd_err err;
        PLAN("--devices", machine[i].devices, "--host_memory", "128GiB", "--teacher_window", "64",
             "--json", "--svg", wd_test_path("plan.svg")); /* a sweep with states of both experts */
        wd_program_succeeded(&program);
        wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
        char *picture = read_picture("plan.svg");
        assert_well_formed(picture);
        assert_inside(picture);
        assert_apart(picture);
        assert_int_equal(count(picture, "class=\"item"), items_of(plan));
        assert_int_equal(count(picture, "class=\"room"), machine[i].pools + 1);
        assert_int_equal(count(picture, "class=\"budget"), machine[i].pools + 1);
        assert_int_equal(count(picture, "class=\"lane"), machine[i].rows);
        assert_true(count(picture, "class=\"high") > 10 && count(picture, "class=\"low") > 10);
        assert_null(strstr(picture, "script"));
        wd_free(picture);
        json_decref(plan);
    }
}

/* What was asked for is drawn, also where another strategy is faster, or it does not fit. */
static void what_was_asked_for_is_drawn(void **state)
{
    (void)state;
    PLAN("--devices", "sim:2x24GiB@link=25GB/s,compute=90TFLOP/s", "--teacher_device_strategy",
         "disk", "--svg", wd_test_path("disk.svg"));
    wd_program_succeeded(&program);
    char *picture = read_picture("disk.svg");
    assert_non_null(strstr(picture, ">disk: wan2.2-a14b"));
    assert_non_null(strstr(picture, "block 39"));
    assert_non_null(strstr(program.out, "disk, by what it is:"));
    wd_free(picture);
    PLAN("--devices", "sim:24GiB@link=25GB/s,compute=90TFLOP/s", "--teacher_device_strategy", "gpu",
         "--svg", wd_test_path("gpu.svg"));
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit under"); /* but is drawn */
    picture = read_picture("gpu.svg");
    assert_well_formed(picture);
    assert_inside(picture);
    assert_non_null(strstr(picture, "gpu (does not fit)"));
    wd_free(picture);
}

/* Of a teacher that many ranks share, as many rows as a page takes, which is said: with 42 stages,
 * each on a device. */
static void many_ranks_are_drawn(void **state)
{
    (void)state;
    PLAN("--ranks", "64", "--hosts", "8", "--teacher_device_strategy", "balanced", "--host_memory",
         "512GiB", "--devices",
         "sim:8x80GiB@link=50GB/s,compute=500TFLOP/s,cpu=4TFLOP/s,memory=80GB/s", "--svg",
         wd_test_path("ranks.svg"));
    wd_program_succeeded(&program);
    char *picture = read_picture("ranks.svg");
    assert_well_formed(picture);
    assert_inside(picture);
    assert_apart(picture);
    assert_non_null(strstr(picture, ">sim:0 of rank 23 computes<"));
    assert_non_null(strstr(picture, ">the first 24 of 42 devices at work<"));
    wd_free(picture);
}

/* Names from outside are escaped. */
static void names_are_escaped(void **state)
{
    (void)state;
    const char *path = wd_test_path("<a & \"b\">");
    assert_int_equal(symlink(WD_SOURCE_DIR "/models/wan-tiny", path), 0);
    wd_program_run(&program, "plan", "--teacher_path", path, "--svg", wd_test_path("name.svg"));
    wd_program_succeeded(&program);
    char *picture = read_picture("name.svg");
    assert_well_formed(picture);
    assert_non_null(strstr(picture, "&lt;a &amp; \"b\"&gt;"));
    wd_free(picture);
}

static void a_path_that_cannot_be_written_is_refused(void **state)
{
    (void)state;
    PLAN("--svg", "/no/such/folder/plan.svg");
    wd_program_refused(&program, WD_NOT_FOUND, "/no/such/folder/plan.svg");
    assert_int_equal(*program.out, 0);
    PLAN("--svg", wd_test_folder());
    wd_program_refused(&program, WD_IO, wd_test_folder());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_shows_all),
        cmocka_unit_test(what_was_asked_for_is_drawn),
        cmocka_unit_test(many_ranks_are_drawn),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(a_path_that_cannot_be_written_is_refused),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
