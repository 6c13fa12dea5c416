/* Texts: how they begin and end, appending to a buffer of fixed size, and texts that grow. */
#ifndef WD_CORE_TEXT_H
#define WD_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/error.h"

static inline bool wd_begins_with(const char *text, const char *begin)
{
    return !strncmp(text, begin, strlen(begin));
}

static inline bool wd_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* ---- appending to a buffer of fixed size ---- */

/* Writes the formatted text at out[used] and returns the new length of the text, which is always
 * below `bytes` and ends with '\0'. Text that does not fit is left out. (snprintf instead returns
 * the length that the whole text would have, which as an offset would lead beyond the buffer.)
 * `bytes` must not be 0, and `used` must be below it. */
size_t wd_append_text(char *out, size_t bytes, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- texts that grow line by line ---- */

/* It remembers its first failure, so that the caller checks only wd_text_builder_take. */
typedef struct wd_text_builder {
    char *text; /* the caller frees it with wd_free, also after a failure */
    size_t used, size;
    wd_status status;
    wd_err *err;
} wd_text_builder;

__attribute__((format(printf, 2, 3))) void wd_text_builder_say(wd_text_builder *builder,
                                                               const char *format, ...);

/* Moves the text to *out, made safe for terminals (core/terminal_safe.h). The caller frees *out
 * with wd_free. On failure it returns the builder's first error, and there is nothing to free. */
wd_status wd_text_builder_take(char **out, wd_text_builder *builder);

#endif
