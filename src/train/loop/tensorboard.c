/* TFRecord framing and just enough of the protocol buffer encoding.
 *
 * A record is: length (u64), masked CRC of the length, data, masked CRC of the data; little endian.
 * The messages (tensorflow/core/util/event.proto, framework/summary.proto):
 *   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
 *             SessionLog session_log = 7; }
 *   Summary { repeated Value value = 1; }
 *   Value   { string tag = 1; float simple_value = 2; Image image = 4; }
 *   Image   { int32 height = 1; int32 width = 2; int32 colorspace = 3; bytes encoded = 4; }
 *   SessionLog { SessionStatus status = 1; }   START = 1: discards what other files say from this
 *                                              event's step on. */
#include "train/loop/tensorboard.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/memory.h"
#include "io/file/record_file.h"

enum { MESSAGE_MAX = 512, TAG_MAX = 255 }; /* a framed message, too, has room */

enum { RGB = 3 };

struct wd_tensorboard {
    wd_record_file records;
    size_t picture_bytes; /* of all pictures so far */
};

uint32_t wd__crc32c(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

/* A CRC stored beside data that holds CRCs would be weak: TFRecord rotates and adds. */
uint32_t wd__crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = wd__crc32c(data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* ---- protocol buffers ---- */

typedef struct message {
    unsigned char bytes[MESSAGE_MAX];
    size_t count;
} message;

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void put_varint(message *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) m->bytes[m->count++] = (unsigned char)(v | 0x80);
    m->bytes[m->count++] = (unsigned char)v;
}

static void put_key(message *m, unsigned field, unsigned wire)
{
    put_varint(m, (uint64_t)field << 3 | wire);
}

static void put_fixed(message *m, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) m->bytes[m->count++] = (unsigned char)(v >> (8 * i));
}

static void put_double(message *m, unsigned field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(m, field, WIRE_FIXED64);
    put_fixed(m, bits, 8);
}

static void put_float(message *m, unsigned field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(m, field, WIRE_FIXED32);
    put_fixed(m, bits, 4);
}

static void put_int(message *m, unsigned field, int64_t v)
{
    put_key(m, field, WIRE_VARINT);
    put_varint(m, (uint64_t)v);
}

static void put_bytes(message *m, unsigned field, const void *data, size_t count)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, count);
    memcpy(m->bytes + m->count, data, count);
    m->count += count;
}

static double wall_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- records ---- */

static wd_status write_record(wd_tensorboard *board, const message *data, wd_err *err)
{
    message record = {0};
    put_fixed(&record, data->count, 8);
    put_fixed(&record, wd__crc32c_masked(record.bytes, 8), 4);
    memcpy(record.bytes + record.count, data->bytes, data->count);
    record.count += data->count;
    put_fixed(&record, wd__crc32c_masked(data->bytes, data->count), 4);
    return wd_record_file_write(&board->records, record.bytes, record.count, err);
}

static wd_status write_head(wd_tensorboard *board, int64_t purge_step, wd_err *err)
{
    static const char version[] = "brain.Event:2";
    message event = {0};
    put_double(&event, 1, wall_time());
    put_bytes(&event, 3, version, sizeof version - 1);
    WD_TRY(write_record(board, &event, err));
    if (purge_step <= 0) return WD_OK;
    message log = {0}, start = {0};
    put_int(&log, 1, 1);
    put_double(&start, 1, wall_time());
    put_int(&start, 2, purge_step);
    put_bytes(&start, 7, log.bytes, log.count);
    return write_record(board, &start, err);
}

wd_status wd__tensorboard_open(wd_tensorboard **out, const char *folder, int64_t purge_step,
                               wd_err *err)
{
    wd_tensorboard *board = NULL;
    wd_status status = WD_OK;
    char host[64] = "localhost", name[160], path[WD_PATH_MAX];
    int n = 0;
    gethostname(host, sizeof host - 1);
    WD_TRY(wd_alloc((void **)&board, 1, sizeof *board, "event file", err));
    board->records.fd = -1;
    do {
        snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%d", (long long)time(NULL),
                 host, (long)getpid(), n++);
        WD_TRY_OUT(wd_path_join(path, folder, name, err));
    } while (wd_path_exists(path));
    WD_TRY_OUT(wd_record_file_open(&board->records, path, err));
    WD_TRY_OUT(write_head(board, purge_step, err));
out:
    if (status == WD_OK)
        *out = board;
    else
        wd__tensorboard_close(board);
    return status;
}

void wd__tensorboard_close(wd_tensorboard *board)
{
    if (!board) return;
    wd_record_file_close(&board->records);
    wd_free(board);
}

