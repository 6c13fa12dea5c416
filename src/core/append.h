/* Appending formatted text to a buffer of fixed size. */
#ifndef WD_CORE_APPEND_H
#define WD_CORE_APPEND_H

#include <stddef.h>

/* Writes the formatted text at out[used] and returns the new length of the text, which is always
 * below `bytes` and ends with '\0'. Text that does not fit is left out. (snprintf instead returns
 * the length that the whole text would have, which as an offset would lead beyond the buffer.)
 * `bytes` must not be 0, and `used` must be below it. */
size_t wd_append_text(char *out, size_t bytes, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
