/* Threads and condition variables. */
#ifndef WD_CORE_THREAD_H
#define WD_CORE_THREAD_H

#include <pthread.h>

/* Starts a thread that blocks all signals, so that other threads handle them while it runs. Use it
 * for threads that only watch. A thread that does the work must not block the signals of its own
 * crash, or the crash would not be reported (job/watch/watch_end.h). Its locale is "C". Returns 0
 * or an error number. */
int wd_thread_start(pthread_t *out, void *(*run)(void *context), void *context);

/* Initialises a condition variable whose timeouts are times of core/clock.h. */
void wd_cond_init(pthread_cond_t *out);

#endif
