/* The folder that mpirun and its ranks share on this machine, and the process that looks after it:
 * the keeper.
 *
 * mpirun removes what it puts there at its end, but nobody does where mpirun itself is killed. So
 * the folder is one of our own, and the keeper removes it once the launching process and mpirun
 * have ended, in whatever way. Where the keeper is killed with them, the next one who opens such a
 * folder removes this one: those in use are locked. */
#ifndef WD_DIST_LAUNCH_FOLDER_H
#define WD_DIST_LAUNCH_FOLDER_H

#include <sys/types.h>

#include "core/error.h"

typedef struct wd_launch_folder {
    char path[48];
    int lock;   /* of the folder: who has it open uses the folder */
    int errors; /* the keeper copies what is written here to standard error, for as long as anybody
                 * reads that; mpirun must have it as its own */
    pid_t keeper;
} wd_launch_folder;

/* In /dev/shm, or in /tmp where that has too little room for so many ranks. WD_IO: neither has. */
wd_status wd_launch_folder_open(wd_launch_folder *out, int ranks, wd_err *err);

/* Returns once the folder is gone; mpirun has ended. */
void wd_launch_folder_close(wd_launch_folder *folder);

/* The ranks are to stop as soon as they have begun: what tells those whom no signal reaches yet. */
void wd_launch_folder_stop(const wd_launch_folder *folder);

/* A rank asks: were we told so? The environment has the folder's path, in this variable. */
bool wd_launch_folder_says_stop(void);
extern const char wd_launch_folder_variable[];

#endif
