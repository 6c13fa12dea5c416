/* Pictures as files: see api/jobs/gallery.h. A contact sheet has at most a few dozen pictures. */
#include "api/jobs/gallery.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "io/file/file.h"
#include "io/file/writable.h"
#include "io/picture/sheet.h"

enum { ROW_COLUMNS_MAX = 8 };

/* Whether `path` names one picture rather than a folder. */
static bool is_file(const char *path)
{
    return wd_path_has_ending(path, ".png");
}

wd_status wd__gallery_check(const char *path, int64_t count, wd_err *err)
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

static wd_status write_sheet(const char *path, const wd_sheet *sheet, wd_err *err)
{
    wd_image image = {0};
    WD_TRY(wd_sheet_draw(&image, sheet, err));
    const wd_status status = wd_png_write(path, image.rgb, image.height, image.width, err);
    wd_image_close(&image);
    return status;
}

/* ---- one after another ---- */

/* Writes rgb with the prompt and how the picture was made, as other programs read it: see
 * wd_png_write_with. */
static wd_status write_one(const wd_gallery *g, const char *path, const uint8_t *rgb, wd_err *err)
{
    const int64_t number = g->written / g->each;
    const char *prompt = g->prompt[number];
    const size_t bytes = strlen(prompt) + strlen(g->made_by) + 96;
    char *parameters, seed[32] = "from a file";
    WD_TRY(wd_alloc((void **)&parameters, bytes, 1, "a picture", err));
    if (!g->noise_is_given)
        snprintf(seed, sizeof seed, "%" PRIu64, g->seed + (uint64_t)(g->written % g->each));
    snprintf(parameters, bytes, "%s\n%s, Seed: %s, Noise number: %" PRId64, prompt, g->made_by,
             seed, number);
    const wd_status status = wd_png_write_with(path, rgb, g->height, g->width, parameters, err);
    wd_free(parameters);
    return status;
}

static wd_status add_one(wd_gallery *g, const float *image, wd_err *err)
{
    char name[32], path[WD_PATH_MAX];
    void *rgb;
    wd_status status;
    snprintf(name, sizeof name, "%04lld.png", (long long)g->written);
    WD_TRY(is_file(g->path) ? wd_path_join(path, "", g->path, err)
                            : wd_path_join(path, g->path, name, err));
    WD_TRY(wd_alloc(&rgb, (size_t)(g->height * g->width), 3, "a picture", err));
    wd_png_from_unit(rgb, image, g->height, g->width);
    status = write_one(g, path, rgb, err);
    if (status == WD_OK && g->written < WD_GALLERY_SHEET_MAX)
        g->shown[g->written] = rgb;
    else
        wd_free(rgb);
    g->written += status == WD_OK;
    return status;
}

wd_status wd__gallery_add(wd_gallery *g, const float *image, int64_t count, wd_err *err)
{
    if (!is_file(g->path)) WD_TRY(wd_folder_make(g->path, err));
    for (int64_t i = 0; i < count; i++)
        WD_TRY(add_one(g, image + i * 3 * g->height * g->width, err));
    return WD_OK;
}

/* The sheet is nearly square, or has a row for each prompt; its last row may have empty cells. */
wd_status wd__gallery_finish(const wd_gallery *g, wd_err *err)
{
    const uint8_t *shown[WD_GALLERY_SHEET_MAX] = {0};
    const char *labels[WD_GALLERY_SHEET_MAX] = {0};
    char path[WD_PATH_MAX];
    const int64_t n = g->written < WD_GALLERY_SHEET_MAX ? g->written : WD_GALLERY_SHEET_MAX;
    const int64_t columns = g->each > 1 && g->each <= ROW_COLUMNS_MAX && g->each <= n
                                ? g->each
                                : (int64_t)ceil(sqrt((double)n));
    if (is_file(g->path) || !n) return WD_OK;
    for (int64_t i = 0; i < n; i++) {
        shown[i] = g->shown[i];
        labels[i] = g->prompt[i / g->each];
    }
    const wd_sheet sheet = {.rows = (n + columns - 1) / columns,
                            .columns = columns,
                            .height = g->height,
                            .width = g->width,
                            .pictures = shown,
                            .labels = labels};
    WD_TRY(wd_path_join(path, g->path, "contact-sheet.png", err));
    return write_sheet(path, &sheet, err);
}

void wd__gallery_close(wd_gallery *gallery)
{
    for (int i = 0; i < WD_GALLERY_SHEET_MAX; i++) wd_free(gallery->shown[i]);
    *gallery = (wd_gallery){0};
}

/* ---- a pair ---- */

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

wd_status wd__gallery_write_pair(const char *path, const float *upper, const float *lower,
                                 int64_t count, int64_t height, int64_t width,
                                 const char *const *titles, const char *const *prompt, wd_err *err)
{
    const float *const image[2] = {upper, lower};
    const uint8_t *shown[2 * ROW_COLUMNS_MAX];
    const char *labels[2 * ROW_COLUMNS_MAX];
    const int64_t n = count < ROW_COLUMNS_MAX ? count : ROW_COLUMNS_MAX;
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
