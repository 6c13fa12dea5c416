/* JSON: see io/json/json.h. jansson parses. Size, depth and number of values are checked before it
 * does: it takes up to 240 bytes of memory for a value of two characters. */
#include "io/json/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/unicode.h"
#include "io/file/file.h"

/* ---- reading ---- */

enum { BYTES_MAX = 16 << 20, DEPTH_MAX = 64, VALUES_MAX = 1 << 18, SHOWN_MAX = 80 };

/* Counts brackets and commas outside of strings. *deepest is how deep values nest; *values is an
 * upper bound of their number. */
static void measure(int *deepest, int64_t *values, const char *text, size_t bytes)
{
    int depth = 0;
    bool in_text = false;
    *deepest = 0;
    *values = 1;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_text = false;
        } else if (c == '"') {
            in_text = true;
        } else if (c == '{' || c == '[') {
            ++*values;
            if (++depth > *deepest) *deepest = depth;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',') {
            ++*values;
        }
        if (*deepest > DEPTH_MAX || *values > VALUES_MAX) break;
    }
}

static wd_status check_size(size_t bytes, const char *name, wd_err *err)
{
    if (bytes <= BYTES_MAX) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT, "%s: JSON of %zu bytes, expected at most %d", name, bytes,
                   BYTES_MAX);
}

static wd_status check_limits(const char *text, size_t bytes, const char *name, wd_err *err)
{
    int deepest;
    int64_t values;
    WD_TRY(check_size(bytes, name, err));
    measure(&deepest, &values, text, bytes);
    if (deepest > DEPTH_MAX)
        return wd_fail(err, WD_BAD_FORMAT, "%s: JSON nests deeper than %d levels", name, DEPTH_MAX);
    if (values > VALUES_MAX)
        return wd_fail(err, WD_BAD_FORMAT, "%s: JSON has more than %d values", name, VALUES_MAX);
    return WD_OK;
}

wd_status wd_json_parse(json_t **out, const char *text, size_t bytes, const char *name, wd_err *err)
{
    json_error_t what;
    WD_TRY(check_limits(text, bytes, name, err));
    wd_json_watch_memory();
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &what);
    /* transformers writes "no limit" as the integer 10^30. */
    if (!json && json_error_code(&what) == json_error_numeric_overflow)
        json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &what);
    if (wd_json_lacked_memory()) {
        json_decref(json); /* characters may be missing in it */
        return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory for its JSON", name);
    }
    if (!json)
        return wd_fail(err, WD_BAD_FORMAT, "%s: not the JSON expected, line %d, column %d: %s",
                       name, what.line, what.column, what.text);
    *out = json;
    return WD_OK;
}

wd_status wd_json_parse_mapped(json_t **out, const char *text, size_t bytes, const char *name,
                               wd_err *err)
{
    void *copy;
    WD_TRY(check_size(bytes, name, err));
    WD_TRY(wd_alloc(&copy, bytes + 1, 1, "JSON of a file", err));
    memcpy(copy, text, bytes);
    const wd_status status = wd_json_parse(out, copy, bytes, name, err);
    wd_free(copy);
    return status;
}

wd_status wd_json_load(json_t **out, const char *path, wd_err *err)
{
    char *text;
    size_t bytes;
    WD_TRY(wd_file_read(&text, &bytes, path, BYTES_MAX, err));
    const size_t mark = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    wd_status status = wd_json_parse(out, text + mark, bytes - mark, path, err);
    wd_free(text);
    return status;
}

/* ---- writing ---- */

json_t *wd_json_string(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    enum { LONGER = sizeof replacement - 1 };
    const size_t bytes = strlen(text);
    void *block;
    wd_err ignored;
    if (wd_utf8_check(text, bytes) < 0) return json_string(text);
    if (wd_alloc(&block, bytes, LONGER, "a string", &ignored) != WD_OK) return NULL;
    char *out = block;
    size_t used = 0;
    for (size_t i = 0; i < bytes;) {
        const int64_t wrong = wd_utf8_check(text + i, bytes - i);
        const size_t fine = wrong < 0 ? bytes - i : (size_t)wrong;
        memcpy(out + used, text + i, fine);
        used += fine;
        i += fine;
        if (wrong < 0) break;
        memcpy(out + used, replacement, LONGER);
        used += LONGER;
        i++;
    }
    json_t *json = json_stringn(out, used);
    wd_free(block);
    return json;
}

wd_status wd_json_save(const json_t *json, const char *path, wd_err *err)
{
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    if (!text) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write its JSON", path);
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* replaces the '\0', which is not written */
    wd_status status = wd_file_write(path, text, bytes + 1, err);
    free(text); /* allocated by jansson */
    return status;
}

typedef struct shown {
    char *text;
    size_t used, room;
} shown;

/* Receives a piece of jansson's output; returns -1 once the buffer is full, so that jansson stops.
 */
static int show_piece(const char *piece, size_t bytes, void *context)
{
    shown *s = context;
    const size_t n = bytes < s->room - s->used ? bytes : s->room - s->used;
    memcpy(s->text + s->used, piece, n);
    s->used += n;
    return n < bytes ? -1 : 0;
}

const char *wd_json_show(char *out, size_t out_bytes, const json_t *value)
{
    static const char cut[] = "...";
    shown s = {.text = out, .room = out_bytes - sizeof cut};
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9);
    const bool whole = !json_dump_callback(value, show_piece, &s, flags);
    while (!whole && s.used && ((unsigned char)out[s.used - 1] & 0xc0) == 0x80) s.used--;
    if (!whole && s.used && (unsigned char)out[s.used - 1] >= 0xc0) s.used--;
    memcpy(out + s.used, whole ? "" : cut, whole ? 1 : sizeof cut);
    return out;
}

