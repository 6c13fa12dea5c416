/* The folder in which mpirun and its ranks put their shared files on this machine, and the cleanup
 * process that removes it.
 *
 * mpirun removes its files when it ends, but nobody does if mpirun itself is killed. So all of them
 * are put into one folder, which the cleanup process removes once the launching process and mpirun
 * have ended in whatever way. If the cleanup process is killed with them, the next call of
 * wd__launch_folder_open removes the folder: folders in use are locked. */
#ifndef WD_JOB_LAUNCH_LAUNCH_FOLDER_H
#define WD_JOB_LAUNCH_LAUNCH_FOLDER_H

#include <sys/types.h>

#include "core/error.h"

typedef struct wd_launch_folder {
    char path[48];
    int lock;   /* the locked folder: the lock lasts while a process has it open */
    int errors; /* a pipe, mpirun's standard error: the cleanup process copies it to its own */
    pid_t cleanup;
} wd_launch_folder;

/* Makes the folder in /dev/shm, or in /tmp if that has too little room for so many ranks. WD_IO:
 * neither has enough. */
wd_status wd__launch_folder_open(wd_launch_folder *out, int ranks, wd_err *err);

/* Is called once mpirun has ended. Returns when the folder is removed. */
void wd__launch_folder_close(wd_launch_folder *folder);

/* Leaves a request to stop in the folder, for ranks that no signal reaches yet because they have
 * not begun. */
void wd__launch_folder_stop(const wd_launch_folder *folder);

/* Called by a rank: whether there is a request to stop in its job's folder, whose path is in this
 * variable of the environment. */
bool wd_launch_folder_says_stop(void);
extern const char wd_launch_folder_variable[];

#endif
