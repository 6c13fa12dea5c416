/* Which process a rank is, for who may have to kill it.
 *
 * A process id says little: the hosts of a job may look alike (copies of one virtual machine have
 * even their boot's id in common), and ids are used again. So a rank has an empty memory file with
 * a random name, and its process is the one that has this file open where the rank said. */
#ifndef WD_DIST_WATCH_LIFE_H
#define WD_DIST_WATCH_LIFE_H

#include <stdint.h>

#include "core/error.h"

typedef struct wd_watch_life {
    int32_t pid, fd;
    char name[33];
} wd_watch_life;

/* Of this process, until it is closed. */
wd_status wd_watch_life_open(wd_watch_life *out, wd_err *err);
void wd_watch_life_close(const wd_watch_life *life);

/* Kills that process, if it is one of this machine. */
void wd_watch_life_end(const wd_watch_life *life);

#endif