/* ---- the values of an object ---- */

static wd_status refuse(wd_json_reader r, const char *key, const char *expected,
                        const json_t *found, wd_err *err)
{
    char text[SHOWN_MAX];
    return wd_fail(err, WD_BAD_FORMAT, "%s: \"%s\": expected %s, found %s", r.where, key, expected,
                   wd_json_show(text, sizeof text, found));
}

/* Sets *out to the value, or to NULL if an optional one is absent or null. */
static wd_status find(const json_t **out, wd_json_reader r, const char *key, wd_json_need need,
                      wd_err *err)
{
    if (!json_is_object(r.object))
        return wd_fail(err, WD_BAD_FORMAT, "%s: expected a JSON object with \"%s\", found %s",
                       r.where, key, json_is_array(r.object) ? "an array" : "something else");
    const json_t *value = json_object_get(r.object, key);
    bool absent = !value || json_is_null(value);
    if (absent && need == WD_JSON_REQUIRED)
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"%s\" is %s, and has no default", r.where, key,
                       value ? "null" : "missing");
    *out = absent ? NULL : value;
    return WD_OK;
}

wd_status wd_json_int(int64_t *out, wd_json_reader r, const char *key, int64_t min, int64_t max,
                      wd_json_need need, wd_err *err)
{
    const json_t *value = NULL;
    WD_TRY(find(&value, r, key, need, err));
    if (!value) return WD_OK;
    int64_t number = json_integer_value(value);
    double real = json_number_value(value);
    bool whole = json_is_integer(value);
    if (json_is_real(value) && fabs(real) < 0x1p53 && real == trunc(real)) {
        number = (int64_t)real;
        whole = true;
    }
    if (!whole || number < min || number > max) {
        char expected[80];
        snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, min, max);
        return refuse(r, key, expected, value, err);
    }
    *out = number;
    return WD_OK;
}

wd_status wd_json_float(double *out, wd_json_reader r, const char *key, wd_json_need need,
                        wd_err *err)
{
    const json_t *value = NULL;
    WD_TRY(find(&value, r, key, need, err));
    if (!value) return WD_OK;
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return refuse(r, key, "a number", value, err);
    *out = json_number_value(value);
    return WD_OK;
}

wd_status wd_json_bool(bool *out, wd_json_reader r, const char *key, wd_json_need need, wd_err *err)
{
    const json_t *value = NULL;
    WD_TRY(find(&value, r, key, need, err));
    if (!value) return WD_OK;
    if (!json_is_boolean(value)) return refuse(r, key, "true or false", value, err);
    *out = json_is_true(value);
    return WD_OK;
}

wd_status wd_json_text(const char **out, wd_json_reader r, const char *key, wd_json_need need,
                       wd_err *err)
{
    const json_t *value = NULL;
    WD_TRY(find(&value, r, key, need, err));
    if (!value) return WD_OK;
    if (!json_is_string(value)) return refuse(r, key, "a string", value, err);
    *out = json_string_value(value);
    return WD_OK;
}

/* Sets *out to the array, of at most `count_max` elements, or to NULL if an optional one is absent.
 */
static wd_status find_array(const json_t **out, int64_t count_max, wd_json_reader r,
                            const char *key, wd_json_need need, wd_err *err)
{
    WD_TRY(find(out, r, key, need, err));
    if (!*out || (json_is_array(*out) && json_array_size(*out) <= (size_t)count_max)) return WD_OK;
    char expected[80];
    snprintf(expected, sizeof expected, "an array of at most %" PRId64 " numbers", count_max);
    return refuse(r, key, expected, *out, err);
}

wd_status wd_json_floats(double *out, int64_t *count, int64_t count_max, wd_json_reader r,
                         const char *key, wd_json_need need, wd_err *err)
{
    const json_t *array, *value;
    size_t i;
    WD_TRY(find_array(&array, count_max, r, key, need, err));
    if (!array) return WD_OK;
    json_array_foreach(array, i, value)
    {
        if (!json_is_number(value)) return refuse(r, key, "an array of numbers", array, err);
        out[i] = json_number_value(value);
    }
    *count = (int64_t)json_array_size(array);
    return WD_OK;
}

wd_status wd_json_ints(int64_t *out, int64_t *count, int64_t count_max, wd_json_reader r,
                       const char *key, wd_json_need need, wd_err *err)
{
    const json_t *array, *value;
    size_t i;
    WD_TRY(find_array(&array, count_max, r, key, need, err));
    if (!array) return WD_OK;
    json_array_foreach(array, i, value)
    {
        if (!json_is_integer(value)) return refuse(r, key, "an array of integers", array, err);
        out[i] = json_integer_value(value);
    }
    *count = (int64_t)json_array_size(array);
    return WD_OK;
}

/* ---- memory of jansson ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static json_malloc_t below; /* what jansson had before */
static _Thread_local bool lacked;

static void *noting(size_t bytes)
{
    void *block = below(bytes);
    lacked = lacked || (!block && bytes);
    return block;
}

__attribute__((constructor)) static void set_functions(void)
{
    json_malloc_t allocate;
    json_free_t release;
    pthread_mutex_lock(&lock);
    json_get_alloc_funcs(&allocate, &release);
    if (allocate != noting) {
        below = allocate;
        json_set_alloc_funcs(noting, release);
    }
    pthread_mutex_unlock(&lock);
}

void wd_json_watch_memory(void)
{
    set_functions();
    lacked = false;
}

bool wd_json_lacked_memory(void)
{
    return lacked;
}
