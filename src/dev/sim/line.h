/* A line: how far the work of one queue has come. Private to src/dev/sim.
 *
 * Work is numbered as it is submitted, from 1, and done in this order; so "the first n are done" is
 * all that an event has to know, and events are a line and a number. The queue, its worker, its
 * events and whoever waits for them hold the line, so that it outlives them all. */
#ifndef WD_DEV_SIM_LINE_H
#define WD_DEV_SIM_LINE_H

#include <pthread.h>

#include "core/error.h"

typedef struct wd_sim_line {
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t moved;
    int64_t submitted, done;
    double clock_s; /* when the last piece of work was over: see dev/sim/pace.h */
    bool closing;
    int holders;
} wd_sim_line;

/* One holder: the caller. */
wd_status wd_sim_line_open(wd_sim_line **out, wd_err *err);
wd_sim_line *wd_sim_line_hold(wd_sim_line *line); /* returns it */
void wd_sim_line_drop(wd_sim_line *line);         /* the last holder frees it; NULL is allowed */

int64_t wd_sim_line_submitted(wd_sim_line *line);
/* Returns when the first `count` are done, with the line's clock. */
double wd_sim_line_wait(wd_sim_line *line, int64_t count);
bool wd_sim_line_is_done(wd_sim_line *line, int64_t count);

#endif
