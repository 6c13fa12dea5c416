/* Pictures as files: see api/gallery.h. A contact sheet has at most a few dozen pictures. */
#include "api/gallery.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "io/file.h"
#include "io/sheet.h"
#include "io/writable.h"

enum { SHEET_PICTURES_MAX = 64, PAIR_COLUMNS_MAX = 8 };

/* Whether `path` names one picture rather than a folder. */
static bool is_file(const char *path)
{
    return wd_path_has_ending(path, ".png");
}

wd_status wd_gallery_check(const char *path, int64_t count, wd_err *err)
{
    static const char *const others[] = {".jpg",  ".jpeg", ".webp", ".gif",         ".bmp",  ".tif",
                                         ".tiff", ".avif", ".svg",  ".safetensors", ".json", NULL};
    WD_TRY(wd_path_refuse_endings(
        path, "--out", others, "a folder or a .png file, since pictures are written as PNG", err));
    if (!is_file(path)) return wd_folder_check_writable(path, "--out", err);
    if (count > 1)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--out %s: expected a folder for %lld pictures, found a file name", path,
                       (long long)count);
    return wd_file_check_writable(path, "--out", err);
}

/* Converts pictures to bytes in one block: *pictures[i] = rgb [height, width, 3]. */
static wd_status to_bytes(uint8_t **block, const uint8_t ***pictures, const float *image,
                          int64_t count, int64_t height, int64_t width, wd_err *err)
{
    const size_t each = (size_t)(3 * height * width);
    WD_TRY(wd_alloc((void **)block, (size_t)count, each, "pictures", err));
    WD_TRY(wd_alloc((void **)pictures, (size_t)count, sizeof **pictures, "pictures", err));
    for (int64_t i = 0; i < count; i++) {
        uint8_t *rgb = *block + (size_t)i * each;
        wd_png_from_unit(rgb, image + (size_t)i * each, height, width);
        (*pictures)[i] = rgb;
    }
    return WD_OK;
}

static wd_status write_sheet(const char *path, const wd_sheet *sheet, wd_err *err)
{
    wd_image image = {0};
    WD_TRY(wd_sheet_draw(&image, sheet, err));
    const wd_status status = wd_png_write(path, image.rgb, image.height, image.width, err);
    wd_image_close(&image);
    return status;
}

/* Writes the contact sheet, which is nearly square. The last row may have empty cells. */
static wd_status write_contact_sheet(const char *folder, const uint8_t *const *pictures,
                                     int64_t count, int64_t height, int64_t width,
                                     const char *const *prompt, wd_err *err)
{
    const uint8_t *shown[SHEET_PICTURES_MAX] = {0};
    const char *labels[SHEET_PICTURES_MAX] = {0};
    char path[WD_PATH_MAX];
    const int64_t n = count < SHEET_PICTURES_MAX ? count : SHEET_PICTURES_MAX;
    const int64_t columns = (int64_t)ceil(sqrt((double)n));
    for (int64_t i = 0; i < n; i++) {
        shown[i] = pictures[i];
        labels[i] = prompt[i];
    }
    const wd_sheet sheet = {.rows = (n + columns - 1) / columns,
                            .columns = columns,
                            .height = height,
                            .width = width,
                            .pictures = shown,
                            .labels = labels};
    WD_TRY(wd_path_join(path, folder, "contact-sheet.png", err));
    return write_sheet(path, &sheet, err);
}

wd_status wd_gallery_write(const char *path, const float *image, int64_t count, int64_t height,
                           int64_t width, const char *const *prompt, wd_err *err)
{
    const bool one = is_file(path);
    uint8_t *block = NULL;
    const uint8_t **pictures = NULL;
    wd_status status;
    WD_TRY_OUT(to_bytes(&block, &pictures, image, count, height, width, err));
    if (one) {
        status = wd_png_write(path, pictures[0], height, width, err);
        goto out;
    }
    WD_TRY_OUT(wd_folder_make(path, err));
    for (int64_t i = 0; i < count; i++) {
        char name[32], file[WD_PATH_MAX];
        snprintf(name, sizeof name, "%04lld.png", (long long)i);
        WD_TRY_OUT(wd_path_join(file, path, name, err));
        WD_TRY_OUT(wd_png_write(file, pictures[i], height, width, err));
    }
    status = write_contact_sheet(path, pictures, count, height, width, prompt, err);
out:
    wd_free((void *)pictures);
    wd_free(block);
    return status;
}

wd_status wd_gallery_write_pair(const char *path, const float *upper, const float *lower,
                                int64_t count, int64_t height, int64_t width,
                                const char *const *titles, const char *const *prompt, wd_err *err)
{
    const float *const image[2] = {upper, lower};
    const uint8_t *shown[2 * PAIR_COLUMNS_MAX];
    const char *labels[2 * PAIR_COLUMNS_MAX];
    const int64_t n = count < PAIR_COLUMNS_MAX ? count : PAIR_COLUMNS_MAX;
    uint8_t *block[2] = {0};
    const uint8_t **pictures[2] = {0};
    wd_status status = WD_OK;
    for (int row = 0; row < 2; row++) {
        WD_TRY_OUT(to_bytes(&block[row], &pictures[row], image[row], n, height, width, err));
        for (int64_t i = 0; i < n; i++) {
            shown[row * n + i] = pictures[row][i];
            labels[row * n + i] = row ? prompt[i] : NULL;
        }
    }
    const wd_sheet sheet = {.rows = 2,
                            .columns = n,
                            .height = height,
                            .width = width,
                            .pictures = shown,
                            .labels = labels,
                            .row_titles = titles};
    status = write_sheet(path, &sheet, err);
out:
    for (int row = 0; row < 2; row++) {
        wd_free((void *)pictures[row]);
        wd_free(block[row]);
    }
    return status;
}
