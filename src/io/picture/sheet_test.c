/* Tests of contact sheets: sizes, every pixel of the pictures in its place, text in its cell. */
#include "failing.h"

#include "io/picture/sheet.h"
#include "small_font.h"

enum { MARGIN = 16, GAP = 8, LINE = 12 }; /* at text scale 1 */

static const uint8_t *pixel(const wd_image *image, int64_t x, int64_t y)
{
    assert_true(x >= 0 && x < image->width && y >= 0 && y < image->height);
    return image->rgb + 3 * (y * image->width + x);
}

/* How many pixels of the rectangle are not white. */
static int64_t ink(const wd_image *image, int64_t x, int64_t y, int64_t width, int64_t height)
{
    int64_t n = 0;
    for (int64_t i = 0; i < height; i++)
        for (int64_t k = 0; k < width; k++)
            n += pixel(image, x + k, y + i)[0] != 255 || pixel(image, x + k, y + i)[2] != 255;
    return n;
}

static wd_sheet plain(int64_t rows, int64_t columns, int64_t height, int64_t width,
                      const uint8_t *const *pictures)
{
    return (wd_sheet){
        .rows = rows, .columns = columns, .height = height, .width = width, .pictures = pictures};
}

/* 50 x 40 pixels become 150 x 120: the smallest whole factor that reaches 128. */
static void places_enlarged_pictures(void **state)
{
    (void)state;
    enum { H = 40, W = 50, ZOOM = 3, COUNT = 5 };
    static uint8_t rgb[COUNT][H * W * 3];
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < H * W * 3; k++) rgb[i][k] = (uint8_t)(k * 7 + i * 50 + k / 251);
    const uint8_t *pictures[6] = {rgb[0], rgb[1], rgb[2], rgb[3], NULL, rgb[4]};
    wd_err err;
    wd_image sheet = {0};
    wd_sheet s = plain(2, 3, H, W, pictures);
    wd_test_ok(wd_sheet_draw(&sheet, &s, &err), &err);
    assert_int_equal(sheet.width, 2 * MARGIN + 3 * W * ZOOM + 2 * GAP);
    assert_int_equal(sheet.height, 2 * MARGIN + 2 * H * ZOOM + GAP);
    for (int64_t i = 0; i < 6; i++) {
        int64_t x = MARGIN + i % 3 * (W * ZOOM + GAP), y = MARGIN + i / 3 * (H * ZOOM + GAP);
        for (int64_t k = 0; pictures[i] && k < H * W * ZOOM * ZOOM; k++) {
            int64_t px = k % (W * ZOOM), py = k / (W * ZOOM);
            assert_memory_equal(pixel(&sheet, x + px, y + py),
                                pictures[i] + 3 * (py / ZOOM * W + px / ZOOM), 3);
        }
    }
    assert_int_equal(ink(&sheet, 0, 0, sheet.width, MARGIN - 1), 0);
    wd_image_close(&sheet);
}

/* Below a picture: one to three lines that stay within its width. */
static void wraps_labels(void **state)
{
    (void)state;
    enum { SIDE = 130 };
    static uint8_t black[SIDE * SIDE * 3];
    static char endless[200000];
    memset(endless, '\'', sizeof endless - 1);
    const uint8_t *pictures[4] = {black, black, black, black};
    const char *labels[4] = {"short", "two lines of words, but not three", endless, NULL};
    const int lines[4] = {1, 2, 3, 0};
    wd_err err;
    wd_image sheet = {0};
    wd_sheet s = plain(1, 4, SIDE, SIDE, pictures);
    s.labels = labels;
    wd_test_ok(wd_sheet_draw(&sheet, &s, &err), &err);
    assert_int_equal(sheet.height, 2 * MARGIN + SIDE + 5 + 3 * LINE);
    for (int i = 0; i < 4; i++) {
        int64_t x = MARGIN + i * (SIDE + GAP), y = MARGIN + SIDE + 5;
        for (int line = 0; line < 3; line++)
            assert_int_equal(ink(&sheet, x, y + line * LINE, SIDE, LINE) > 0, line < lines[i]);
        if (i < 3) assert_int_equal(ink(&sheet, x + SIDE, y, GAP, 3 * LINE), 0);
    }
    /* Apostrophes have no ink at the base line, so the ink there is that of the three dots. */
    int64_t x = MARGIN + 2 * (SIDE + GAP), base = MARGIN + SIDE + 5 + 6;
    assert_int_equal(ink(&sheet, x, base + LINE, SIDE, 1), 0);
    assert_int_equal(ink(&sheet, x, base + 2 * LINE, SIDE, 1), 3);
    wd_image_close(&sheet);
}