wd_status wd__tensorboard_scalar(wd_tensorboard *board, const char *tag, double value, int64_t step,
                                 wd_err *err)
{
    message item = {0}, summary = {0}, event = {0};
    size_t length = strlen(tag);
    if (length > TAG_MAX) {
        return wd_fail(err, WD_INVALID_ARGUMENT, "TensorBoard tag of %zu bytes, at most %d", length,
                       TAG_MAX);
    }
    put_bytes(&item, 1, tag, length);
    put_float(&item, 2, (float)value);
    put_bytes(&summary, 1, item.bytes, item.count);
    put_double(&event, 1, wall_time());
    put_int(&event, 2, step);
    put_bytes(&event, 5, summary.bytes, summary.count);
    return write_record(board, &event, err);
}

/* ---- pictures ---- */

/* What comes before the bytes of a picture: four messages, each of which ends with them. */
static message picture_head(const char *tag, int64_t step, uint64_t width, uint64_t height,
                            size_t bytes)
{
    message event = {0}, summary = {0}, value = {0}, image = {0};
    put_key(&image, 1, WIRE_VARINT);
    put_varint(&image, height);
    put_key(&image, 2, WIRE_VARINT);
    put_varint(&image, width);
    put_int(&image, 3, RGB);
    put_key(&image, 4, WIRE_BYTES);
    put_varint(&image, bytes);
    put_bytes(&value, 1, tag, strlen(tag));
    put_key(&value, 4, WIRE_BYTES);
    put_varint(&value, image.count + bytes);
    put_key(&summary, 1, WIRE_BYTES);
    put_varint(&summary, value.count + image.count + bytes);
    put_double(&event, 1, wall_time());
    put_int(&event, 2, step);
    put_key(&event, 5, WIRE_BYTES);
    put_varint(&event, summary.count + value.count + image.count + bytes);
    const message *const parts[] = {&summary, &value, &image};
    for (int i = 0; i < 3; i++) {
        memcpy(event.bytes + event.count, parts[i]->bytes, parts[i]->count);
        event.count += parts[i]->count;
    }
    return event;
}

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static wd_status write_picture(wd_tensorboard *board, const char *tag, const unsigned char *png,
                               size_t bytes, int64_t step, wd_err *err)
{
    enum { WIDTH_AT = 16, HEIGHT_AT = 20 };
    const message head =
        picture_head(tag, step, big_endian(png + WIDTH_AT), big_endian(png + HEIGHT_AT), bytes);
    const size_t data = head.count + bytes;
    message begin = {0}, end = {0};
    unsigned char *record;
    WD_TRY(wd_alloc((void **)&record, 12 + data + 4, 1, "a picture for TensorBoard", err));
    put_fixed(&begin, data, 8);
    put_fixed(&begin, wd__crc32c_masked(begin.bytes, 8), 4);
    memcpy(record, begin.bytes, 12);
    memcpy(record + 12, head.bytes, head.count);
    memcpy(record + 12 + head.count, png, bytes);
    put_fixed(&end, wd__crc32c_masked(record + 12, data), 4);
    memcpy(record + 12 + data, end.bytes, 4);
    const wd_status status = wd_record_file_write(&board->records, record, 12 + data + 4, err);
    wd_free(record);
    return status;
}

wd_status wd__tensorboard_picture(bool *left_out, wd_tensorboard *board, const char *tag,
                                  const char *path, int64_t step, wd_err *err)
{
    static const char signature[] = "\x89PNG\r\n\x1a\n";
    enum { HEAD = 24 };
    char *png;
    size_t bytes;
    wd_err why;
    *left_out = false;
    if (strlen(tag) > TAG_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT, "TensorBoard tag of %zu bytes, at most %d",
                       strlen(tag), TAG_MAX);
    const size_t left = WD_TENSORBOARD_PICTURES_MAX - board->picture_bytes;
    const size_t most = left < WD_TENSORBOARD_PICTURE_MAX ? left : WD_TENSORBOARD_PICTURE_MAX;
    wd_status status = wd_file_read(&png, &bytes, path, most, &why);
    *left_out = status == WD_BAD_FORMAT; /* it is larger */
    if (*left_out) return WD_OK;
    if (status != WD_OK) return wd_fail(err, status, "%s", why.message);
    if (bytes < HEAD || memcmp(png, signature, sizeof signature - 1))
        status = wd_fail(err, WD_BAD_FORMAT, "%s: expected a PNG file", path);
    else
        status = write_picture(board, tag, (const unsigned char *)png, bytes, step, err);
    if (status == WD_OK) board->picture_bytes += bytes;
    wd_free(png);
    return status;
}
