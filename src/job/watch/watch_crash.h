/* Handlers for signals that end a process, such as SIGSEGV: the thread that got the signal waits
 * for a moment, in which the watch's thread reports it; then the signal ends the process as it
 * would have without a handler. If the report fails, the other ranks see that the process is gone.
 */
#ifndef WD_JOB_WATCH_WATCH_CRASH_H
#define WD_JOB_WATCH_WATCH_CRASH_H

/* Installs the handlers, which write to the eventfd `wake`. They replace those of MPI, which print
 * a backtrace, but not those of a sanitizer. A process can have one watch with handlers. */
void wd_watch_crash_install(int wake);

/* Restores the default actions. */
void wd_watch_crash_uninstall(void);

/* The signal that this process got; 0: none. */
int wd_watch_crash_signal(void);

/* The signal was reported: lets it end the process. Returns if there was no signal. */
void wd_watch_crash_finish(void);

#endif
