/* A line counts the submitted and the finished work of one queue. Private to src/dev/sim.
 *
 * Work is numbered from 1 when it is submitted, and done in this order. So an event is a line and a
 * number n, and is done when the first n pieces are done. The queue, its worker, its events and
 * those that wait for them each hold a reference, so that the line outlives them all. */
#ifndef WD_DEV_SIM_LINE_H
#define WD_DEV_SIM_LINE_H

#include <pthread.h>

#include "core/error.h"

typedef struct wd_sim_line {
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t moved;
    int64_t submitted, done;
    double clock_s; /* when the last piece of work ended: see dev/sim/pace.h */
    bool closing;
    int holders; /* number of references */
} wd_sim_line;

/* Opens a line with one reference, the caller's. */
wd_status wd__sim_line_open(wd_sim_line **out, wd_err *err);
wd_sim_line *wd__sim_line_hold(wd_sim_line *line); /* returns it */
void wd__sim_line_drop(
    wd_sim_line *line); /* dropping the last reference frees it; NULL is allowed */

int64_t wd__sim_line_submitted(wd_sim_line *line);
/* Waits until the first `count` pieces are done; returns the line's clock. */
double wd__sim_line_wait(wd_sim_line *line, int64_t count);
bool wd__sim_line_is_done(wd_sim_line *line, int64_t count);

#endif
