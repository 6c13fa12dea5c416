/* Errors: see core/error.h. */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

static _Thread_local struct {
    wd_shortage_fn *fn;
    void *context;
} shortage;

const char *wd_status_text(wd_status status)
{
    switch (status) {
#define X(name, code, text)                                                                        \
    case WD_##name:                                                                                \
        return text;
        WD_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

static void fill(wd_err *err, int failed_rank, wd_status status, const char *format, va_list list)
{
    err->status = status;
    err->failed_rank = failed_rank;
    vsnprintf(err->message, sizeof err->message, format, list);
    wd_make_terminal_safe(err->message);
}

void wd_on_shortage(wd_shortage_fn *fn, void *context)
{
    shortage.fn = fn;
    shortage.context = context;
}

static void notice(wd_status status)
{
    if (status == WD_OUT_OF_MEMORY && shortage.fn) shortage.fn(shortage.context);
}

wd_status wd_fail(wd_err *err, wd_status status, const char *format, ...)
{
    notice(status);
    if (!err) return status;
    va_list list;
    va_start(list, format);
    fill(err, 0, status, format, list);
    va_end(list);
    return status;
}

wd_status wd_fail_of(wd_err *err, int rank, wd_status status, const char *format, ...)
{
    notice(status);
    if (!err) return status;
    va_list list;
    va_start(list, format);
    fill(err, 1 + rank, status, format, list);
    va_end(list);
    return status;
}

wd_status wd_fail_in(wd_err *err, const char *format, ...)
{
    if (!err) return WD_INTERNAL;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list list;
    va_start(list, format);
    int n = vsnprintf(err->message, sizeof err->message, format, list);
    va_end(list);
    if (n >= 0 && (size_t)n < sizeof err->message) {
        snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", old);
    }
    wd_make_terminal_safe(err->message);
    return err->status;
}

/* ---- internal errors ---- */

__attribute__((noreturn)) void wd__require_failed(const char *file, int line, const char *format,
                                                  ...)
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
