/* The request to stop: one flag, which a signal handler may set. */
#include <signal.h>
#include <stdatomic.h>

#include "core/stop.h"

/* Lock-free on every machine that this builds for, so a signal handler may store to it. */
static atomic_int requested;

void wd_request_stop(void)
{
    atomic_store(&requested, 1);
}

bool wd_stop_requested(void)
{
    return atomic_load(&requested) != 0;
}

void wd_stop_forget(void)
{
    atomic_store(&requested, 0);
}
