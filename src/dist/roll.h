/* The roll call: what ranks tell one another before MPI is entered, so that somebody watches over
 * them while MPI brings them together.
 *
 * By PMIx, which launchers let the ranks of a job find one another by, and Open MPI's MPI_Init
 * itself. A build whose Open MPI has none that others may use has roll_absent.c. */
#ifndef WD_DIST_ROLL_H
#define WD_DIST_ROLL_H

#include <stddef.h>

#include "core/error.h"

/* A rank and its job, as MPI will number them. */
typedef struct wd_roll {
    int rank, ranks; /* ranks 0: nothing can be told */
    int host_ranks;  /* on this machine */
} wd_roll;

/* Who this rank is. All ranks that a launcher has started call it, before MPI_Init, and once: from
 * the second time on nothing can be told. */
wd_roll wd_roll_open(void);

/* What each rank has to say, to all: `all` is [ranks, bytes], of which the own record is filled in.
 * All ranks call it; the sentry goes once this one is on its way to the others. A rank that does
 * not come ends the job (dist/fuse.h): after some seconds if it is of this machine, else when the
 * start of all machines takes too long. */
wd_status wd_roll_tell(const wd_roll *roll, void *all, size_t bytes, wd_err *err);

/* After MPI_Init, for it goes on with what was opened; or where it has failed. */
void wd_roll_close(const wd_roll *roll);

#endif
