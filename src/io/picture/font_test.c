/* Tests of the font: every glyph exists and differs from the others, and texts become glyphs. */
#include "testing.h"

#include "io/picture/font.h"

static void folds_to_glyphs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *glyphs;
    } cases[] = {
        {"red apple, 50%", "red apple, 50%"},
        {"  a \t\n b\u3000", "a b"},
        {"Cr\u00e8me br\u00fbl\u00e9e na\u00efve \u00c5\u00d1\u00d6\u00df\u00c6",
         "Creme brulee naive ANOssAE"},
        {"e\u0301\u200d\ufe0f", "e"},
        {"\u201cx\u201d \u2018y\u2019 \u2014 \u2026 3\u00d74", "\"x\" 'y' - ... 3x4"},
        {"\u65e5\u672c \U0001f600\ufe0f", "\177\177 \177"},
        {"\u00bd \ufb01 \u2122", "1\1772 fi TM"},
        {"a\377b", "a\177b"},
        {"\001\033", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char glyphs[64];
        size_t count = wd__font_fold(glyphs, sizeof glyphs, cases[i].text);
        assert_string_equal(glyphs, cases[i].glyphs);
        assert_int_equal(count, strlen(glyphs));
    }
    char few[4];
    assert_int_equal(wd__font_fold(few, sizeof few, "abcdef"), 3);
    assert_string_equal(few, "abc");
}

/* 64 x 64 of white with one glyph. */
static void draw_alone(wd_image *image, char glyph, int scale)
{
    memset(image->rgb, 255, 3 * 64 * 64);
    wd__font_draw(image, 1, 1, &glyph, 1, scale, 0);
}

static void glyphs_differ(void **state)
{
    (void)state;
    wd_err err;
    for (int scale = 1; scale <= 4; scale *= 2) {
        wd_image a = {0}, b = {0};
        wd_test_ok(wd__image_open(&a, 64, 64, &err), &err);
        wd_test_ok(wd__image_open(&b, 64, 64, &err), &err);
        for (int g = ' '; g <= 127; g++) {
            draw_alone(&a, (char)g, scale);
            for (int h = ' '; h < g; h++) {
                draw_alone(&b, (char)h, scale);
                assert_memory_not_equal(a.rgb, b.rgb, 3 * 64 * 64);
            }
        }
        wd_image_close(&a);
        wd_image_close(&b);
    }
}

/* Ink stays inside the measured width, and inside the image. */
static void draws_where_it_says(void **state)
{
    (void)state;
    wd_err err;
    wd_image image = {0};
    const char *text = "Wj!";
    wd_test_ok(wd__image_open(&image, 64, 64, &err), &err);
    for (int scale = 1; scale <= 4; scale *= 2) {
        memset(image.rgb, 255, 3 * 64 * 64);
        int64_t width = wd__font_width(text, 3, scale);
        assert_int_equal(width, scale * (5 + 1 + 3 + 1 + 1));
        wd__font_draw(&image, 2, 3, text, 3, scale, 7);
        for (int64_t y = 0; y < 64; y++) {
            for (int64_t x = 0; x < 64; x++) {
                bool inside = x >= 2 && x < 2 + width && y >= 3 && y < 3 + WD_FONT_HEIGHT * scale;
                uint8_t v = image.rgb[3 * (y * 64 + x)];
                assert_true(v == 255 || (v == 7 && inside));
            }
        }
        assert_int_equal(image.rgb[3 * (3 * 64 + 2)], 7); /* W begins with ink */
        wd__font_draw(&image, -3, -5, text, 3, scale, 9);
        wd__font_draw(&image, 60, 60, text, 3, scale, 9);
        wd__font_draw(&image, 1000, 0, text, 3, scale, 9);
    }
    wd_image_close(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folds_to_glyphs),
        cmocka_unit_test(glyphs_differ),
        cmocka_unit_test(draws_where_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
