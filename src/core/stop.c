/* The request to stop: a flag that a signal handler may set. */
#include <signal.h>
#include <stdatomic.h>

#include "core/stop.h"

/* Lock-free on every machine that this builds for, so a signal handler may store to them. */
static atomic_int requested, one_of_many, begun, held;

bool wd_request_stop(void)
{
    return !atomic_exchange(&requested, 1) && !atomic_load(&one_of_many);
}

void wd_stop_hold(int change)
{
    atomic_fetch_add(&held, change);
}

bool wd_stop_cleans_up(void)
{
    return atomic_load(&held) > 0;
}

void wd_stop_as_one_of_many(bool many)
{
    atomic_store(&one_of_many, many);
}

bool wd_stop_requested(void)
{
    return atomic_load(&requested) != 0;
}

void wd_stop_begin(void)
{
    if (atomic_exchange(&begun, 1)) wd__stop_forget();
}

void wd__stop_forget(void)
{
    atomic_store(&requested, 0);
}
