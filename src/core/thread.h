/* Threads and conditions as this program has them. */
#ifndef WD_CORE_THREAD_H
#define WD_CORE_THREAD_H

#include <pthread.h>

/* Starts a thread that watches: it gets no signals, which are for the others, and goes on while
 * they are handled. Not for one that works: it would not get those of a crash of its own either,
 * which nobody would tell of then (dist/watch_crash.h). 0, or an error number. */
int wd_thread_start(pthread_t *out, void *(*run)(void *context), void *context);

/* A condition whose times are those of core/clock.h. */
void wd_cond_init(pthread_cond_t *out);

#endif
