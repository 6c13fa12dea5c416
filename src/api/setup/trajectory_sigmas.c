/* See api/setup/trajectory_sigmas.h. */
#include "api/setup/trajectory_sigmas.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "model/sampling/schedule.h"

static const double timesteps = 1000; /* of a sigma of 1 */
static const double tolerance = 2e-3; /* schedulers round timesteps to whole ones: 1e-3 */
static const double shift_min = 0.01, shift_max = 1000; /* those of --flow_shift */

static wd_status refuse(const char *text, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--trajectory_sigmas: expected up to %d noise levels that fall from 1 and end "
                   "above 0, or timesteps from 1000, such as 1,0.9375,0.8333,0.625; found %.60s",
                   WD_TRAJECTORY_SIGMAS_MAX, text);
}

wd_status wd__trajectory_sigmas_parse(float *sigma, int64_t *count, const char *text, wd_err *err)
{
    const char *at = text;
    double unit = 1;
    float before = INFINITY;
    int64_t n = 0;
    for (;; at++) {
        char *end;
        const double value = strtod(at, &end);
        if (n == 0 && value == timesteps) unit = timesteps;
        const float level = (float)(value / unit);
        if (end == at || n == WD_TRAJECTORY_SIGMAS_MAX || !(level > 0 && level < before) ||
            (n == 0 && level != 1))
            return refuse(text, err);
        sigma[n++] = before = level;
        at = end;
        if (!*at) break;
        if (*at != ',') return refuse(text, err);
    }
    *count = n;
    return WD_OK;
}

wd_status wd__trajectory_sigmas_shift(double *flow_shift, const float *sigma, int64_t count,
                                      int64_t chords, wd_err *err)
{
    const int64_t length = count / chords;
    double shift = *flow_shift;
    for (int64_t n = 1; n < chords; n++) {
        const double u = 1 - (double)n / (double)chords, s = (double)sigma[n * length];
        if (isnan(shift)) shift = s * (1 - u) / (u * (1 - s)); /* wd_flow_shift, solved for it */
        if (!(shift >= shift_min && shift <= shift_max))
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--trajectory_sigmas: chord %" PRId64 " of %" PRId64
                           " (--student_steps, or --chords) begins at %g, which is a flow shift of "
                           "%g: expected %g to %g. Are all of them noise levels, or all timesteps?",
                           n + 1, chords, s, shift, shift_min, shift_max);
        if (!(fabs(wd_flow_shift(u, shift) - s) <= tolerance))
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--trajectory_sigmas: chord %" PRId64 " of %" PRId64
                           " (--student_steps, or --chords) begins at %g, and a scheduler with "
                           "flow shift %g makes it at %g: no sampler would draw with this student. "
                           "Give levels of one flow shift, or fewer --student_steps or --chords",
                           n + 1, chords, s, shift, wd_flow_shift(u, shift));
    }
    *flow_shift = shift;
    return WD_OK;
}
