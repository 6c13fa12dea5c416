/* What the end of a job needs beforehand: handlers that report a crash, and the process of each
 * rank, which others of its machine may have to kill. The end itself is wd__watch_act
 * (job/watch/watch_impl.h). */
#ifndef WD_JOB_WATCH_WATCH_END_H
#define WD_JOB_WATCH_WATCH_END_H

#include <stdint.h>

#include "core/error.h"

/* ---- crashes ----
 *
 * Handlers for signals that end a process, such as SIGSEGV: the thread that got the signal waits
 * for a moment, in which the watch's thread reports it; then the signal ends the process as it
 * would have without a handler. If the report fails, the other ranks see that the process is gone.
 */

/* Installs the handlers, which write to the eventfd `wake`. They replace those of MPI, which print
 * a backtrace, but not those of a sanitizer. A process can have one watch with handlers. */
void wd__watch_crash_install(int wake);

/* Restores the default actions. */
void wd__watch_crash_uninstall(void);

/* The signal that this process got; 0: none. */
int wd__watch_crash_signal(void);

/* ---- processes of ranks ----
 *
 * A process id alone is not enough: the hosts of a job may look alike (copies of a virtual machine
 * even have the same boot id), and ids are used again. So each rank opens an empty memory file with
 * a random name, and its process is the one that has this file open at this descriptor. */

typedef struct wd_watch_process {
    int32_t pid, fd;
    char name[33];
} wd_watch_process;

/* Describes this process; the description is valid until it is closed. */
wd_status wd__watch_process_open(wd_watch_process *out, wd_err *err);
void wd__watch_process_close(const wd_watch_process *process);

#endif
