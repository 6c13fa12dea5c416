/* Small copies of PNG files: see io/picture/png.h.
 *
 * Data flow: a row is decoded and added to the sums of a row of the copy; when all rows of its
 * place are added, the means are encoded. libpng reports an error of either side by a jump to the
 * one setjmp; everything that must survive the jump is in the struct. */
#include "io/picture/png.h"

#include <errno.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"

enum { MESSAGE_MAX = 128 };

typedef struct small {
    png_structp in, out;
    png_infop in_info, out_info;
    int from, to;
    int64_t offset;
    size_t read, written, bytes_max;
    int64_t height, width;             /* of the file */
    int64_t small_height, small_width; /* of the copy */
    uint8_t *row, *small_row;
    uint32_t *sum; /* [small_width, 3] */
    jmp_buf jump;
    wd_status status; /* after a jump */
    char message[MESSAGE_MAX];
} small;

static _Noreturn void jump(small *s, wd_status status, const char *message)
{
    if (s->status == WD_OK) {
        s->status = status;
        snprintf(s->message, sizeof s->message, "%s", message);
    }
    longjmp(s->jump, 1);
}

static void on_error(png_structp png, png_const_charp message)
{
    jump(png_get_error_ptr(png), WD_BAD_FORMAT, message);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static png_voidp give(png_structp png, png_alloc_size_t bytes)
{
    void *block = NULL;
    small *s = png_get_mem_ptr(png);
    if (wd_alloc(&block, bytes, 1, "a PNG file", NULL) != WD_OK && s->status == WD_OK) {
        s->status = WD_OUT_OF_MEMORY;
        snprintf(s->message, sizeof s->message, "no memory for the picture");
    }
    return block;
}

static void take(png_structp png, png_voidp block)
{
    (void)png;
    wd_free(block);
}

static void extract(png_structp png, png_bytep data, size_t bytes)
{
    small *s = png_get_io_ptr(png);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(s->from, data + done, bytes - done, (off_t)s->read);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) jump(s, WD_BAD_FORMAT, n ? strerror(errno) : "the file ends too early");
        done += (size_t)n;
        s->read += (size_t)n;
    }
}

static void append(png_structp png, png_bytep data, size_t bytes)
{
    small *s = png_get_io_ptr(png);
    if (bytes > s->bytes_max - s->written) jump(s, WD_BAD_FORMAT, "its small copy is too large");
    for (size_t done = 0; done < bytes;) {
        const off_t at = (off_t)s->offset + (off_t)s->written;
        const ssize_t n = pwrite(s->to, data + done, bytes - done, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) jump(s, WD_IO, n ? strerror(errno) : "its small copy cannot be written");
        done += (size_t)n;
        s->written += (size_t)n;
    }
}

static void flush(png_structp png)
{
    (void)png;
}

/* ---- the two headers ---- */

static void begin_reading(small *s)
{
    png_byte first[8];
    s->in_info = png_create_info_struct(s->in);
    if (!s->in_info) jump(s, WD_OUT_OF_MEMORY, "no memory for the picture");
    png_set_read_fn(s->in, s, extract);
    extract(s->in, first, sizeof first);
    if (png_sig_cmp(first, 0, sizeof first)) jump(s, WD_BAD_FORMAT, "is no PNG file");
    png_set_sig_bytes(s->in, sizeof first);
    png_set_user_limits(s->in, WD_PNG_SIDE_MAX, WD_PNG_SIDE_MAX);
    png_read_info(s->in, s->in_info);
    if (png_get_interlace_type(s->in, s->in_info) != PNG_INTERLACE_NONE)
        jump(s, WD_BAD_FORMAT, "is interlaced");
    png_set_expand(s->in);
    png_set_scale_16(s->in);
    png_set_strip_alpha(s->in);
    png_set_gray_to_rgb(s->in);
    png_read_update_info(s->in, s->in_info);
    s->height = png_get_image_height(s->in, s->in_info);
    s->width = png_get_image_width(s->in, s->in_info);
    if (png_get_channels(s->in, s->in_info) != 3 || png_get_bit_depth(s->in, s->in_info) != 8 ||
        s->height * s->width > WD_PNG_PIXELS_MAX)
        jump(s, WD_BAD_FORMAT, "cannot be read as 8-bit RGB of the expected size");
}

