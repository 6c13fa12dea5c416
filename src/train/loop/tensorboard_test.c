/* Event files parse back, with the checksums that TensorBoard computes. */
#include "testing.h"

#include <dirent.h>

#include "io/picture/png.h"
#include "train/loop/tensorboard.h"

static void test_crc(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0}, ones[32]; /* RFC 3720, B.4 */
    memset(ones, 0xff, sizeof ones);
    assert_int_equal(wd__crc32c(zeros, 32), 0x8a9136aau);
    assert_int_equal(wd__crc32c(ones, 32), 0x62a8ab43u);
    assert_int_equal(wd__crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(wd__crc32c_masked("123456789", 9), 0xc78ab0e5u);
}

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static uint64_t take_fixed(cursor *c, int bytes)
{
    uint64_t v = 0;
    assert_true(c->end - c->at >= bytes);
    for (int i = 0; i < bytes; i++) v |= (uint64_t)*c->at++ << (8 * i);
    return v;
}

static uint64_t take_varint(cursor *c)
{
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = (unsigned char)take_fixed(c, 1);
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return v;
    }
}

/* The next field of a message: its number, its value or, for bytes, a cursor over them. */
static unsigned take_field(cursor *c, uint64_t *value, cursor *bytes)
{
    uint64_t key = take_varint(c);
    switch (key & 7) {
    case 0:
        *value = take_varint(c);
        break;
    case 1:
        *value = take_fixed(c, 8);
        break;
    case 5:
        *value = take_fixed(c, 4);
        break;
    case 2: {
        uint64_t count = take_varint(c);
        assert_true(count <= (uint64_t)(c->end - c->at));
        *bytes = (cursor){c->at, c->at + count};
        c->at += count;
        break;
    }
    default:
        fail_msg("wire type %d", (int)(key & 7));
    }
    return (unsigned)(key >> 3);
}

typedef struct event {
    int64_t step, status;
    float value;
    char tag[256], version[32];
    double wall_time;
} event;

static void copy_text(char *out, size_t out_bytes, cursor bytes)
{
    size_t count = (size_t)(bytes.end - bytes.at);
    assert_true(count < out_bytes);
    memcpy(out, bytes.at, count);
    out[count] = '\0';
}

static void parse_value(event *e, cursor c)
{
    uint64_t v;
    cursor bytes;
    while (c.at < c.end) {
        unsigned field = take_field(&c, &v, &bytes);
        uint32_t bits = (uint32_t)v;
        if (field == 1)
            copy_text(e->tag, sizeof e->tag, bytes);
        else if (field == 2)
            memcpy(&e->value, &bits, sizeof bits);
        else
            fail_msg("Value has no field %u", field);
    }
}

static event parse_event(cursor c)
{
    event e = {0};
    uint64_t v;
    cursor bytes, inner;
    while (c.at < c.end) {
        switch (take_field(&c, &v, &bytes)) {
        case 1:
            memcpy(&e.wall_time, &v, sizeof v);
            break;
        case 2:
            e.step = (int64_t)v;
            break;
        case 3:
            copy_text(e.version, sizeof e.version, bytes);
            break;
        case 5:
            assert_int_equal(take_field(&bytes, &v, &inner), 1);
            parse_value(&e, inner);
            break;
        case 7:
            assert_int_equal(take_field(&bytes, &v, &inner), 1);
            e.status = (int64_t)v;
            break;
        default:
            fail();
        }
    }
    return e;
}

static event take_record(cursor *c)
{
    const unsigned char *begin = c->at;
    uint64_t count = take_fixed(c, 8);
    assert_int_equal(take_fixed(c, 4), wd__crc32c_masked(begin, 8));
    assert_true(count <= (uint64_t)(c->end - c->at));
    cursor data = {c->at, c->at + count};
    c->at += count;
    assert_int_equal(take_fixed(c, 4), wd__crc32c_masked(data.at, count));
    return parse_event(data);
}

