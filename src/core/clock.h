/* Seconds of a clock that only goes forward. */
#ifndef WD_CORE_CLOCK_H
#define WD_CORE_CLOCK_H

#include <time.h>

static inline double wd_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
