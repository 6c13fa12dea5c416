/* Parts of job/comm/mpi.c that a test may change. */
#ifndef WD_JOB_COMM_MPI_IMPL_H
#define WD_JOB_COMM_MPI_IMPL_H

#include <stddef.h>

/* The largest message that is sent as single bytes, INT_MAX bytes by default: a larger one is
 * composed of units of this size. It must be the same on all ranks. */
extern size_t wd_comm_mpi_count_max;

#endif
