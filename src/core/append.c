/* Text in buffers of fixed size: see core/append.h. */
#include "core/append.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/require.h"

size_t wd_append_text(char *out, size_t bytes, size_t used, const char *format, ...)
{
    WD_REQUIRE(used < bytes, "a text of %zu bytes is appended to in a buffer of %zu", used, bytes);
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(out + used, bytes - used, format, list);
    va_end(list);
    if (n < 0) out[used] = '\0';
    if (n <= 0) return used;
    return (size_t)n < bytes - used ? used + (size_t)n : bytes - 1;
}
