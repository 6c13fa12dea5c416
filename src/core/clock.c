/* Measuring rates: see core/clock.h. */
#include "core/clock.h"

#include <math.h>

enum { SAMPLES = 5 }; /* the first one of a size may have things to make or to find */

/* Several slices of a scheduler: threads that wait for one another take one or two where other
 * programs are at work, however little the threads have to do. */
static const double LONG_ENOUGH_S = 0.05;

wd_status wd_rate_measure(double *per_s, wd_rate_sample_fn *sample, void *context, int64_t from,
                          int64_t most, wd_err *err)
{
    for (int64_t size = from < most ? from : most;; size = 2 * size < most ? 2 * size : most) {
        double fastest = INFINITY;
        for (int i = 0; i < SAMPLES; i++) {
            double seconds;
            WD_TRY(sample(&seconds, context, size, err));
            fastest = fmin(fastest, seconds);
            if (size < most && fastest <= LONG_ENOUGH_S) break;
        }
        *per_s = (double)size / fastest;
        if (size == most || fastest > LONG_ENOUGH_S) return WD_OK;
    }
}
