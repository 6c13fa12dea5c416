/* Ends a process that found a bug in itself: see core/require.h. */
#include "core/require.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void wd__require_failed(const char *file, int line, const char *format, ...)
{
    char message[512];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    fprintf(stderr,
            "wandistiller: internal error at %s:%d: %s. This is a defect of the program: please "
            "report it with the command that was run\n",
            file, line, message);
    abort();
}
