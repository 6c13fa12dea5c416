/* The process of a rank, for other ranks of its machine that may have to kill it.
 *
 * A process id alone is not enough: the hosts of a job may look alike (copies of a virtual machine
 * even have the same boot id), and ids are used again. So each rank opens an empty memory file with
 * a random name, and its process is the one that has this file open at this descriptor. */
#ifndef WD_JOB_WATCH_WATCH_PROCESS_H
#define WD_JOB_WATCH_WATCH_PROCESS_H

#include <stdint.h>

#include "core/error.h"

typedef struct wd_watch_process {
    int32_t pid, fd;
    char name[33];
} wd_watch_process;

/* Describes this process; the description is valid until it is closed. */
wd_status wd_watch_process_open(wd_watch_process *out, wd_err *err);
void wd_watch_process_close(const wd_watch_process *process);

/* Kills the described process if it is one of this machine. */
void wd_watch_process_kill(const wd_watch_process *process);

#endif
