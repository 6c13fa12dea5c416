/* Pictures and PNG files: see io/picture/png.h.
 *
 * Files are encoded and decoded in memory; io/file/file.h reads and writes them. libpng reports an
 * error by longjmp to the setjmp of the codec; everything that must survive the jump is in the
 * codec struct. */
#include "io/picture/png.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/progress.h"
#include "io/file/file.h"

enum { FILE_BYTES_MAX = 512 << 20, MESSAGE_MAX = 128 };

typedef struct codec {
    png_structp png;
    png_infop info;
    char *bytes; /* the file's content: read, or being written */
    size_t used, capacity;
    png_bytep *rows; /* [height] */
    wd_image image;  /* the picture that is being read */
    bool no_memory;
    char message[MESSAGE_MAX]; /* libpng's */
} codec;

static wd_status check_size(int64_t height, int64_t width, wd_err *err)
{
    if (height >= 1 && width >= 1 && height <= WD_PNG_SIDE_MAX && width <= WD_PNG_SIDE_MAX &&
        height * width <= WD_PNG_PIXELS_MAX)
        return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED,
                   "a picture of %lld x %lld pixels: expected sides from 1 to %d, and at most %d "
                   "pixels in all",
                   (long long)width, (long long)height, WD_PNG_SIDE_MAX, WD_PNG_PIXELS_MAX);
}

wd_status wd__image_open(wd_image *out, int64_t height, int64_t width, wd_err *err)
{
    void *rgb;
    WD_TRY(check_size(height, width, err));
    WD_TRY(wd_alloc(&rgb, (size_t)(height * width), 3, "a picture", err));
    *out = (wd_image){.height = height, .width = width, .rgb = rgb};
    return WD_OK;
}

void wd_image_close(wd_image *image)
{
    wd_free(image->rgb);
    *image = (wd_image){0};
}

void wd_png_from_unit(uint8_t *rgb, const float *planes, int64_t height, int64_t width)
{
    for (int64_t c = 0; c < 3; c++) {
        for (int64_t i = 0; i < height * width; i++) {
            float x = planes[c * height * width + i];
            x = x > 0 ? (x < 1 ? x : 1) : 0; /* not a number fails the comparison */
            rgb[3 * i + c] = (uint8_t)rintf(255.0f * x);
        }
    }
}

static void on_error(png_structp png, png_const_charp message)
{
    codec *c = png_get_error_ptr(png);
    snprintf(c->message, sizeof c->message, "%s", message);
    png_longjmp(png, 1);
}

/* Warnings are about colour profiles and the like. */
static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static png_voidp give(png_structp png, png_alloc_size_t bytes)
{
    void *block = NULL;
    codec *c = png_get_mem_ptr(png);
    if (wd_alloc(&block, bytes, 1, "a PNG file", NULL) != WD_OK) c->no_memory = true;
    return block;
}

static void take(png_structp png, png_voidp block)
{
    (void)png;
    wd_free(block);
}

static void append(png_structp png, png_bytep data, size_t bytes)
{
    codec *c = png_get_io_ptr(png);
    if (c->used + bytes > c->capacity) {
        void *grown = c->bytes;
        size_t capacity = 2 * c->capacity + bytes + 4096;
        if (wd_resize(&grown, capacity, 1, "a PNG file", NULL) != WD_OK) {
            c->no_memory = true;
            png_error(png, "out of memory");
        }
        c->bytes = grown;
        c->capacity = capacity;
    }
    memcpy(c->bytes + c->used, data, bytes);
    c->used += bytes;
}

static void extract(png_structp png, png_bytep data, size_t bytes)
{
    codec *c = png_get_io_ptr(png);
    if (bytes > c->capacity - c->used) png_error(png, "the file ends too early");
    memcpy(data, c->bytes + c->used, bytes);
    c->used += bytes;
}

static void flush(png_structp png)
{
    (void)png;
}

/* Sets the row pointers to the rows of rgb. */
static wd_status point_rows(codec *c, uint8_t *rgb, int64_t height, int64_t width, wd_err *err)
{
    void *rows;
    WD_TRY(wd_alloc(&rows, (size_t)height, sizeof *c->rows, "a picture", err));
    c->rows = rows;
    for (int64_t y = 0; y < height; y++) c->rows[y] = rgb + 3 * y * width;
    return WD_OK;
}

static wd_status refuse(const codec *c, const char *path, wd_status status, wd_err *err)
{
    if (c->no_memory) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory for the picture", path);
    return wd_fail(err, status, "%s: %s", path, c->message);
}

static bool is_ascii(const char *text)
{
    while (*text > 0) text++;
    return !*text;
}

