/* Reading the parts of a GGUF file, one after the other: see io/tensors/gguf.h. */
#ifndef WD_IO_TENSORS_GGUF_CURSOR_H
#define WD_IO_TENSORS_GGUF_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum { WD_GGUF_VERSION = 3, WD_GGUF_ALIGNMENT = 32 }; /* bytes, where a file says no other */

typedef struct wd_gguf_cursor {
    const char *path; /* of the file, for errors */
    const uint8_t *begin, *at, *end;
    bool is_part; /* the file goes on after `end`, up to which its header is read */
} wd_gguf_cursor;

/* X(name, number, bytes of a value; 0: it depends) */
#define WD_GGUF_TYPE_MAP(X)                                                                        \
    X(U8, 0, 1)                                                                                    \
    X(I8, 1, 1)                                                                                    \
    X(U16, 2, 2)                                                                                   \
    X(I16, 3, 2)                                                                                   \
    X(U32, 4, 4)                                                                                   \
    X(I32, 5, 4)                                                                                   \
    X(F32, 6, 4)                                                                                   \
    X(BOOL, 7, 1)                                                                                  \
    X(STRING, 8, 0)                                                                                \
    X(ARRAY, 9, 0)                                                                                 \
    X(U64, 10, 8)                                                                                  \
    X(I64, 11, 8)                                                                                  \
    X(F64, 12, 8)

typedef enum wd_gguf_type {
#define X(name, number, bytes) WD_GGUF_##name = number,
    WD_GGUF_TYPE_MAP(X)
#undef X
        WD_GGUF_TYPES
} wd_gguf_type;

/* Text in the file; it does not end with a NUL. */
typedef struct wd_gguf_text {
    const char *at;
    size_t bytes;
} wd_gguf_text;

/* A key of the metadata with its value, or `count` values of an array. */
typedef struct wd_gguf_value {
    wd_gguf_text key;
    wd_gguf_type type; /* of the value, or of those of the array */
    bool is_array;
    uint64_t count;
    const uint8_t *data; /* values one behind the other; texts with their lengths */
} wd_gguf_value;

wd_status wd__gguf_u32(uint32_t *out, wd_gguf_cursor *cursor, wd_err *err);
wd_status wd__gguf_u64(uint64_t *out, wd_gguf_cursor *cursor, wd_err *err);
wd_status wd__gguf_text_next(wd_gguf_text *out, wd_gguf_cursor *cursor, wd_err *err);

/* The next key and its value. */
wd_status wd__gguf_value_next(wd_gguf_value *out, wd_gguf_cursor *cursor, wd_err *err);

/* The file's beginning: its version is checked, and that its counts are ones of a real file. */
wd_status wd__gguf_begin(uint64_t *tensors, uint64_t *values, wd_gguf_cursor *cursor, wd_err *err);

/* How many bytes of a text a message shows, for "%.*s". */
int wd__gguf_shown_bytes(wd_gguf_text text);

/* Whether the value has that key. */
bool wd__gguf_is_key(const wd_gguf_value *value, const char *key);

/* A whole number: value `i` of any integer type; false: it is none, or negative. */
bool wd__gguf_integer(uint64_t *out, const wd_gguf_value *value, uint64_t i);

#endif
