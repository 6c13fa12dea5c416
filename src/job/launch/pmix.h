/* Messages between ranks before MPI_Init, by PMIx.
 *
 * Launchers (mpirun, srun) offer PMIx to the ranks of a job, and MPI_Init itself finds the other
 * ranks by it. By means of it the ranks' watches (job/watch/watch.h) are connected before MPI_Init,
 * so that a rank which is killed, stopped or hangs while MPI brings the ranks together is noticed
 * and named like at any later time. A build whose Open MPI has no PMIx that programs may use has
 * pmix_absent.c instead. */
#ifndef WD_JOB_LAUNCH_PMIX_H
#define WD_JOB_LAUNCH_PMIX_H

#include <stddef.h>

#include "core/error.h"
#include "job/watch/deadline.h"

/* A rank and its job, numbered as MPI will number them. */
typedef struct wd_pmix {
    int rank, ranks; /* ranks 0: there is no PMIx, and nothing can be exchanged */
    int host_ranks;  /* ranks on this machine */
} wd_pmix;

/* All ranks that a launcher has started call it, before MPI_Init, and once: from the second call
 * on `ranks` is 0. */
wd_pmix wd_pmix_open(void);

/* Gives every rank the records of all: `all` is [ranks, bytes], of which the caller has filled in
 * its own record. All ranks call it. It waits for the others without end. The deadline, which ends
 * the job for that, gets a phase for the ranks of this machine, and one for all machines. */
wd_status wd_pmix_exchange(const wd_pmix *pmix, void *all, size_t bytes, wd_deadline *deadline,
                           wd_err *err);

/* Is called after MPI_Init, which goes on with the open PMIx, or after it has failed. */
void wd_pmix_close(const wd_pmix *pmix);

#endif
