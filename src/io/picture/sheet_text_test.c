/* Tests of texts of contact sheets in the system's fonts, of which there is one that the test
 * makes: where lines end, and where there is ink. */
#include "testing.h"

#include "io/picture/sheet_text.h"
#include "small_font.h"

enum { WIDTH = 130, EM = 12, LINE = 15, HALF = EM / 2 }; /* at scale 1 */

#define HAN "\xe4\xb8\x80"
#define STOP "\xe3\x80\x82"
#define CYRILLIC "\xd0\xb0"
#define MARK "\xcc\x80"
#define HANGUL "\xea\xb0\x80" /* which the font has not */

static wd_text text;

/* Makes the test's font the only one; a machine that cannot draw it skips the test. */
#define FONT_OR_SKIP()                                                                             \
    static uint8_t file[WD_SMALL_FONT_BYTES];                                                      \
    close_text();                                                                                  \
    wd_small_font_only(wd_test_folder(), file, wd_small_font(file));                               \
    wd__text_wrap(&text, HAN, WIDTH, 1, 1);                                                        \
    if (!text.by_system)                                                                           \
    wd_test_skip("there is no FreeType, no fontconfig, or were no headers of theirs")

static void close_text(void)
{
    wd__text_close(&text);
}

/* Checks how many glyphs each line has; -1 ends the numbers. */
static void check_lines(const char *utf8, const int *counts)
{
    int lines = 0;
    wd__text_wrap(&text, utf8, WIDTH, WD_TEXT_LINES_MAX, 1);
    assert_true(text.by_system);
    for (; counts[lines] >= 0; lines++) {
        if (lines < text.used && text.count[lines] == (size_t)counts[lines]) continue;
        fail_msg("%s: line %d of %d has %zu glyphs, expected %d", utf8, lines, text.used,
                 lines < text.used ? text.count[lines] : 0, counts[lines]);
    }
    assert_int_equal(text.used, lines);
    for (int i = 0; i < lines; i++) assert_true(wd__text_width(&text, i) <= WIDTH);
}

#define LINES(...)                                                                                 \
    (const int[])                                                                                  \
    {                                                                                              \
        __VA_ARGS__, -1                                                                            \
    }
#define TEN(x) x x x x x x x x x x

static void breaks_lines(void **state)
{
    (void)state;
    FONT_OR_SKIP();
    check_lines(TEN(HAN) TEN(HAN) HAN, LINES(10, 10, 1));
    check_lines(TEN(HAN) STOP HAN, LINES(9, 3)); /* no line begins with a full stop */
    check_lines(TEN(CYRILLIC) " " TEN(CYRILLIC) "\n\t" CYRILLIC, LINES(21, 1)); /* at spaces */
    check_lines(TEN(CYRILLIC) CYRILLIC " " TEN(CYRILLIC), LINES(11, 10));
    check_lines("fox " TEN(HAN), LINES(12, 2));                           /* behind a word */
    check_lines(TEN(CYRILLIC) TEN(CYRILLIC) TEN(CYRILLIC), LINES(21, 9)); /* within a long word */
    close_text();
}

/* A mark takes no width, stays with its letter, and is left out where no font has it. */
static void marks_stay_with_letters(void **state)
{
    (void)state;
    FONT_OR_SKIP();
    check_lines(CYRILLIC MARK CYRILLIC, LINES(3));
    assert_int_equal(wd__text_width(&text, 0), 2 * HALF);
    check_lines(CYRILLIC "\xe2\x83\x90" CYRILLIC, LINES(2));
    assert_int_equal(wd__text_width(&text, 0), 2 * HALF);
    check_lines(TEN(CYRILLIC) TEN(CYRILLIC) CYRILLIC MARK CYRILLIC MARK, LINES(22, 2));
    check_lines("\xe2\x80\x8b" HAN "\xe2\x80\x8d\xe2\x80\xae" HAN "\x1b", LINES(2)); /* unseen */
    close_text();
}

