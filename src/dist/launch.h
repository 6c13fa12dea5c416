/* Who started this process, and as how many ranks: what the environment says, before MPI is
 * entered. */
#ifndef WD_DIST_LAUNCH_H
#define WD_DIST_LAUNCH_H

#include "core/error.h"

typedef enum wd_launcher {
    WD_LAUNCHER_NONE,
    WD_LAUNCHER_MPIRUN,  /* Open MPI's */
    WD_LAUNCHER_SRUN,    /* Slurm's, with PMIx, which MPI finds the others by */
    WD_LAUNCHER_BARE,    /* srun without, or another MPI's mpirun: ranks that cannot find another */
    WD_LAUNCHER_TORCHRUN /* or torch.distributed.launch */
} wd_launcher;

typedef struct wd_launch {
    wd_launcher launcher;
    const char *name; /* "mpirun" */
    int rank, ranks;
    int host_ranks; /* on this machine; 0: not said */
} wd_launch;

wd_launch wd_launch_detect(void);

/* Cores that Slurm has for each of so many ranks of this machine: as srun was told
 * (--cpus-per-task), or else a share of those that are allocated on it; 0: it does not say. */
int wd_launch_cores(int host_ranks);

/* Whether that can be the ranks that the user wants: `wanted`: training with ranks was asked for
 * (--distributed); `host_ranks`: so many on each machine (0: not said). `command`: the user's own
 * command line without these options, which errors show with what they should be.
 * WD_INVALID_ARGUMENT, and WD_UNSUPPORTED where no ranks can come of it. */
wd_status wd_launch_check(const wd_launch *launch, bool wanted, int host_ranks, const char *command,
                          wd_err *err);

/* Whether there are as many ranks on this machine as were asked for (0: any): the same for
 * launchers that do not say it in the environment, once the ranks have met. */
wd_status wd_launch_check_host(const wd_launch *launch, int expected, int found, wd_err *err);

/* How many seconds so many ranks may take to start, and MPI_Init to bring them together. Ranks of
 * one machine are started together. Of several machines one may be slow to load the program. */
double wd_launch_limit_s(int ranks, bool several_machines);

/* Runs this program again as `ranks` ranks of this machine, by mpirun, and returns when they have
 * ended: *exit_code is theirs, 128 and more where a signal ended one. SIGTERM, SIGHUP
 * (unless it is ignored) and a first SIGINT ask the ranks to stop (they get SIGUSR1), SIGINT then
 * ends them. argv[argc] are the program's
 * arguments without its own name. The process must have one thread. WD_NOT_FOUND: no mpirun;
 * WD_RANK_LOST: it was killed; WD_INTERRUPTED: asked before all ranks had begun; WD_IO: no room for
 * what ranks share, or too few files may be open. Nothing of it is left behind. SIGTSTP (Ctrl-Z)
 * pauses the ranks, too. */
wd_status wd_launch_run(int *exit_code, int ranks, int argc, char *const *argv, wd_err *err);

#endif
