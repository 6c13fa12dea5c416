/* Tests of the system's fonts, on a font that the test makes: metrics, pixels, and fonts that are
 * damaged or not there. */
#include "testing.h"

#include "io/picture/system_font.h"
#include "small_font.h"

enum { PIXELS = 20 };

static uint8_t font_file[WD_SMALL_FONT_BYTES];

/* The fonts for a text of one code point; a machine that cannot have any skips the test. */
static wd_system_font *open_for(int32_t point)
{
    wd_system_font *font = wd__system_font_open();
    if (font) wd__system_font_choose(font, &point, 1);
    return font;
}

#define OPEN_OR_SKIP(font, point)                                                                  \
    wd_small_font_only(wd_test_folder(), font_file, wd_small_font(font_file));                     \
    wd_system_font *const font = open_for(point);                                                  \
    if (!font) wd_test_skip("there is no FreeType, no fontconfig, or were no headers of theirs")

static void says_advances(void **state)
{
    (void)state;
    OPEN_OR_SKIP(font, WD_SMALL_HAN);
    assert_int_equal(wd__system_font_advance(font, WD_SMALL_HAN, PIXELS), PIXELS);
    assert_int_equal(wd__system_font_advance(font, WD_SMALL_HAN + 255, 2 * PIXELS), 2 * PIXELS);
    assert_int_equal(wd__system_font_advance(font, WD_SMALL_CYRILLIC, PIXELS), PIXELS / 2);
    assert_int_equal(wd__system_font_advance(font, ' ', PIXELS), PIXELS / 2);
    const int32_t none[] = {WD_SMALL_NOT_THERE, WD_SMALL_LARGE, WD_SMALL_FAR_ON, 0, -1, INT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        wd_coverage c;
        assert_int_equal(wd__system_font_advance(font, none[i], PIXELS), -1);
        assert_false(wd__system_font_render(&c, font, none[i], PIXELS));
    }
    wd__system_font_close(font);
}

/* Every pixel inside of the rectangle is black, and none has ink outside. */
static void draws_rectangles(void **state)
{
    (void)state;
    wd_coverage c;
    OPEN_OR_SKIP(font, WD_SMALL_CYRILLIC);
    assert_true(wd__system_font_render(&c, font, WD_SMALL_CYRILLIC, PIXELS));
    assert_int_equal(c.left, 0);
    assert_int_equal(c.top, PIXELS * 7 / 10);
    assert_int_equal(c.height, PIXELS * 7 / 10);
    assert_int_equal(c.width, PIXELS / 2);
    assert_true(c.pitch >= c.width);
    for (int y = 0; y < c.height; y++)
        for (int x = 0; x < c.width; x++) assert_int_equal(c.at[y * c.pitch + x], 255);
    assert_true(wd__system_font_render(&c, font, ' ', PIXELS));
    assert_true(c.height == 0 || c.width == 0);
    wd__system_font_close(font);
}

/* What is not there is no error, and what was taken is given back. */
static void there_may_be_no_fonts(void **state)
{
    (void)state;
    const int64_t held = wd_memory_held();
    wd_small_font_only(wd_test_folder(), NULL, 0);
    wd_system_font *font = open_for(WD_SMALL_HAN);
    if (font) assert_int_equal(wd__system_font_advance(font, WD_SMALL_HAN, PIXELS), -1);
    wd__system_font_close(font);
    setenv("FONTCONFIG_FILE", "/nowhere/fonts.conf", 1);
    font = open_for(WD_SMALL_HAN);
    if (font) assert_int_equal(wd__system_font_advance(font, WD_SMALL_HAN, PIXELS), -1);
    wd__system_font_close(font);
    wd__system_font_close(NULL);
    assert_int_equal(wd_memory_held(), held);
}

/* Files that end early, and files of which one byte is another. */
static void fonts_may_be_damaged(void **state)
{
    (void)state;
    const int64_t held = wd_memory_held();
    const int32_t points[] = {WD_SMALL_HAN, WD_SMALL_CYRILLIC, 'a', WD_SMALL_LARGE};
    OPEN_OR_SKIP(intact, WD_SMALL_HAN);
    const size_t bytes = wd_small_font(font_file);
    wd__system_font_close(intact);
    for (size_t i = 0; i < 2 * bytes; i += 13) {
        wd_small_font(font_file);
        if (i >= bytes) font_file[i - bytes] ^= 0xff;
        wd_small_font_only(wd_test_folder(), font_file, i < bytes ? i : bytes);
        wd_system_font *font = open_for(WD_SMALL_HAN);
        assert_non_null(font);
        for (int k = 0; k < 4; k++) {
            wd_coverage c;
            unsigned sum = 0;
            assert_true(wd__system_font_advance(font, points[k], PIXELS) <= 4 * PIXELS);
            if (!wd__system_font_render(&c, font, points[k], PIXELS)) continue;
            for (int y = 0; y < c.height; y++)
                for (int x = 0; x < c.width; x++) sum += c.at[(ptrdiff_t)y * c.pitch + x];
            assert_true(sum <= 255U * (unsigned)c.height * (unsigned)c.width);
        }
        wd__system_font_close(font);
    }
    assert_int_equal(wd_memory_held(), held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_advances),
        cmocka_unit_test(draws_rectangles),
        cmocka_unit_test(there_may_be_no_fonts),
        cmocka_unit_test(fonts_may_be_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