static int64_t scaled(int64_t side, double scale)
{
    const int64_t n = (int64_t)floor((double)side * scale);
    return n > 1 ? n : 1;
}

static void begin_writing(small *s, int64_t width_max, int64_t pixels_max)
{
    const double by_width = (double)width_max / (double)s->width;
    const double by_pixels = sqrt((double)pixels_max / ((double)s->width * (double)s->height));
    const double scale = fmin(1, fmin(by_width, by_pixels));
    s->small_height = scaled(s->height, scale);
    s->small_width = scaled(s->width, scale);
    if (wd_alloc((void **)&s->row, (size_t)s->width, 3, "a row", NULL) != WD_OK ||
        wd_alloc((void **)&s->small_row, (size_t)s->small_width, 3, "a row", NULL) != WD_OK ||
        wd_alloc((void **)&s->sum, (size_t)s->small_width * 3, sizeof *s->sum, "sums", NULL) !=
            WD_OK)
        jump(s, WD_OUT_OF_MEMORY, "no memory for the picture");
    s->out_info = png_create_info_struct(s->out);
    if (!s->out_info) jump(s, WD_OUT_OF_MEMORY, "no memory for the picture");
    png_set_write_fn(s->out, s, append, flush);
    png_set_IHDR(s->out, s->out_info, (png_uint_32)s->small_width, (png_uint_32)s->small_height, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(s->out, s->out_info);
}

/* ---- rows ---- */

/* The first of `all` pixels that belongs to pixel `i` of `few`. */
static int64_t first_of(int64_t i, int64_t all, int64_t few)
{
    return (i * all + few - 1) / few;
}

static void add_row(small *s)
{
    for (int64_t i = 0; i < s->small_width; i++) {
        const int64_t end = first_of(i + 1, s->width, s->small_width);
        uint32_t *sum = s->sum + 3 * i;
        for (int64_t x = first_of(i, s->width, s->small_width); x < end; x++)
            for (int c = 0; c < 3; c++) sum[c] += s->row[3 * x + c];
    }
}

static void write_means(small *s, int64_t rows)
{
    for (int64_t i = 0; i < s->small_width; i++) {
        const int64_t columns =
            first_of(i + 1, s->width, s->small_width) - first_of(i, s->width, s->small_width);
        const int64_t pixels = rows * columns;
        for (int c = 0; c < 3; c++)
            s->small_row[3 * i + c] = (uint8_t)((s->sum[3 * i + c] + pixels / 2) / pixels);
    }
    memset(s->sum, 0, (size_t)s->small_width * 3 * sizeof *s->sum);
    png_write_row(s->out, s->small_row);
}

static void copy_rows(small *s)
{
    for (int64_t i = 0; i < s->small_height; i++) {
        const int64_t begin = first_of(i, s->height, s->small_height);
        const int64_t end = first_of(i + 1, s->height, s->small_height);
        for (int64_t y = begin; y < end; y++) {
            png_read_row(s->in, s->row, NULL);
            add_row(s);
        }
        write_means(s, end - begin);
    }
    png_write_end(s->out, NULL);
}

/* False: something was reported by a jump. */
static bool shrink(small *s, int64_t width_max, int64_t pixels_max)
{
    if (setjmp(s->jump)) return false;
    begin_reading(s);
    begin_writing(s, width_max, pixels_max);
    copy_rows(s);
    return true;
}

wd_status wd_png_shrink(wd_small_png *out, int from, int to, int64_t offset, int64_t width_max,
                        int64_t pixels_max, size_t bytes_max, const char *name, wd_err *err)
{
    wd_status status = WD_OK;
    small s = {.from = from, .to = to, .offset = offset, .bytes_max = bytes_max};
    s.in =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning, &s, give, take);
    s.out =
        png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning, &s, give, take);
    if (!s.in || !s.out)
        status = wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory for the picture", name);
    else if (!shrink(&s, width_max, pixels_max))
        status = wd_fail(err, s.status, "%s: %s", name, s.message);
    else
        *out = (wd_small_png){s.small_height, s.small_width, s.written};
    if (s.in) png_destroy_read_struct(&s.in, &s.in_info, NULL);
    if (s.out) png_destroy_write_struct(&s.out, &s.out_info);
    wd_free(s.row);
    wd_free(s.small_row);
    wd_free(s.sum);
    return status;
}
