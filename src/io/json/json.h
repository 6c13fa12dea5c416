/* Folder io/json. JSON texts.
 *
 * JSON through jansson, with errors that name file and key; and for code that calls jansson itself,
 * whether it lacked memory. */
#ifndef WD_IO_JSON_JSON_H
#define WD_IO_JSON_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "core/error.h"

/* ---- reading and writing ---- */

/* Parses a file of at most 16 MiB, nested at most 64 deep, of at most 262,144 values. It may begin
 * with a byte order mark, as Windows writes it. Duplicate keys are refused. If an integer exceeds
 * int64_t, all numbers of the file are read as reals. The caller calls json_decref on *out. */
wd_status wd_json_load(json_t **out, const char *path, wd_err *err);
/* Parses JSON in memory as wd_json_load does; errors call it `name`. */
wd_status wd_json_parse(json_t **out, const char *text, size_t bytes, const char *name,
                        wd_err *err);
/* The same for a part of a mapped file, which another process may change meanwhile: it is copied,
 * so that what is checked is what is parsed. */
wd_status wd_json_parse_mapped(json_t **out, const char *text, size_t bytes, const char *name,
                               wd_err *err);
/* Makes a JSON string of bytes such as a path or a command line: each byte that is not UTF-8
 * becomes U+FFFD. The caller owns the string. NULL: no memory. */
json_t *wd_json_string(const char *text);

/* Writes `json` with indentation and keys in insertion order. The file is replaced as a whole
 * (wd_file_write). */
wd_status wd_json_save(const json_t *json, const char *path, wd_err *err);

/* Writes a value as compact JSON into `out` (more than 4 bytes), for a message. A value that is too
 * long is cut and ends with "...". Returns `out`. */
const char *wd_json_show(char *out, size_t out_bytes, const json_t *value);

/* ---- the values of an object ---- */

/* A reader of one object. `where` names the object in errors ("models/x/vae/config.json"). Where an
 * optional key is absent or null, the getters leave *out unchanged, so initialise it with the
 * default. A value of another type or out of range is an error with the key, what was expected and
 * what was found; 2.0 is an integer. Strings are borrowed from the object. */
typedef struct wd_json_reader {
    const json_t *object;
    const char *where;
} wd_json_reader;

typedef enum wd_json_need { WD_JSON_OPTIONAL, WD_JSON_REQUIRED } wd_json_need;

wd_status wd_json_int(int64_t *out, wd_json_reader r, const char *key, int64_t min, int64_t max,
                      wd_json_need need, wd_err *err);
wd_status wd_json_float(double *out, wd_json_reader r, const char *key, wd_json_need need,
                        wd_err *err);
wd_status wd_json_bool(bool *out, wd_json_reader r, const char *key, wd_json_need need,
                       wd_err *err);
wd_status wd_json_text(const char **out, wd_json_reader r, const char *key, wd_json_need need,
                       wd_err *err);
/* Reads an array of at most `count_max` numbers; *count is set to their number. */
wd_status wd_json_floats(double *out, int64_t *count, int64_t count_max, wd_json_reader r,
                         const char *key, wd_json_need need, wd_err *err);
wd_status wd_json_ints(int64_t *out, int64_t *count, int64_t count_max, wd_json_reader r,
                       const char *key, wd_json_need need, wd_err *err);

/* ---- memory of jansson ----
 *
 * Whether jansson has got the memory that it asked for. It does not say so itself: strings that it
 * could not copy are called invalid, and characters for which a buffer could not grow are dropped.
 */

/* From now on failed allocations of jansson in this thread are noted; earlier ones are forgotten.
 * jansson's functions (json_set_alloc_funcs) become ones that call those which it had. */
void wd_json_watch_memory(void);

/* Whether one has failed since then. */
bool wd_json_lacked_memory(void);

#endif