/* libpng's texts are not const, but the encoder only reads them. */
static void add_parameters(codec *c, const char *parameters)
{
    png_text text = {.compression = is_ascii(parameters) ? PNG_TEXT_COMPRESSION_NONE
                                                         : PNG_ITXT_COMPRESSION_NONE,
                     .key = (png_charp) "parameters",
                     .text = (png_charp)(uintptr_t)parameters};
    png_set_text(c->png, c->info, &text, 1);
}

/* Encodes the rows; false: libpng has reported an error by longjmp. */
static bool encode(codec *c, png_uint_32 height, png_uint_32 width, const char *parameters)
{
    if (setjmp(png_jmpbuf(c->png))) return false;
    c->info = png_create_info_struct(c->png);
    if (!c->info) png_error(c->png, "out of memory");
    png_set_write_fn(c->png, c, append, flush);
    png_set_IHDR(c->png, c->info, width, height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (parameters) add_parameters(c, parameters);
    png_write_info(c->png, c->info);
    png_write_image(c->png, c->rows);
    png_write_end(c->png, NULL);
    return true;
}

wd_status wd_png_write(const char *path, const uint8_t *rgb, int64_t height, int64_t width,
                       wd_err *err)
{
    return wd_png_write_with(path, rgb, height, width, NULL, err);
}

wd_status wd_png_write_with(const char *path, const uint8_t *rgb, int64_t height, int64_t width,
                            const char *parameters, wd_err *err)
{
    codec c = {0};
    wd_status status;
    if (check_size(height, width, err) != WD_OK) return wd_fail_in(err, "%s", path);
    /* libpng's rows are not const, but the encoder only reads them. */
    WD_TRY_OUT(point_rows(&c, (uint8_t *)(uintptr_t)rgb, height, width, err));
    c.png =
        png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &c, on_error, on_warning, &c, give, take);
    if (c.png && encode(&c, (png_uint_32)height, (png_uint_32)width, parameters))
        status = wd_file_write(path, c.bytes, c.used, err);
    else
        status = refuse(&c, path, WD_INTERNAL, err);
out:
    if (c.png) png_destroy_write_struct(&c.png, &c.info);
    wd_free(c.rows);
    wd_free(c.bytes);
    if (status == WD_OK) wd_picture_show(path, rgb, height, width);
    return status;
}

/* Reads the header and requests 8-bit RGB. */
static bool decode_header(codec *c)
{
    if (setjmp(png_jmpbuf(c->png))) return false;
    c->info = png_create_info_struct(c->png);
    if (!c->info) png_error(c->png, "out of memory");
    png_set_read_fn(c->png, c, extract);
    png_set_user_limits(c->png, WD_PNG_SIDE_MAX, WD_PNG_SIDE_MAX);
    png_read_info(c->png, c->info);
    png_set_expand(c->png);
    png_set_scale_16(c->png);
    png_set_strip_alpha(c->png);
    png_set_gray_to_rgb(c->png);
    png_set_interlace_handling(c->png);
    png_read_update_info(c->png, c->info);
    if (png_get_channels(c->png, c->info) != 3 || png_get_bit_depth(c->png, c->info) != 8)
        png_error(c->png, "cannot be read as 8-bit RGB");
    return true;
}

static bool decode_pixels(codec *c)
{
    if (setjmp(png_jmpbuf(c->png))) return false;
    png_read_image(c->png, c->rows);
    png_read_end(c->png, NULL);
    return true;
}

wd_status wd_png_read(wd_image *out, const char *path, wd_err *err)
{
    codec c = {0};
    wd_status status;
    WD_TRY(wd_file_read(&c.bytes, &c.capacity, path, FILE_BYTES_MAX, err));
    if (c.capacity < 8 || png_sig_cmp((png_const_bytep)c.bytes, 0, 8)) {
        status = wd_fail(err, WD_BAD_FORMAT, "%s: expected a PNG file, found something else", path);
        goto out;
    }
    c.png =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &c, on_error, on_warning, &c, give, take);
    if (!c.png || !decode_header(&c)) {
        status = refuse(&c, path, WD_BAD_FORMAT, err);
        goto out;
    }
    status = wd__image_open(&c.image, png_get_image_height(c.png, c.info),
                            png_get_image_width(c.png, c.info), err);
    if (status != WD_OK) {
        wd_fail_in(err, "%s", path);
        goto out;
    }
    WD_TRY_OUT(point_rows(&c, c.image.rgb, c.image.height, c.image.width, err));
    if (!decode_pixels(&c)) {
        status = refuse(&c, path, WD_BAD_FORMAT, err);
        goto out;
    }
    *out = c.image;
    c.image = (wd_image){0};
out:
    if (c.png) png_destroy_read_struct(&c.png, &c.info, NULL);
    wd_image_close(&c.image);
    wd_free(c.rows);
    wd_free(c.bytes);
    return status;
}
