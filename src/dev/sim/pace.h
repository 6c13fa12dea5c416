/* Time on simulated devices. Private to src/dev/sim.
 *
 * Times are seconds of the monotonic clock. Begin and end of each piece of work are computed, and
 * then the thread sleeps until the end. Sleeps that last too long do not add up, because the next
 * piece of work begins at the computed end of the last one, and not when the sleep returned. */
#ifndef WD_DEV_SIM_PACE_H
#define WD_DEV_SIM_PACE_H

#include <pthread.h>

#include "core/clock.h"

/* The clock: wd_clock_s, or that of a test. If a test's clock is far in the past nothing sleeps, so
 * that all times are the computed ones, however busy the machine is. */
extern double (*wd_sim_clock_s)(void);

/* The time at which work begins that could begin at `ready_s`: ready_s, if that was a moment ago,
 * else now. */
double wd__sim_begin_s(double ready_s);

/* Sleeps until the work is over. */
void wd__sim_sleep_until(double over_s);

/* A shared resource that does one piece of work after another: a link, or a processor. */
typedef struct wd_sim_pace {
    pthread_mutex_t lock;
    double free_s; /* when it has finished all its work */
} wd_sim_pace;

/* The seconds that `units` take at a rate; 0: the rate is not limited. */
double wd__sim_pace_seconds(double units, double per_s);

/* Adds work of `seconds` at `from_s`; returns the time at which it is done. Work of no seconds
 * waits for nothing. */
double wd__sim_pace_take(wd_sim_pace *pace, double from_s, double seconds);

#endif
