/* Fuzz target: any bytes as a label, a row's title and a sheet's title, where the system has one
 * small font. The first byte says how wide the picture is, which no text may touch. */
#include "fuzzing.h"

#include "io/picture/sheet.h"
#include "small_font.h"

static void have_one_font(void)
{
    static uint8_t file[WD_SMALL_FONT_BYTES];
    static bool done;
    if (!done) wd_small_font_only(wd_fuzz_folder(), file, wd_small_font(file));
    done = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { HEIGHT = 8, WIDTH_MAX = 512, TEXT_MAX = 1 << 14, GREY = 0x91 };
    static uint8_t rgb[HEIGHT * WIDTH_MAX * 3];
    static char text[TEXT_MAX + 1];
    wd_err err;
    wd_image image;
    if (!bytes) return 0;
    const int64_t width = 2 * data[0] + 1;
    const size_t length = bytes - 1 < TEXT_MAX ? bytes - 1 : TEXT_MAX;
    const uint8_t *pictures[1] = {rgb};
    const char *texts[1] = {text};
    memcpy(text, data + 1, length);
    text[length] = 0;
    memset(rgb, GREY, sizeof rgb);
    have_one_font();
    const wd_sheet sheet = {.rows = 1,
                            .columns = 1,
                            .height = HEIGHT,
                            .width = width,
                            .pictures = pictures,
                            .labels = texts,
                            .row_titles = texts,
                            .title = text};
    if (wd_sheet_draw(&image, &sheet, &err) != WD_OK) abort();
    const int64_t side = width > HEIGHT ? width : HEIGHT;
    const int64_t zoom = side < 128 ? (127 + side) / side : 1;
    int64_t grey = 0;
    for (int64_t i = 0; i < image.height * image.width; i++) grey += image.rgb[3 * i] == GREY;
    if (grey < zoom * zoom * width * HEIGHT) abort();
    wd_image_close(&image);
    return 0;
}
