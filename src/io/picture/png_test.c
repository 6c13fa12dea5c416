/* Tests of PNG files: what is written is read again, hostile files are refused, faults are
 * reported. */
#include "failing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/random.h"
#include "io/picture/png.h"

static const char *in_folder(char path[WD_PATH_MAX], const char *name)
{
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    return path;
}

static wd_image noise(int64_t height, int64_t width)
{
    wd_err err;
    wd_image image = {0};
    wd_test_ok(wd__image_open(&image, height, width, &err), &err);
    for (int64_t i = 0; i < height * width * 3; i += 4) {
        uint32_t bits[4];
        wd_random_bits(bits, (wd_random){.seed = 3, .stream = WD_RANDOM_TEST}, (uint64_t)i);
        for (int64_t k = i; k < i + 4 && k < height * width * 3; k++)
            image.rgb[k] = (uint8_t)bits[k - i];
    }
    return image;
}

static void write_and_read(int64_t height, int64_t width)
{
    wd_err err;
    char path[WD_PATH_MAX];
    wd_image image = noise(height, width), back = {0};
    in_folder(path, "a.png");
    wd_test_ok(wd_png_write(path, image.rgb, height, width, &err), &err);
    wd_test_ok(wd_png_read(&back, path, &err), &err);
    assert_int_equal(back.height, height);
    assert_int_equal(back.width, width);
    assert_memory_equal(back.rgb, image.rgb, (size_t)(height * width * 3));
    wd_image_close(&image);
    wd_image_close(&back);
    wd_image_close(&back);
}

static void reads_what_it_wrote(void **state)
{
    (void)state;
    write_and_read(1, 1);
    write_and_read(3, 257);
    write_and_read(300, 200);
}

/* A text chunk as the PNG specification lays it out: keyword, zeros, text. */
static void writes_how_it_was_made(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX], *bytes;
    size_t count;
    wd_image image = noise(4, 4), back = {0};
    static const char ascii[] = "red apple\nSteps: 4", other[] = "caf\xc3\xa9\nSteps: 4";
    static const char plain_chunk[] = "tEXtparameters\0red apple\nSteps: 4";
    static const char unicode_chunk[] = "iTXtparameters\0\0\0\0\0caf\xc3\xa9\nSteps: 4";
    in_folder(path, "text.png");
    for (int i = 0; i < 3; i++) {
        wd_test_ok(wd_png_write_with(path, image.rgb, 4, 4,
                                     i == 2 ? NULL
                                     : i    ? other
                                            : ascii,
                                     &err),
                   &err);
        wd_test_ok(wd_file_read(&bytes, &count, path, 1 << 20, &err), &err);
        assert_true(!memmem(bytes, count, plain_chunk, sizeof plain_chunk - 1) == (i != 0));
        assert_true(!memmem(bytes, count, unicode_chunk, sizeof unicode_chunk - 1) == (i != 1));
        assert_true(!memmem(bytes, count, "parameters", 10) == (i == 2));
        wd_free(bytes);
        wd_test_ok(wd_png_read(&back, path, &err), &err);
        assert_memory_equal(back.rgb, image.rgb, 4 * 4 * 3);
        wd_image_close(&back);
    }
    wd_image_close(&image);
}

static void rounds_half_to_even(void **state)
{
    (void)state;
    /* 0.5 * 255 = 127.5 and 0.1 * 255 = 25.5 (in fp32) are halves */
    const float planes[3 * 4] = {0,   1,        0.5f,       0.1f,   -3,   7,
                                 NAN, INFINITY, 1.0f / 255, 0.998f, 0.3f, -0.0f};
    const uint8_t want[4 * 3] = {0, 0, 1, 255, 255, 254, 128, 0, 76, 26, 255, 0};
    uint8_t rgb[4 * 3];
    wd_png_from_unit(rgb, planes, 2, 2);
    assert_memory_equal(rgb, want, sizeof want);
}

