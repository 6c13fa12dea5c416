/* Threads: see core/thread.h. */
#include "core/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "core/locale.h"

typedef struct start {
    void *(*run)(void *context);
    void *context;
} start;

static void *run_in_c_locale(void *given)
{
    const start s = *(start *)given;
    WD_C_LOCALE;
    free(given);
    return s.run(s.context);
}

int wd_thread_start(pthread_t *out, void *(*run)(void *context), void *context)
{
    sigset_t all, before;
    start *s = malloc(sizeof *s);
    if (!s) return ENOMEM;
    *s = (start){run, context};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(out, NULL, run_in_c_locale, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) free(s);
    return rc;
}

void wd_cond_init(pthread_cond_t *out)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(out, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
