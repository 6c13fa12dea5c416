/* Time on simulated devices: see dev/sim/pace.h. */
#include "dev/sim/pace.h"

#include <errno.h>
#include <math.h>
#include <time.h>

/* How late a busy machine may be without slowing down the simulation. */
static const double LATE_MAX_S = 5e-3;

double (*wd_sim_clock_s)(void) = wd_clock_s;

double wd__sim_begin_s(double ready_s)
{
    return fmax(ready_s, wd_sim_clock_s() - LATE_MAX_S);
}

void wd__sim_sleep_until(double over_s)
{
    double whole = floor(over_s);
    const struct timespec until = {.tv_sec = (time_t)whole,
                                   .tv_nsec = (long)((over_s - whole) * 1e9)};
    if (over_s <= wd_clock_s()) return;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

double wd__sim_pace_seconds(double units, double per_s)
{
    return per_s > 0 ? units / per_s : 0;
}

double wd__sim_pace_take(wd_sim_pace *pace, double from_s, double seconds)
{
    if (!(seconds > 0)) return from_s;
    pthread_mutex_lock(&pace->lock);
    double done_s = fmax(from_s, pace->free_s) + seconds;
    pace->free_s = done_s;
    pthread_mutex_unlock(&pace->lock);
    return done_s;
}
