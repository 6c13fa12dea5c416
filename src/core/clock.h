/* A clock that only goes forward, and rates that are measured with it. */
#ifndef WD_CORE_CLOCK_H
#define WD_CORE_CLOCK_H

#include <time.h>

#include "core/error.h"

/* Seconds since some time in the past. */
static inline double wd_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- rates: how fast something is, on a machine that may do other things meanwhile ---- */

/* Does `size` units of work (FLOPs, rows, bytes); *seconds = how long it took. */
typedef wd_status wd_rate_sample_fn(double *seconds, void *context, int64_t size, wd_err *err);

/* *per_s = units of work per second. Samples begin with `from` units and double until one takes
 * long enough to be trusted, or has `most` units: so a slow device is not kept busy, and a fast one
 * is not misjudged. Other programs may be at work: the fastest of several samples of a size counts,
 * and the size grows until all of them take long. A failed sample ends the measurement. */
wd_status wd_rate_measure(double *per_s, wd_rate_sample_fn *sample, void *context, int64_t from,
                          int64_t most, wd_err *err);

#endif