static void makes_room_for_titles(void **state)
{
    (void)state;
    static uint8_t black[64 * 64 * 3];
    const uint8_t *pictures[2] = {black, black};
    const char *row_titles[2] = {"teacher", "student"};
    wd_err err;
    wd_image bare = {0}, sheet = {0};
    wd_sheet s = plain(2, 1, 64, 64, pictures);
    wd_test_ok(wd_sheet_draw(&bare, &s, &err), &err);
    s.row_titles = row_titles;
    s.title = "A title that is far too long for a sheet of one column, and so cut";
    wd_test_ok(wd_sheet_draw(&sheet, &s, &err), &err);
    assert_int_equal(sheet.height, bare.height + 2 * LINE + GAP);
    int64_t left = sheet.width - bare.width;
    assert_true(left > 2 * GAP);
    assert_true(ink(&sheet, MARGIN, MARGIN, sheet.width - 2 * MARGIN, 2 * LINE) > 100);
    assert_int_equal(ink(&sheet, sheet.width - MARGIN, 0, MARGIN, MARGIN + 2 * LINE), 0);
    for (int row = 0; row < 2; row++) {
        int64_t y = MARGIN + 2 * LINE + GAP + row * (128 + GAP);
        assert_true(ink(&sheet, MARGIN, y + 56, left - 2 * GAP, 16) > 30);
        assert_int_equal(ink(&sheet, MARGIN, y, left - 2 * GAP, 56), 0);
    }
    wd_image_close(&bare);
    wd_image_close(&sheet);
}

/* Large pictures get larger text. */
static void text_grows_with_pictures(void **state)
{
    (void)state;
    wd_err err;
    void *black;
    wd_test_ok(wd_alloc(&black, 1024 * 1024, 3, "a picture", &err), &err);
    const uint8_t *pictures[1] = {black};
    const char *labels[1] = {"x"};
    const int64_t sides[] = {200, 512, 1024};
    for (int i = 0; i < 3; i++) {
        wd_image sheet = {0};
        wd_sheet s = plain(1, 1, sides[i], sides[i], pictures);
        s.labels = labels;
        wd_test_ok(wd_sheet_draw(&sheet, &s, &err), &err);
        assert_int_equal(sheet.height, sides[i] + (2 * MARGIN + 5 + LINE) * (1 << i));
        wd_image_close(&sheet);
    }
    wd_free(black);
}

/* FNV-1a of the pixels and the width. */
static uint64_t hash_of(const wd_sheet *s)
{
    wd_err err;
    wd_image image = {0};
    uint64_t hash = 0xcbf29ce484222325;
    wd_test_ok(wd_sheet_draw(&image, s, &err), &err);
    for (int64_t i = 0; i < 3 * image.height * image.width; i++)
        hash = (hash ^ image.rgb[i]) * 0x100000001b3;
    hash = (hash ^ (uint64_t)image.width) * 0x100000001b3;
    wd_image_close(&image);
    return hash;
}

static void have_fonts(bool any)
{
    static uint8_t file[WD_SMALL_FONT_BYTES];
    wd_small_font_only(wd_test_folder(), file, any ? wd_small_font(file) : 0);
}

/* Whatever fonts a machine has, texts that the bitmap font can draw have the pixels that they had
 * before there were others. */
static void latin_texts_have_no_other_fonts(void **state)
{
    (void)state;
    static uint8_t grey[1000 * 1000 * 3];
    const uint8_t *pictures[6] = {grey, grey, grey, NULL, grey, grey};
    const char *labels[6] = {
        "short",
        "A tall, red box: \"caf\xc3\xa9\" \xe2\x80\x94 \xc3\x9cn\xc3\xaf\xc3\xb6n!",
        "a prompt of many words that is far longer than three lines of a picture of this size can "
        "ever have, so that it ends with three dots whatever the size of the picture may be, which "
        "is shown here thrice",
        NULL,
        "broken \xff\xfe bytes and\na\ttab",
        "pneumonoultramicroscopicsilicovolcanoconiosis-and-more-of-the-same-word-without-a-space-"
        "until-the-line-is-cut-somewhere-in-its-middle"};
    const char *row_titles[2] = {"teacher", "student of two steps"};
    const struct {
        int64_t side;
        uint64_t hash;
    } before[] = {{128, 0xbb5d8e5a7a536dfa}, {400, 0x6622a8d055220e1e}, {1000, 0x73858b33f62be2ed}};
    memset(grey, 0x80, sizeof grey);
    have_fonts(true);
    for (int i = 0; i < 3; i++) {
        wd_sheet s = plain(2, 3, before[i].side, before[i].side, pictures);
        s.labels = labels;
        s.row_titles = row_titles;
        s.title = "Title of a sheet";
        assert_int_equal(hash_of(&s), before[i].hash);
    }
}

/* A sheet with one label, U+7EA2 U+8272 fox U+043B U+0438 U+0441 U+0430. */
static wd_sheet foreign(void)
{
    static const uint8_t *pictures[1];
    static const char *labels[1] = {
        "\xe7\xba\xa2\xe8\x89\xb2 fox \xd0\xbb\xd0\xb8\xd1\x81\xd0\xb0"};
    wd_sheet s = plain(1, 1, 128, 128, pictures);
    s.labels = labels;
    return s;
}

