/* Signals that end a process (SIGSEGV and its like): the thread that got one waits for a moment, in
 * which the watch's thread tells what happened; then the process ends by the signal as it would
 * have. Best effort: where that fails, the others see the process gone. */
#ifndef WD_DIST_WATCH_CRASH_H
#define WD_DIST_WATCH_CRASH_H

/* From now on; `wake`: an eventfd that is written to. What MPI does about these signals (a
 * backtrace) is not done then; what a sanitizer does is left to it. One watch per process. */
void wd_crash_mind(int wake);
void wd_crash_forget(void);

/* The signal that has come; 0: none. */
int wd_crash_signal(void);

/* It has been told: the process ends by it. Returns where there was none. */
void wd_crash_go_on(void);

#endif
