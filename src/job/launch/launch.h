/* Folder job/launch. The start of a job: what the launcher says, addresses, devices of neighbours.
 *
 * Finds out from the environment, before MPI_Init, which launcher has started this process and as
 * how many ranks; and starts this program as several ranks by mpirun. */
#ifndef WD_JOB_LAUNCH_LAUNCH_H
#define WD_JOB_LAUNCH_LAUNCH_H

#include <stdbool.h>

#include "core/error.h"

typedef enum wd_launcher {
    WD_LAUNCHER_NONE,
    WD_LAUNCHER_MPIRUN,  /* Open MPI's */
    WD_LAUNCHER_SRUN,    /* Slurm's, with PMIx, by which MPI finds the other ranks */
    WD_LAUNCHER_BARE,    /* srun without PMIx, or another MPI's mpirun: ranks cannot connect */
    WD_LAUNCHER_TORCHRUN /* or torch.distributed.launch */
} wd_launcher;

typedef struct wd_launch {
    wd_launcher launcher;
    const char *name; /* "mpirun" */
    int rank, ranks;
    int host_ranks; /* ranks on this machine; 0: the environment does not say it */
} wd_launch;

wd_launch wd_launch_detect(void);

/* The cores that Slurm gives each of so many ranks of this machine: the value of srun's option
 * --cpus-per-task, or else a share of the cores that are allocated; 0: Slurm does not say it. */
int wd_launch_cores(int host_ranks);

/* Checks that the launcher has started the ranks that the user wants. `wanted`: the user asked for
 * ranks (--distributed); `host_ranks`: the number on each machine (0: any); `command`: the user's
 * command line without these options, from which errors make the right one. WD_INVALID_ARGUMENT;
 * WD_UNSUPPORTED where the launcher cannot start ranks. */
wd_status wd_launch_check(const wd_launch *launch, bool wanted, int host_ranks, const char *command,
                          wd_err *err);

/* Checks that there are as many ranks on this machine as the user wants (0: any). Launchers that do
 * not say it in the environment need this check once the ranks are connected. */
wd_status wd_launch_check_host(const wd_launch *launch, int expected, int found, wd_err *err);

/* How many seconds so many ranks may take to start, and MPI_Init to bring them together. Ranks of
 * one machine are started together. Of several machines one may be slow to load the program. */
double wd_launch_limit_s(int ranks, bool several_machines);

/* Runs this program again as `ranks` ranks of this machine, by mpirun, and returns when they have
 * ended: *exit_code is theirs, 128 and more where a signal ended one. argv[argc] are the program's
 * arguments without its own name. The process must have one thread. SIGTERM, SIGHUP (unless it is
 * ignored) and a first SIGINT ask the ranks to stop (they get SIGUSR1), a later SIGINT ends them;
 * SIGTSTP (Ctrl-Z) pauses the ranks, too. Leaves no files behind. WD_NOT_FOUND: there is no mpirun;
 * WD_RANK_LOST: it was killed; WD_INTERRUPTED: stopped before all ranks had begun; WD_IO: no room
 * for the ranks' shared files, or too few files may be open. */
wd_status wd_launch_run(int *exit_code, int ranks, int argc, char *const *argv, wd_err *err);

#endif
