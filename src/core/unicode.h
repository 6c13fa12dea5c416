/* Text as an array of code points, for functions that look at characters. All other functions use
 * UTF-8.
 *
 * Data flow: from_utf8 checks and decodes, the transforms of prompt_clean.c and html.c work in
 * place or from one buffer into another, to_utf8 encodes. Properties and normalisation are
 * utf8proc's. */
#ifndef WD_CORE_UNICODE_H
#define WD_CORE_UNICODE_H

#include "core/error.h"

/* A growing array of code points, none a surrogate. Zeroed: empty. */
typedef struct wd_points {
    int32_t *at;
    int64_t count, capacity;
} wd_points;

wd_status wd_points_add(wd_points *points, int32_t point, wd_err *err);
void wd_points_close(wd_points *points);

/* Replaces *out by the text. Bytes that are not UTF-8, including overlong forms and surrogates, are
 * an error with their offset. */
wd_status wd_points_from_utf8(wd_points *out, const char *text, size_t bytes, wd_err *err);

/* Encodes the points as UTF-8. The caller frees *out with wd_free. */
wd_status wd_points_to_utf8(char **out, const wd_points *points, wd_err *err);

/* Canonical composition (NFC), in linear time also for long runs of accents. `scratch` is a
 * temporary that keeps its memory for the next call. */
wd_status wd_points_compose(wd_points *points, wd_points *scratch, wd_err *err);

/* Offset of the first byte that is not UTF-8, or -1. */
int64_t wd_utf8_check(const char *text, size_t bytes);

/* Whether the point is white space for Python's str.isspace and re's \s. */
bool wd_point_is_space(int32_t point);

#endif
