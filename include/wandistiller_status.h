/* WanDistiller: status and error, and how a job and its program talk while the job runs: log,
 * progress, pictures, the request to stop, mapped files. It is a part of the public interface, and
 * wandistiller.h includes it. Every part of the library uses it, so options and jobs are not
 * declared here: a new option would change a header of every source. */
#ifndef WANDISTILLER_STATUS_H
#define WANDISTILLER_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the functions that the shared library exports; it has no other symbols for programs. */
#ifdef __GNUC__
#define WD_API __attribute__((visibility("default")))
#else
#define WD_API
#endif

/* Every status that a call can return: its name, the exit code of the command line, its text. */
#define WD_STATUS_MAP(X)                                                                           \
    X(OK, 0, "success")                                                                            \
    X(INVALID_ARGUMENT, 2, "an option or argument is not usable")                                  \
    X(NOT_FOUND, 3, "a file, folder, tensor or component is missing")                              \
    X(BAD_FORMAT, 4, "a file is damaged or not of the format it claims")                           \
    X(MISMATCH, 5, "two things that must agree do not")                                            \
    X(UNSUPPORTED, 6, "well formed, but not something this program can do")                        \
    X(IO, 7, "reading or writing failed")                                                          \
    X(OUT_OF_MEMORY, 8, "an allocation failed")                                                    \
    X(DOES_NOT_FIT, 9, "the plan needs more memory, or disk space, than there is")                 \
    X(NOT_FINITE, 10, "training diverged, or a model computes values that are not finite")         \
    X(INTERRUPTED, 11, "stopped on request before it was done")                                    \
    X(INTERNAL, 12, "a bug in this library")                                                       \
    X(RANK_LOST, 13, "a rank of the job is gone, or does not answer")                              \
    X(DEVICE_FAULT, 14, "a device failed while it was computing")

typedef enum wd_status {
#define WD_STATUS_LINE_(name, code, text) WD_##name = code,
    WD_STATUS_MAP(WD_STATUS_LINE_)
#undef WD_STATUS_LINE_
} wd_status;

/* An error. A call that fails fills it; a call that succeeds leaves it unchanged. */
typedef struct wd_err {
    wd_status status;
    int failed_rank;    /* 1 + the rank that failed, where another rank did; 0: this rank failed */
    char message[2048]; /* names the object, what was expected, what was found, what to do */
} wd_err;

/* The text of a status ("a file, folder, ... is missing"), never NULL. */
WD_API const char *wd_status_text(wd_status status);

typedef enum wd_log_level { WD_LOG_ERROR, WD_LOG_WARNING, WD_LOG_INFO, WD_LOG_DEBUG } wd_log_level;

/* Receives every message of the library, without a newline at its end. It may be called from any
 * thread, but never by two threads at once. */
typedef void wd_log_fn(void *context, wd_log_level level, const char *message);

/* Sends messages of `level` and of more severe levels to `fn`. NULL, the default: to nobody. */
WD_API void wd_log_to(wd_log_fn *fn, void *context, wd_log_level level);

/* Which part of its work the running job is doing, and how much of that part is done. */
typedef struct wd_progress {
    const char *what;        /* "training", "encoding prompts": lives until the function returns */
    const char *unit;        /* the unit of done and total: "step", "prompt" */
    int64_t done, total;     /* total 0: a time limit sets the end, or the end is not known */
    double seconds;          /* since this part of the job began */
    double rate;             /* units per second; NaN: not known yet */
    double seconds_left;     /* NaN: not known yet */
    double loss;             /* of the last step of training; NaN elsewhere */
    double validation_error; /* of the last validation of training; NaN: there was none */
    uint64_t reserved[7];
} wd_progress;

/* Receives progress after each step, prompt, picture and so on, and with done == total once a part
 * is complete. It is called by the thread that runs the job; of several ranks only rank 0 calls. */
typedef void wd_progress_fn(void *context, const wd_progress *progress);

/* Sends progress to `fn`. NULL, the default: progress is written to the log, as lines of
 * WD_LOG_INFO that become rarer the longer a part lasts. */
WD_API void wd_progress_to(wd_progress_fn *fn, void *context);

/* A picture that `sample`, `eval` or a sample sheet of `train` has drawn and written. */
typedef struct wd_picture {
    const char *path;   /* its PNG file */
    const uint8_t *rgb; /* [height, width, 3] from the top; lives until the function returns */
    int64_t height, width;
    uint64_t reserved[4];
} wd_picture;

/* Receives every picture once its file is written, on the same thread as a wd_progress_fn. */
typedef void wd_picture_fn(void *context, const wd_picture *picture);
WD_API void wd_pictures_to(wd_picture_fn *fn, void *context); /* NULL, the default: to nobody */

/* Asks the running job to stop soon, as Ctrl-C does. Training then writes its checkpoint and its
 * student, if it has taken a step, and succeeds; other jobs end with WD_INTERRUPTED. The function
 * may be called from a signal handler and from any thread. A job that starts forgets an earlier
 * request, except that the first job of a process obeys a request that came before it started.
 * Returns whether the caller should tell the user. It should not where a stop was already
 * requested, nor in one of several ranks: mpirun sends the signal to all of them, also when one of
 * them has failed. */
WD_API bool wd_request_stop(void);

/* Whether the running job has files that only it can remove: weights that it has merged with LoRAs
 * lie in a temporary folder until it ends. A program that lets signals end a job at once should
 * call wd_request_stop instead while this is true. The function may be called from a signal
 * handler. */
WD_API bool wd_stop_cleans_up(void);
WD_API bool wd_stop_requested(void);

/* For a handler of SIGBUS, the signal that is raised where a mapped model file is cut short while
 * it is in use, or cannot be read from its disk. Returns whether `address` (si_addr) lies in a file
 * that a job has mapped, and if so writes its path into `out`, cut to `out_bytes` (at least 1). The
 * function may be called from a signal handler and from any thread. */
WD_API bool wd_mapped_file_at(char *out, size_t out_bytes, const void *address);

#ifdef __cplusplus
}
#endif
#endif