static void test_events(void **state)
{
    (void)state;
    const char *folder = wd_test_folder();
    wd_err err;
    wd_tensorboard *board;
    wd_test_ok(wd__tensorboard_open(&board, folder, 21, &err), &err);
    wd_test_ok(wd__tensorboard_scalar(board, "train/loss", 0.125, 300, &err), &err);
    wd_test_ok(wd__tensorboard_scalar(board, "lr", -3, 301, &err), &err);
    char tag[300];
    memset(tag, 'x', sizeof tag);
    tag[299] = '\0';
    assert_int_equal(wd__tensorboard_scalar(board, tag, 0, 1, &err), WD_INVALID_ARGUMENT);
    tag[255] = '\0';
    wd_test_ok(wd__tensorboard_scalar(board, tag, INFINITY, INT64_MAX, &err), &err);
    wd__tensorboard_close(board);

    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t bytes = 0;
    char path[WD_PATH_MAX], *file = NULL;
    while ((entry = readdir(dir))) {
        if (!strncmp(entry->d_name, "events.out.tfevents.", 20)) {
            assert_null(file);
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            wd_test_ok(wd_file_read(&file, &bytes, path, 1 << 20, &err), &err);
        }
    }
    closedir(dir);
    cursor c = {(unsigned char *)file, (unsigned char *)file + bytes};
    event e = take_record(&c);
    assert_string_equal(e.version, "brain.Event:2");
    assert_true(e.wall_time > 1.6e9);
    e = take_record(&c);
    assert_int_equal(e.step, 21);
    assert_int_equal(e.status, 1);
    e = take_record(&c);
    assert_string_equal(e.tag, "train/loss");
    assert_int_equal(e.step, 300);
    assert_true(e.value == 0.125f);
    e = take_record(&c);
    assert_string_equal(e.tag, "lr");
    assert_true(e.value == -3 && e.step == 301);
    e = take_record(&c);
    assert_string_equal(e.tag, tag);
    assert_true(isinf(e.value) && e.step == INT64_MAX);
    assert_ptr_equal(c.at, c.end);
    wd_free(file);
}

/* ---- pictures ---- */

/* The field with the number `wanted` of the message; the fields before it are skipped. */
static cursor find_field(cursor c, unsigned wanted)
{
    uint64_t v;
    cursor bytes = {0};
    while (c.at < c.end)
        if (take_field(&c, &v, &bytes) == wanted) return bytes;
    fail_msg("no field %u", wanted);
    return c;
}

static void put_noise(const char *path, int64_t side)
{
    wd_err err;
    uint8_t *rgb;
    uint32_t noise = 1;
    wd_test_ok(wd_alloc((void **)&rgb, (size_t)(side * side), 3, "noise", &err), &err);
    for (int64_t i = 0; i < 3 * side * side; i++)
        rgb[i] = (uint8_t)((noise = noise * 1664525u + 1013904223u) >> 24);
    wd_test_ok(wd_png_write(path, rgb, side, side, &err), &err);
    wd_free(rgb);
}

static void test_pictures(void **state)
{
    (void)state;
    char folder[128], path[160], large[160], events[WD_PATH_MAX] = "", *file, *png;
    wd_err err;
    wd_tensorboard *board;
    size_t bytes, png_bytes;
    bool left_out;
    uint64_t v;
    snprintf(folder, sizeof folder, "%s/pictures", wd_test_folder());
    snprintf(path, sizeof path, "%s/sheet.png", folder);
    snprintf(large, sizeof large, "%s/large.png", folder);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    put_noise(path, 40);
    put_noise(large, 2500); /* 18 MiB */
    wd_test_ok(wd__tensorboard_open(&board, folder, 0, &err), &err);
    wd_test_ok(wd__tensorboard_picture(&left_out, board, "samples/sheet", path, 7, &err), &err);
    assert_false(left_out);
    wd_test_ok(wd__tensorboard_picture(&left_out, board, "samples/sheet", large, 8, &err), &err);
    assert_true(left_out);
    wd_test_refused(wd__tensorboard_picture(&left_out, board, "x", folder, 8, &err), &err, WD_IO,
                    "pictures");
    wd__tensorboard_close(board);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (!strncmp(entry->d_name, "events.", 7))
            snprintf(events, sizeof events, "%s/%s", folder, entry->d_name);
    closedir(dir);
    wd_test_ok(wd_file_read(&file, &bytes, events, 1 << 20, &err), &err);
    wd_test_ok(wd_file_read(&png, &png_bytes, path, 1 << 20, &err), &err);
    cursor c = {(unsigned char *)file, (unsigned char *)file + bytes};
    take_record(&c);
    const unsigned char *begin = c.at;
    const uint64_t count = take_fixed(&c, 8);
    assert_int_equal(take_fixed(&c, 4), wd__crc32c_masked(begin, 8));
    cursor data = {c.at, c.at + count};
    c.at += count;
    assert_int_equal(take_fixed(&c, 4), wd__crc32c_masked(data.at, count));
    assert_ptr_equal(c.at, c.end); /* the others are not in it */
    cursor value = find_field(find_field(data, 5), 1);
    cursor tag = find_field(value, 1), image = find_field(value, 4);
    assert_int_equal(tag.end - tag.at, 13);
    assert_memory_equal(tag.at, "samples/sheet", 13);
    cursor side = image, ignored;
    assert_int_equal(take_field(&side, &v, &ignored), 1);
    assert_int_equal(v, 40);
    assert_int_equal(take_field(&side, &v, &ignored), 2);
    assert_int_equal(v, 40);
    cursor found = find_field(image, 4);
    assert_int_equal((size_t)(found.end - found.at), png_bytes);
    assert_memory_equal(found.at, png, png_bytes);
    wd_free(file);
    wd_free(png);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_pictures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