/* Without the flush to the device that wd_file_write makes: there are hundreds of these files. */
static void put_file(const char *path, const void *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static uint32_t crc32_of(const uint8_t *p, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Writes the file with its header's size changed, the checksum right. */
static wd_status read_with_size(const char *bytes, size_t count, uint32_t width, uint32_t height,
                                wd_err *err)
{
    char path[WD_PATH_MAX];
    uint8_t changed[4096];
    wd_image image = {0};
    assert_true(count <= sizeof changed);
    memcpy(changed, bytes, count);
    put_u32(changed + 16, width);
    put_u32(changed + 20, height);
    put_u32(changed + 29, crc32_of(changed + 12, 17));
    wd_test_ok(wd_file_write(in_folder(path, "size.png"), changed, count, err), err);
    wd_status status = wd_png_read(&image, path, err);
    wd_image_close(&image);
    return status;
}

static void refuses_hostile_files(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX], *bytes;
    size_t count;
    wd_image image = noise(4, 4), back = {0};
    in_folder(path, "whole.png");
    wd_test_ok(wd_png_write(path, image.rgb, 4, 4, &err), &err);
    wd_test_ok(wd_file_read(&bytes, &count, path, 1 << 20, &err), &err);
    in_folder(path, "bad.png");
    for (size_t cut = 0; cut < count; cut++) {
        put_file(path, bytes, cut);
        wd_test_refused(wd_png_read(&back, path, &err), &err, WD_BAD_FORMAT, "bad.png");
    }
    for (size_t i = 0; i < count; i++) { /* a changed byte is a wrong checksum, or no PNG at all */
        bytes[i] ^= 0x10;
        put_file(path, bytes, count);
        wd_test_refused(wd_png_read(&back, path, &err), &err, WD_BAD_FORMAT, "bad.png");
        bytes[i] ^= 0x10;
    }
    wd_test_refused(read_with_size(bytes, count, 1u << 31, 4, &err), &err, WD_BAD_FORMAT,
                    "size.png");
    wd_test_refused(read_with_size(bytes, count, 4, 40000, &err), &err, WD_BAD_FORMAT, "size.png");
    wd_test_refused(read_with_size(bytes, count, 30000, 30000, &err), &err, WD_UNSUPPORTED,
                    "30000 x 30000");
    wd_test_refused(read_with_size(bytes, count, 0, 4, &err), &err, WD_BAD_FORMAT, "size.png");
    wd_test_refused(read_with_size(bytes, count, 4, 5, &err), &err, WD_BAD_FORMAT, "size.png");
    wd_test_refused(wd_png_read(&back, "/nonexistent.png", &err), &err, WD_NOT_FOUND,
                    "nonexistent");
    wd_test_refused(wd_png_write(path, image.rgb, 0, 4, &err), &err, WD_UNSUPPORTED, "bad.png");
    wd_free(bytes);
    wd_image_close(&image);
}

/* A one-pixel grey picture with alpha, 16 bits: 0xabcd at half opacity. */
static void reads_other_kinds(void **state)
{
    (void)state;
    static const uint8_t grey[] = {
        0x89, 'P',  'N',  'G',  '\r', '\n', 0x1a, '\n', 0,   0,    0,    13,   'I',  'H',  'D',
        'R',  0,    0,    0,    1,    0,    0,    0,    1,   16,   4,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0,    16,   'I',  'D', 'A',  'T',  0x78, 0x01, 0x01, 0x05,
        0x00, 0xfa, 0xff, 0x00, 0xab, 0xcd, 0x80, 0x00, 0,   0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    'I',  'E',  'N',  'D', 0xae, 0x42, 0x60, 0x82};
    wd_err err;
    char path[WD_PATH_MAX];
    wd_image image = {0};
    uint8_t file[sizeof grey];
    memcpy(file, grey, sizeof file);
    uint32_t a = 1, b = 0; /* Adler-32 of the 5 bytes */
    for (int i = 48; i < 53; i++) a += file[i], b += a;
    put_u32(file + 53, b << 16 | a);
    put_u32(file + 29, crc32_of(file + 12, 17));
    put_u32(file + 57, crc32_of(file + 37, 20));
    wd_test_ok(wd_file_write(in_folder(path, "grey.png"), file, sizeof file, &err), &err);
    wd_test_ok(wd_png_read(&image, path, &err), &err);
    assert_int_equal(image.height * image.width, 1);
    for (int c = 0; c < 3; c++) assert_int_equal(image.rgb[c], 0xab);
    wd_image_close(&image);
}

static void faults_leave_the_old_file(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX], nowhere[WD_PATH_MAX];
    wd_image image = noise(200, 200), back = {0};
    in_folder(path, "old.png");
    wd_test_ok(wd_png_write(path, image.rgb, 10, 10, &err), &err);
    struct rlimit limit, small = {.rlim_cur = 4096, .rlim_max = 0}; /* stands for the full disk */
    getrlimit(RLIMIT_FSIZE, &limit);
    small.rlim_max = limit.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    wd_status status = wd_png_write(path, image.rgb, 200, 200, &err);
    setrlimit(RLIMIT_FSIZE, &limit);
    wd_test_refused(status, &err, WD_IO, "old.png: cannot be written");
    wd_test_ok(wd_png_read(&back, path, &err), &err);
    assert_int_equal(back.height, 10);
    wd_image_close(&back);
    wd_test_refused(wd_png_write(in_folder(nowhere, "no/such/folder.png"), image.rgb, 9, 9, &err),
                    &err, WD_NOT_FOUND, "no/such/folder.png");
    wd_image_close(&image);
}

typedef struct picture_file {
    wd_image image;
    char path[WD_PATH_MAX];
} picture_file;

static wd_status write_picture(void *context, wd_err *err)
{
    const picture_file *p = context;
    return wd_png_write(p->path, p->image.rgb, 40, 40, err);
}

static wd_status read_picture(void *context, wd_err *err)
{
    const picture_file *p = context;
    wd_image back;
    WD_TRY(wd_png_read(&back, p->path, err));
    assert_memory_equal(back.rgb, p->image.rgb, 40 * 40 * 3);
    wd_image_close(&back);
    return WD_OK;
}

