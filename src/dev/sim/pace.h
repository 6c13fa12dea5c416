/* Time on simulated devices. Private to src/dev/sim.
 *
 * Times are seconds of the monotonic clock. What takes time is first computed with (when did this
 * begin, when is it over), then slept for; so a sleep that lasts too long is not added up: the next
 * piece of work counts from when the last one was over, not from when somebody noticed. */
#ifndef WD_DEV_SIM_PACE_H
#define WD_DEV_SIM_PACE_H

#include <pthread.h>

#include "core/clock.h"

/* What time it is: wd_clock_s, or a test's own. Where that is long past nothing sleeps, so that all
 * takes what is computed, whatever else the machine does. */
extern double (*wd_sim_clock_s)(void);

/* When work begins that could begin at `ready_s`: then, if that was a moment ago, else now. */
double wd_sim_begin_s(double ready_s);

/* What was begun is over then. */
void wd_sim_sleep_until(double over_s);

/* Something that gets through so many units per second, whoever uses it: a link, a processor. */
typedef struct wd_sim_pace {
    pthread_mutex_t lock;
    double per_s;  /* 0: any number */
    double free_s; /* when it has done what it was given */
} wd_sim_pace;

/* Gives it `units` of work at `from_s`; returns when it is done with them. */
double wd_sim_pace_take(wd_sim_pace *pace, double from_s, double units);

#endif
