/* Folder core. What everything uses: errors, log, clock, memory, arenas, dtypes, random numbers,
 * threads of a loop.
 *
 * Errors. A function that touches files, devices or other processes returns a wd_status and fills a
 * wd_err. Only WD_REQUIRE ends the process, where it finds a defect of the program itself. */
#ifndef WD_CORE_ERROR_H
#define WD_CORE_ERROR_H

#include "wandistiller_status.h"

/* Fills `err` (may be NULL) with the formatted message, and returns `status`, so that a failure is
 * one line: `return wd_fail(err, WD_IO, "%s: cannot be read: %s", path, strerror(errno));` */
wd_status wd_fail(wd_err *err, wd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Like wd_fail, for the failure of rank `rank`, which the job's report will name. */
wd_status wd_fail_of(wd_err *err, int rank, wd_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " in front of the message that is already in `err`; returns err->status. */
wd_status wd_fail_in(wd_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* From now on wd_fail calls `fn` for every WD_OUT_OF_MEMORY in this thread. At that time nothing
 * has been freed yet, so `fn` sees the memory as it was when the allocation failed. `fn` must not
 * call functions that can fail so themselves. fn NULL: nothing is called. */
typedef void wd_shortage_fn(void *context);
void wd_on_shortage(wd_shortage_fn *fn, void *context);

/* Hands a failure on to the caller, when there is nothing to clean up. */
#define WD_TRY(call)                                                                               \
    do {                                                                                           \
        wd_status wd_try_status_ = (call);                                                         \
        if (wd_try_status_ != WD_OK) return wd_try_status_;                                        \
    } while (0)

/* Like WD_TRY, for functions with an `out:` label that cleans up and returns the local variable
 * `status`. */
#define WD_TRY_OUT(call)                                                                           \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != WD_OK) goto out;                                                             \
    } while (0)

/* ---- internal errors ----
 *
 * Checks in every build, release builds included, of counts, sizes and indices that another module
 * computed and on which memory safety depends. Input from outside (files, options, sockets) is
 * never checked with this; a wrong one is reported by a wd_err. Conditions that only a debug build
 * needs to check use assert(). */

/* Ends the process with one line that names the place and the message if `condition` is false. */
#define WD_REQUIRE(condition, ...)                                                                 \
    ((condition) ? (void)0 : wd__require_failed(__FILE__, __LINE__, __VA_ARGS__))

/* Writes "wandistiller: internal error at FILE:LINE: MESSAGE ..." to standard error and aborts. */
__attribute__((noreturn)) void wd__require_failed(const char *file, int line, const char *format,
                                                  ...) __attribute__((format(printf, 3, 4)));

#endif
