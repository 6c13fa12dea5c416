/* WanDistiller: distils Wan video diffusion transformers into small text-to-image students.
 *
 * The public interface. It declares the vocabulary that every room of the library shares (status,
 * error, log level), one options struct per job with its defaults, and one function per job. It
 * includes nothing of the library, and shows no model constant.
 *
 * Ownership: options are plain values; the strings in them are borrowed and must live until the call
 * returns. Threads: one job at a time per process, unless a function says otherwise.
 */
#ifndef WANDISTILLER_H
#define WANDISTILLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every way in which a call can end: name, exit code of the command line, what it means. */
#define WD_STATUS_MAP(X)                                                        \
    X(OK, 0, "success")                                                         \
    X(INVALID_ARGUMENT, 2, "an option or argument is not usable")               \
    X(NOT_FOUND, 3, "a file, folder, tensor or component is missing")           \
    X(BAD_FORMAT, 4, "a file is damaged or not of the format it claims")        \
    X(MISMATCH, 5, "two things that must agree do not")                         \
    X(UNSUPPORTED, 6, "well formed, but not something this program can do")     \
    X(IO, 7, "reading or writing failed")                                       \
    X(OUT_OF_MEMORY, 8, "an allocation failed")                                 \
    X(DOES_NOT_FIT, 9, "the plan needs more memory than there is")              \
    X(NOT_FINITE, 10, "training diverged: a loss or gradient is not finite")    \
    X(INTERRUPTED, 11, "stopped on request before it was done")                 \
    X(INTERNAL, 12, "a bug in this library")

typedef enum wd_status {
#define X(name, code, text) WD_##name = code,
    WD_STATUS_MAP(X)
#undef X
} wd_status;

/* What went wrong: filled by the call that failed, untouched by one that succeeds. */
typedef struct wd_err {
    wd_status status;
    char message[2048]; /* names the object, what was expected, what was found, what to do */
} wd_err;

/* The text of a status ("a file, folder, ... is missing"), never NULL. */
const char *wd_status_text(wd_status status);

typedef enum wd_log_level { WD_LOG_ERROR, WD_LOG_WARNING, WD_LOG_INFO, WD_LOG_DEBUG } wd_log_level;

/* Receives every message of the library, without a newline at its end. Called from any thread, one
 * call at a time. */
typedef void wd_log_fn(void *context, wd_log_level level, const char *message);

/* Sends messages up to `level` to `fn`; NULL: to nowhere (the default). */
void wd_log_to(wd_log_fn *fn, void *context, wd_log_level level);

#ifdef __cplusplus
}
#endif
#endif