static void ends_with_dots(void **state)
{
    (void)state;
    static char endless[300001], marks[200000];
    FONT_OR_SKIP();
    for (int i = 0; i < 100000; i++) memcpy(endless + 3 * i, HAN, 3);
    check_lines(endless, LINES(10, 10, 12));
    for (int i = 0; i < 3; i++) assert_int_equal(text.glyph[text.begin[2] + 9 + (size_t)i], '.');
    check_lines(TEN(HAN) TEN(HAN) TEN(HAN), LINES(10, 10, 10));
    strcpy(marks, HAN);
    for (size_t i = 3; i + 2 < sizeof marks; i += 2) memcpy(marks + i, MARK, 2);
    wd__text_wrap(&text, marks, WIDTH, WD_TEXT_LINES_MAX, 1);
    assert_true(text.glyphs < WD_TEXT_GLYPHS_MAX);
    assert_int_equal(wd__text_width(&text, 0), EM + 3 * HALF);
    wd__text_wrap(&text, endless, 1, 1, 8); /* nothing fits */
    assert_true(text.used == 1 && text.count[0] == 3);
    close_text();
}

/* What has no glyph is a box, also bytes that are no UTF-8; a text of boxes alone is drawn by the
 * bitmap font, as is one that needs no other. */
static void draws_boxes(void **state)
{
    (void)state;
    FONT_OR_SKIP();
    check_lines("\xff" HAN "\xc3" HANGUL, LINES(4));
    assert_int_equal(text.glyph[0], text.glyph[3]);
    assert_int_equal(text.glyph[0], text.glyph[2]);
    assert_int_equal(text.glyph[1], WD_SMALL_HAN);
    const char *const others[] = {"a fox", "caf\xc3\xa9 \xff", HANGUL " fox", "\xff\xfe", "", NULL};
    for (int i = 0; i < 6; i++) {
        wd__text_wrap(&text, others[i], WIDTH, 1, 1);
        assert_false(text.by_system);
    }
    close_text();
    wd_small_font_only(wd_test_folder(), NULL, 0);
    wd__text_wrap(&text, HAN, WIDTH, 1, 1);
    assert_false(text.by_system);
    assert_int_equal(text.glyphs, 1);
    close_text();
}

/* Counts pixels with ink, of which none may be outside of `inside` = {x, y, width, height}. */
static int count_ink(const wd_image *image, const int *inside)
{
    int n = 0;
    for (int64_t i = 0; i < image->height * image->width; i++) {
        const int64_t x = i % image->width, y = i / image->width;
        if (image->rgb[3 * i] == 255) continue;
        if (x < inside[0] || x >= inside[0] + inside[2] || y < inside[1] ||
            y >= inside[1] + inside[3])
            fail_msg("ink at %lld, %lld", (long long)x, (long long)y);
        n++;
    }
    return n;
}

static void draws_where_it_says(void **state)
{
    (void)state;
    wd_err err;
    wd_image image = {0};
    FONT_OR_SKIP();
    wd_test_ok(wd__image_open(&image, 60, 160, &err), &err);
    memset(image.rgb, 255, 3 * 60 * 160);
    wd__text_wrap(&text, CYRILLIC " " CYRILLIC, WIDTH, 1, 1);
    wd__text_draw(&image, 10, 20, &text, 7);
    assert_in_range(count_ink(&image, (const int[]){10, 19, 18, 10}), 2 * 6 * 7, 2 * 6 * 10);
    assert_int_equal(image.rgb[3 * (25 * 160 + 12)], 7);
    assert_int_equal(image.rgb[3 * (25 * 160 + 18)], 255); /* the space */
    memset(image.rgb, 255, 3 * 60 * 160);
    wd__text_wrap(&text, HAN HANGUL MARK, WIDTH, 1, 1);
    wd__text_draw(&image, 10, 20, &text, 7);
    assert_in_range(count_ink(&image, (const int[]){10, 16, 12 + 7, LINE}), 11 * 11 + 10, 250);
    memset(image.rgb, 255, 3 * 60 * 160);
    for (int64_t y = -40; y <= 80; y += 7) /* partly, or wholly, outside of the picture */
        for (int64_t x = -40; x <= 200; x += 9) wd__text_draw(&image, x, y, &text, 7);
    wd_image_close(&image);
    close_text();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(breaks_lines),        cmocka_unit_test(marks_stay_with_letters),
        cmocka_unit_test(ends_with_dots),      cmocka_unit_test(draws_boxes),
        cmocka_unit_test(draws_where_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
