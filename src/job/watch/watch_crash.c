/* See job/watch/watch_crash.h. */
#include "job/watch/watch_crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { TURN_MS = 10, TURNS_MAX = 400 }; /* longer than a report may take */

static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGXFSZ};
enum { FATAL = sizeof fatal / sizeof *fatal };

#ifdef WD_SANITIZE
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

static atomic_int crashed, is_reported, wake_fd = -1; /* crashed: the signal, or 0 */
static bool is_handled[FATAL];

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000 * 1000}, NULL);
}

static void on_crash(int number)
{
    const uint64_t one = 1;
    int none = 0;
    atomic_compare_exchange_strong(&crashed, &none, number);
    const ssize_t written = write(atomic_load(&wake_fd), &one, sizeof one);
    (void)written;
    for (int i = 0; i < TURNS_MAX && !atomic_load(&is_reported); i++) nap();
    signal(number, SIG_DFL);
    raise(number); /* it is blocked until this handler returns */
}

void wd_watch_crash_install(int wake)
{
    struct sigaction now, action = {.sa_handler = on_crash};
    sigfillset(&action.sa_mask);
    atomic_store(&wake_fd, wake);
    for (int i = 0; i < FATAL; i++) {
        is_handled[i] = !sigaction(fatal[i], NULL, &now) && now.sa_handler != SIG_IGN &&
                        (!sanitized || now.sa_handler == SIG_DFL);
        if (is_handled[i]) sigaction(fatal[i], &action, NULL);
    }
}

void wd_watch_crash_uninstall(void)
{
    for (int i = 0; i < FATAL; i++)
        if (is_handled[i]) signal(fatal[i], SIG_DFL);
    atomic_store(&wake_fd, -1);
}

int wd_watch_crash_signal(void)
{
    return atomic_load(&crashed);
}

void wd_watch_crash_finish(void)
{
    if (!atomic_load(&crashed)) return;
    atomic_store(&is_reported, 1);
    for (int i = 0; i < TURNS_MAX; i++) nap();
}
