/* Text that is put together piece by piece in a buffer of fixed size. */
#ifndef WD_CORE_APPEND_H
#define WD_CORE_APPEND_H

#include <stddef.h>

/* Writes the formatted text at out[used] and returns the new length of the text, which is always
 * below `bytes` and ends with '\0'. What does not fit is left out: snprintf returns the length that
 * the text would have had, and as an offset that points behind the buffer. `bytes` must not be 0,
 * and `used` must be below it. */
size_t wd_append(char *out, size_t bytes, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
