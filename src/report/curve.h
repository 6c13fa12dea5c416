/* The values of one figure over the steps of a run, in bounded memory.
 *
 * A curve has at most WD_CURVE_BINS bins of consecutive values. When all bins are full, each two
 * neighbours become one, so a bin holds twice as many values from then on. A bin keeps the lowest
 * and the highest value, so no outlier is lost; a curve of few values is exact. */
#ifndef WD_REPORT_CURVE_H
#define WD_REPORT_CURVE_H

#include <stdint.h>

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

#endif
