/* Text as code points: see core/unicode.h. */
#include "core/unicode.h"

#include <utf8proc.h>

#include "core/memory.h"

static wd_status reserve(wd_points *points, int64_t count, wd_err *err)
{
    if (count <= points->capacity) return WD_OK;
    int64_t capacity = count > points->capacity * 2 ? count : points->capacity * 2;
    if (capacity < 64) capacity = 64;
    void *at = points->at;
    WD_TRY(wd_resize(&at, (size_t)capacity, sizeof *points->at, "a text", err));
    points->at = at;
    points->capacity = capacity;
    return WD_OK;
}

wd_status wd_points_add(wd_points *points, int32_t point, wd_err *err)
{
    WD_TRY(reserve(points, points->count + 1, err));
    points->at[points->count++] = point;
    return WD_OK;
}

void wd_points_close(wd_points *points)
{
    wd_free(points->at);
    *points = (wd_points){0};
}

int64_t wd_utf8_check(const char *text, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t i = 0; i < bytes;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t n =
            p[i] < 0x80 ? 1 : utf8proc_iterate(p + i, (int64_t)(bytes - i), &point);
        if (n <= 0) return (int64_t)i;
        i += (size_t)n;
    }
    return -1;
}

wd_status wd_points_from_utf8(wd_points *out, const char *text, size_t bytes, wd_err *err)
{
    const uint8_t *p = (const uint8_t *)text;
    WD_TRY(reserve(out, (int64_t)bytes, err));
    out->count = 0;
    for (size_t i = 0; i < bytes;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t n = utf8proc_iterate(p + i, (int64_t)(bytes - i), &point);
        if (n <= 0)
            return wd_fail(err, WD_BAD_FORMAT, "the text is not UTF-8: byte 0x%02x at offset %zu",
                           p[i], i);
        out->at[out->count++] = point;
        i += (size_t)n;
    }
    return WD_OK;
}

wd_status wd_points_to_utf8(char **out, const wd_points *points, wd_err *err)
{
    size_t bytes = 0;
    utf8proc_uint8_t one[4];
    for (int64_t i = 0; i < points->count; i++)
        bytes += (size_t)utf8proc_encode_char(points->at[i], one);
    void *text;
    WD_TRY(wd_alloc(&text, bytes + 1, 1, "a text", err));
    uint8_t *to = text;
    for (int64_t i = 0; i < points->count; i++) to += utf8proc_encode_char(points->at[i], to);
    *out = text;
    return WD_OK;
}

static unsigned combining_class(int32_t point)
{
    return (unsigned)utf8proc_get_property(point)->combining_class & 0xff;
}

/* Sorts a run of combining marks by class with a stable counting sort. */
static void sort_marks(int32_t *marks, int32_t *sorted, int64_t count)
{
    int64_t start[257] = {0};
    for (int64_t i = 0; i < count; i++) start[combining_class(marks[i]) + 1]++;
    for (int c = 0; c < 256; c++) start[c + 1] += start[c];
    for (int64_t i = 0; i < count; i++) sorted[start[combining_class(marks[i])]++] = marks[i];
    for (int64_t i = 0; i < count; i++) marks[i] = sorted[i];
}

static void order_marks(wd_points *points, int32_t *sorted)
{
    for (int64_t i = 0; i < points->count;) {
        int64_t end = i;
        while (end < points->count && combining_class(points->at[end])) end++;
        if (end - i > 1) sort_marks(points->at + i, sorted, end - i);
        i = end + 1;
    }
}

wd_status wd_points_compose(wd_points *points, wd_points *scratch, wd_err *err)
{
    int64_t first = 0; /* NFC leaves all below U+0300 as it is */
    while (first < points->count && points->at[first] < 0x300) first++;
    if (first == points->count) return WD_OK;

    enum { PARTS_MAX = 32 };
    scratch->count = 0;
    for (int64_t i = 0; i < points->count; i++) {
        utf8proc_int32_t parts[PARTS_MAX];
        int boundary = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char(points->at[i], parts, PARTS_MAX, UTF8PROC_DECOMPOSE, &boundary);
        if (n < 0 || n > PARTS_MAX)
            return wd_fail(err, WD_INTERNAL, "U+%04X cannot be decomposed",
                           (unsigned)points->at[i]);
        for (utf8proc_ssize_t k = 0; k < n; k++) WD_TRY(wd_points_add(scratch, parts[k], err));
    }
    WD_TRY(reserve(points, scratch->count, err));
    order_marks(scratch, points->at);
    int64_t count =
        utf8proc_normalize_utf32(scratch->at, scratch->count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (count < 0) return wd_fail(err, WD_INTERNAL, "NFC: %s", utf8proc_errmsg(count));
    for (int64_t i = 0; i < count; i++) points->at[i] = scratch->at[i];
    points->count = count;
    return WD_OK;
}

bool wd_point_is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}
