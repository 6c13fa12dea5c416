/* Errors: what touches the world returns a wd_status and fills a wd_err; nothing here exits. */
#ifndef WD_CORE_ERROR_H
#define WD_CORE_ERROR_H

#include "wandistiller.h"

/* Fills `err` (may be NULL) with the formatted message, and returns `status`, so that a failure is
 * one line: `return wd_fail(err, WD_IO, "%s: cannot be read: %s", path, strerror(errno));` */
wd_status wd_fail(wd_err *err, wd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for the failure of another rank: the report of a job is of that rank. */
wd_status wd_fail_of(wd_err *err, int rank, wd_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " in front of the message that is already in `err`; returns err->status. */
wd_status wd_fail_in(wd_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `fn` is told of every WD_OUT_OF_MEMORY that is said in this thread, before anything is freed:
 * memory is then as it was when there was none left. It must not call what may say it again. fn
 * NULL: nobody is told. */
typedef void wd_shortage_fn(void *context);
void wd_on_shortage(wd_shortage_fn *fn, void *context);

/* Hands a failure on to the caller, when there is nothing to clean up. */
#define WD_TRY(call)                                                                               \
    do {                                                                                           \
        wd_status wd_try_status_ = (call);                                                         \
        if (wd_try_status_ != WD_OK) return wd_try_status_;                                        \
    } while (0)

/* The same with one `out:` label that cleans up and returns the local variable `status`. */
#define WD_TRY_OUT(call)                                                                           \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != WD_OK) goto out;                                                             \
    } while (0)

#endif
