/* Time on simulated devices: see dev/sim/pace.h. */
#include "dev/sim/pace.h"

#include <errno.h>
#include <math.h>
#include <time.h>

/* What the machine may be late by, when it is busy with other things, without slowing down what it
 * simulates. */
static const double LATE_MAX_S = 5e-3;

double (*wd_sim_clock_s)(void) = wd_clock_s;

double wd_sim_begin_s(double ready_s)
{
    return fmax(ready_s, wd_sim_clock_s() - LATE_MAX_S);
}

double wd_sim_finish_s(double from_s, double begun_s, double over_s)
{
    double now_s = wd_sim_clock_s(), worked_s = now_s - begun_s;
    over_s = fmax(over_s, from_s + worked_s);
    if (over_s <= now_s) return over_s;
    double whole = floor(over_s);
    const struct timespec until = {.tv_sec = (time_t)whole,
                                   .tv_nsec = (long)((over_s - whole) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
    return over_s;
}

double wd_sim_pace_take(wd_sim_pace *pace, double from_s, double units)
{
    if (pace->per_s == 0) return from_s;
    pthread_mutex_lock(&pace->lock);
    double done_s = fmax(from_s, pace->free_s) + units / pace->per_s;
    pace->free_s = done_s;
    pthread_mutex_unlock(&pace->lock);
    return done_s;
}
