/* Fibers: functions with a stack of their own, of which one runs at a time, until it hands back.
 *
 * On x86-64 a switch is a dozen instructions of our own; elsewhere it is swapcontext, which asks
 * the system each time. The sanitizers are told of each switch.
 */
#ifndef WD_TESTS_STANDIN_FIBER_H
#define WD_TESTS_STANDIN_FIBER_H

#include <stddef.h>

enum { WD_FIBER_STACK = 128 * 1024 };

typedef struct wd_fiber wd_fiber;

/* `count` fibers that are to call fn(argument) when they are first entered; it never returns. Ends
 * the process where there is no memory. */
typedef void wd_fiber_fn(void *argument);
wd_fiber *wd_fibers_open(int count, wd_fiber_fn *fn, void *argument);
void wd_fibers_close(wd_fiber *fibers, int count);

/* Runs fiber number `number` until it leaves. */
void wd_fiber_enter(wd_fiber *fibers, int number);
/* Called by the fiber that runs: wd_fiber_enter returns, and the next one goes on here. */
void wd_fiber_leave(wd_fiber *fibers, int number);

#endif
