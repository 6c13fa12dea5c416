/* Fuzz target: any bytes as a PNG; every pixel of what is read is there. */
#include "fuzzing.h"

#include "io/picture/png.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_image image;
    unsigned sum = 0;
    if (wd_png_read(&image, wd_fuzz_file("picture.png", data, bytes), &err) != WD_OK) return 0;
    for (int64_t i = 0; i < image.height * image.width * 3; i++) sum += image.rgb[i];
    wd_fuzz_use(sum);
    wd_image_close(&image);
    return 0;
}
