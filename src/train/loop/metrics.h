/* What a run says about itself while it runs: metrics.jsonl and TensorBoard events.
 *
 * metrics.jsonl has one JSON object per optimiser step, written line by line; everything before
 * "seconds" is a function of seed and options, what follows are times and memory. Where the student
 * was validated after a step it has validation_error, a number, and validation_error_by_level, an
 * array of {"sigma": number, "error": number}. When a run is resumed, lines past the checkpoint's
 * step are cut off, and TensorBoard is told to forget them. */
#ifndef WD_TRAIN_LOOP_METRICS_H
#define WD_TRAIN_LOOP_METRICS_H

#include "train/output/best.h"

typedef struct wd_metrics wd_metrics;

/* The most bytes that the run has had allocated on a device so far. */
typedef struct wd_device_peak {
    const char *name; /* "cuda:0" */
    size_t bytes;
} wd_device_peak;

typedef struct wd_metrics_row {
    int64_t step;                           /* from 1: steps done */
    double loss, grad_norm, lr;             /* not finite: null in JSON */
    int64_t samples;                        /* that the student has seen so far */
    int64_t targets;                        /* teacher velocities that they are of */
    const char *phase;                      /* the recipe of the phase that the step is of */
    const wd_validation_result *validation; /* after the step; NULL: there was none */
    double seconds;                         /* since the run began, earlier parts included */
    double steps_per_s;
    size_t memory_bytes;          /* of host memory that the process has; 0: not known */
    const wd_device_peak *device; /* [devices], those with memory of their own */
    int devices;
} wd_metrics_row;

/* Appends to <folder>/metrics.jsonl after cutting off rows with step > `resume_step` (0: starts
 * anew), and begins an event file in the same folder. */
wd_status wd__metrics_open(wd_metrics **out, const char *folder, int64_t resume_step, wd_err *err);
void wd__metrics_close(wd_metrics *metrics); /* NULL is allowed */

/* The row as a line, and as scalars of the event file: train/loss, grad_norm, lr, steps_per_s, and
 * of a validation validation/error and validation/sigma_0.9375, one for each noise level. What a
 * failure leaves out is whole lines and whole scalars; the next row may be written. */
wd_status wd__metrics_write(wd_metrics *metrics, const wd_metrics_row *row, wd_err *err);

/* The result of a validation alone, as a line of its own, where the row of its step is written. */
wd_status wd__metrics_write_validation(wd_metrics *metrics, const wd_validation_result *result,
                                       wd_err *err);

/* A sheet of samples, which is the PNG file `path`, as a picture of the event file:
 * samples/sheet. Says once in the log if pictures are too large for it. */
wd_status wd__metrics_sheet(wd_metrics *metrics, const char *path, int64_t step, wd_err *err);

#endif
