/* Fuzz target: any bytes as a PNG; every pixel of what is read is there, and a small copy of what
 * is taken has the expected size and is a PNG. */
#include "fuzzing.h"

#include <fcntl.h>

#include "io/picture/png.h"

static void read_all(const char *path)
{
    wd_err err;
    wd_image image;
    unsigned sum = 0;
    if (wd_png_read(&image, path, &err) != WD_OK) return;
    for (int64_t i = 0; i < image.height * image.width * 3; i++) sum += image.rgb[i];
    wd_fuzz_use(sum);
    wd_image_close(&image);
}

static void shrink(const char *path, const char *copy)
{
    enum { WIDTH = 5, PIXELS = 40, BYTES = 4096 };
    wd_err err;
    wd_image image;
    wd_small_png small;
    const int from = open(path, O_RDONLY | O_CLOEXEC);
    const int to = open(copy, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (from < 0 || to < 0) abort();
    const wd_status status = wd_png_shrink(&small, from, to, 0, WIDTH, PIXELS, BYTES, "it", &err);
    close(from);
    close(to);
    if (status != WD_OK) return;
    if (small.bytes > BYTES || small.width > WIDTH) abort();
    if (wd_png_read(&image, copy, &err) != WD_OK) abort();
    if (image.height != small.height || image.width != small.width) abort();
    wd_image_close(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[512], copy[512];
    snprintf(path, sizeof path, "%s", wd_fuzz_file("picture.png", data, bytes));
    snprintf(copy, sizeof copy, "%s", wd_fuzz_path("copy.png"));
    read_all(path);
    shrink(path, copy);
    return 0;
}