static const uint64_t foreign_boxes = 0x2809ad32d485f890; /* before there were other fonts */

static void other_scripts_are_boxes_without_fonts(void **state)
{
    (void)state;
    const wd_sheet s = foreign();
    have_fonts(false);
    assert_int_equal(hash_of(&s), foreign_boxes);
    setenv("FONTCONFIG_FILE", "/nowhere/fonts.conf", 1);
    assert_int_equal(hash_of(&s), foreign_boxes);
}

static const char *given; /* FONTCONFIG_FILE of who runs the test, or NULL */

/* With the fonts that this machine has. */
static void systems_fonts_draw_other_scripts(void **state)
{
    (void)state;
    const wd_sheet s = foreign();
    if (given)
        setenv("FONTCONFIG_FILE", given, 1);
    else
        unsetenv("FONTCONFIG_FILE");
    const uint64_t hash = hash_of(&s);
    assert_int_equal(hash_of(&s), hash);
    if (hash == foreign_boxes) wd_test_skip("no font of this machine has Chinese or Cyrillic");
}

/* Lines of the system's fonts are higher, and a row is as high as its highest label. */
static void rows_have_room_for_other_scripts(void **state)
{
    (void)state;
    enum { SIDE = 130, HAN_LINE = 15 };
    static char endless[3 * 5000 + 1];
    const uint8_t *pictures[2] = {NULL, NULL};
    const char *labels[2] = {endless, "a fox"};
    wd_err err;
    wd_image sheet = {0};
    wd_sheet s = plain(1, 2, SIDE, SIDE, pictures);
    for (int i = 0; i < 5000; i++) memcpy(endless + 3 * i, "\xe4\xb8\x80", 3);
    have_fonts(true);
    s.labels = labels;
    wd_test_ok(wd_sheet_draw(&sheet, &s, &err), &err);
    const bool by_system = sheet.height != 2 * MARGIN + SIDE + 5 + 3 * LINE;
    if (by_system) assert_int_equal(sheet.height, 2 * MARGIN + SIDE + 5 + 3 * HAN_LINE);
    for (int line = 0; by_system && line < 3; line++)
        assert_true(ink(&sheet, MARGIN, MARGIN + SIDE + 5 + line * HAN_LINE, SIDE, 9) > 500);
    assert_int_equal(ink(&sheet, MARGIN + SIDE + 1, MARGIN + SIDE + 1, GAP - 2, 3 * HAN_LINE), 0);
    assert_int_equal(ink(&sheet, 0, MARGIN + SIDE + 1, MARGIN, 3 * HAN_LINE), 0);
    wd_image_close(&sheet);
    if (!by_system)
        wd_test_skip("there is no FreeType, no fontconfig, or were no headers of theirs");
}

static void refuses_sheets_without_end(void **state)
{
    (void)state;
    static uint8_t black[3];
    const uint8_t *pictures[1] = {black};
    wd_err err;
    wd_image sheet = {0};
    wd_sheet s = plain(0, 1, 1, 1, pictures);
    wd_test_refused(wd_sheet_draw(&sheet, &s, &err), &err, WD_INVALID_ARGUMENT, "1 x 0");
    s = plain(30000, 30000, 512, 512, pictures);
    wd_test_refused(wd_sheet_draw(&sheet, &s, &err), &err, WD_UNSUPPORTED,
                    "30000 x 30000 pictures");
    s = plain(1, 1, INT64_MAX, 512, pictures);
    wd_test_refused(wd_sheet_draw(&sheet, &s, &err), &err, WD_INVALID_ARGUMENT, "contact sheet");
    assert_null(sheet.rgb);
}

static wd_status draw_one(void *context, wd_err *err)
{
    wd_image sheet;
    WD_TRY(wd_sheet_draw(&sheet, context, err));
    wd_image_close(&sheet);
    return WD_OK;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    static uint8_t black[3];
    const uint8_t *pictures[1] = {black};
    wd_sheet s = plain(1, 1, 1, 1, pictures);
    wd_test_failing_allocations(draw_one, NULL, &s, 2);
    s = foreign();
    have_fonts(true);
    wd_test_failing_job(draw_one, &s, 20, 2); /* where fonts have no memory there are boxes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_enlarged_pictures),
        cmocka_unit_test(wraps_labels),
        cmocka_unit_test(makes_room_for_titles),
        cmocka_unit_test(text_grows_with_pictures),
        cmocka_unit_test(latin_texts_have_no_other_fonts),
        cmocka_unit_test(other_scripts_are_boxes_without_fonts),
        cmocka_unit_test(systems_fonts_draw_other_scripts),
        cmocka_unit_test(rows_have_room_for_other_scripts),
        cmocka_unit_test(refuses_sheets_without_end),
        cmocka_unit_test(allocations_may_fail),
    };
    static char file[4096];
    if (getenv("FONTCONFIG_FILE")) {
        snprintf(file, sizeof file, "%s", getenv("FONTCONFIG_FILE"));
        given = file;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