/* ---- small copies ---- */

/* The copy of a picture, read again. */
static wd_status shrink(wd_image *out, const wd_image *image, int64_t width, int64_t pixels,
                        size_t bytes, wd_err *err)
{
    char path[WD_PATH_MAX], copy[WD_PATH_MAX];
    wd_small_png small = {0};
    in_folder(path, "large.png");
    in_folder(copy, "small.png");
    wd_test_ok(wd_png_write(path, image->rgb, image->height, image->width, err), err);
    const int from = open(path, O_RDONLY), to = open(copy, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(from >= 0 && to >= 0);
    const wd_status status =
        wd_png_shrink(&small, from, to, 0, width, pixels, bytes, "large.png", err);
    close(from);
    close(to);
    if (status != WD_OK) return status;
    wd_test_ok(wd_png_read(out, copy, err), err);
    assert_int_equal(small.height, out->height);
    assert_int_equal(small.width, out->width);
    return WD_OK;
}

/* A pixel of a copy is the mean of those in its place, also where the sides are no multiples. */
static void copies_are_means(void **state)
{
    (void)state;
    wd_err err;
    wd_image image = noise(50, 103), back;
    wd_test_ok(shrink(&back, &image, 20, 10000, 1 << 20, &err), &err);
    assert_int_equal(back.width, 20);
    assert_int_equal(back.height, 9);
    for (int64_t i = 0; i < back.height; i++)
        for (int64_t k = 0; k < back.width; k++) {
            int sum = 0, pixels = 0;
            for (int64_t y = 0; y < 50; y++)
                for (int64_t x = 0; x < 103; x++)
                    if (y * 9 / 50 == i && x * 20 / 103 == k) {
                        sum += image.rgb[3 * (103 * y + x) + 1];
                        pixels++;
                    }
            assert_int_equal(back.rgb[3 * (20 * i + k) + 1], (sum + pixels / 2) / pixels);
        }
    wd_image_close(&back);
    wd_test_ok(shrink(&back, &image, 200, 500, 1 << 20, &err), &err);
    assert_true(back.height * back.width <= 500 && back.height * back.width > 400);
    wd_image_close(&back);
    wd_test_ok(shrink(&back, &image, 103, 10000, 1 << 20, &err), &err);
    assert_int_equal(back.height, 50);
    assert_memory_equal(back.rgb, image.rgb, 50 * 103 * 3);
    wd_image_close(&back);
    wd_test_refused(shrink(&back, &image, 103, 10000, 1000, &err), &err, WD_BAD_FORMAT,
                    "large.png: its small copy is too large");
    wd_image_close(&image);
}

static void what_cannot_be_copied_is_refused(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_small_png small;
    wd_image image = noise(40, 40);
    in_folder(path, "cut.png");
    wd_test_ok(wd_png_write(path, image.rgb, 40, 40, &err), &err);
    wd_image_close(&image);
    const int from = open(path, O_RDWR), full = open("/dev/full", O_WRONLY);
    const int null = open("/dev/null", O_WRONLY);
    assert_true(from >= 0 && full >= 0 && null >= 0);
    wd_test_refused(wd_png_shrink(&small, from, full, 0, 40, 9999, 9999, "cut.png", &err), &err,
                    WD_IO, "No space left");
    assert_int_equal(ftruncate(from, 2000), 0);
    wd_test_refused(wd_png_shrink(&small, from, null, 0, 40, 9999, 9999, "cut.png", &err), &err,
                    WD_BAD_FORMAT, "cut.png: ");
    assert_int_equal(ftruncate(from, 0), 0);
    wd_test_refused(wd_png_shrink(&small, from, null, 0, 40, 9999, 9999, "cut.png", &err), &err,
                    WD_BAD_FORMAT, "cut.png: the file ends too early");
    close(from);
    close(full);
    close(null);
}

static wd_status shrink_picture(void *context, wd_err *err)
{
    const picture_file *p = context;
    wd_small_png small;
    const int from = open(p->path, O_RDONLY), to = open("/dev/null", O_WRONLY);
    assert_true(from >= 0 && to >= 0);
    const wd_status status = wd_png_shrink(&small, from, to, 0, 20, 400, 4096, "p", err);
    close(from);
    close(to);
    return status;
}

static void nth_allocation_fails(void **state)
{
    (void)state;
    picture_file p = {.image = noise(40, 40)};
    in_folder(p.path, "memory.png");
    wd_test_failing_allocations(write_picture, NULL, &p, 5);
    wd_test_failing_allocations(read_picture, NULL, &p, 5);
    wd_test_failing_allocations(shrink_picture, NULL, &p, 5);
    wd_image_close(&p.image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_how_it_was_made),
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(rounds_half_to_even),
        cmocka_unit_test(refuses_hostile_files),
        cmocka_unit_test(reads_other_kinds),
        cmocka_unit_test(faults_leave_the_old_file),
        cmocka_unit_test(copies_are_means),
        cmocka_unit_test(what_cannot_be_copied_is_refused),
        cmocka_unit_test(nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
