/* Reads metrics.jsonl, as a run has written it so far, into curves.
 *
 * The file may be anybody's: a line that is no JSON object, has no step, has a step below that of
 * an earlier line, or a figure of another type is skipped and counted. Figures that are not known
 * are ignored. Reading goes on where it ended, so a page about a run under way costs what is new.
 */
#ifndef WD_REPORT_METRICS_FILE_H
#define WD_REPORT_METRICS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

/* ---- curves ----
 *
 * The values of one figure over the steps of a run, in bounded memory.
 *
 * A curve has at most WD_CURVE_BINS bins of consecutive values. When all bins are full, each two
 * neighbours become one, so a bin holds twice as many values from then on. A bin keeps the lowest
 * and the highest value, so no outlier is lost; a curve of few values is exact. */

enum { WD_CURVE_BINS = 256 };

typedef struct wd_curve_bin {
    double first, last; /* steps */
    double low, high;   /* values */
    double sum, steps;  /* of all values, and of their steps */
    int64_t count;      /* of values */
} wd_curve_bin;

/* Zeroed: empty. */
typedef struct wd_curve {
    wd_curve_bin bin[WD_CURVE_BINS];
    int count;       /* of bins */
    int64_t per_bin; /* values of a full bin; 0: no value yet */
    double newest;   /* the value that was added last */
} wd_curve;

/* Adds a finite value. `step` is not below that of the value before. */
void wd__curve_add(wd_curve *curve, double step, double value);

/* The mean of a bin's values, and of its steps. */
double wd__curve_bin_mean(const wd_curve_bin *bin);
double wd__curve_bin_step(const wd_curve_bin *bin);

/* The values over all bins. Where there is none, *low is above *high. */
void wd__curve_range(double *low, double *high, const wd_curve *curve);

typedef enum wd_figure {
    WD_FIGURE_LOSS,
    WD_FIGURE_GRAD_NORM,
    WD_FIGURE_LR,
    WD_FIGURE_STEPS_PER_S,
    WD_FIGURE_MEMORY, /* bytes of host memory */
    WD_FIGURE_VALIDATION,
    WD_FIGURE_COUNT
} wd_figure;

enum {
    WD_LEVELS_MAX = 16,
    WD_LAST_LOSSES = 100,
    WD_REPORT_DEVICES_MAX = 16, /* of a process; a row with more is wrong */
    WD_REPORT_DEVICE_NAME = 32  /* bytes, with the 0; a row with a longer name is wrong */
};

/* The validation error at one noise level. */
typedef struct wd_level_curve {
    double sigma;
    wd_curve curve;
} wd_level_curve;

/* The most bytes that a device has held until a step. */
typedef struct wd_device_memory {
    char name[WD_REPORT_DEVICE_NAME];
    double bytes;
} wd_device_memory;

typedef struct wd_metrics_file {
    wd_curve figure[WD_FIGURE_COUNT];
    wd_level_curve *level[WD_LEVELS_MAX]; /* [levels] */
    int levels;
    bool more_levels; /* there are some that have no curve */
    int64_t rows;     /* lines that were used */
    int64_t wrong;    /* lines that were skipped */
    int64_t dropped;  /* steps that changed no weight: their loss or gradients are null */
    double step;      /* of the last row; and from the last row that has them: */
    double samples, targets, seconds;
    double loss[WD_LAST_LOSSES]; /* the last ones, by number modulo WD_LAST_LOSSES */
    int64_t losses;
    double best_validation, best_step;              /* the lowest error, and its step */
    wd_device_memory device[WD_REPORT_DEVICES_MAX]; /* [devices], of the last step's row */
    int devices;
    /* where the next read begins, and in which file */
    int64_t offset;
    uint64_t disk, inode;
    bool skips; /* inside a line that is too long */
} wd_metrics_file;

/* The caller closes *out. */
wd_status wd__metrics_file_open(wd_metrics_file **out, wd_err *err);
void wd__metrics_file_close(wd_metrics_file *file); /* NULL is allowed */

/* Reads the whole lines that the file has beyond those that were read. If it is another file, or
 * was cut, it is read anew. WD_NOT_FOUND: there is none. Links are not followed. */
wd_status wd__metrics_file_read(wd_metrics_file *file, const char *path, wd_err *err);

/* The mean of the last losses; NaN: there is none. */
double wd__metrics_file_loss(const wd_metrics_file *file);

#endif
