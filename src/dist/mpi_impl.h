/* What a test may set of the ranks that MPI starts. */
#ifndef WD_DIST_MPI_IMPL_H
#define WD_DIST_MPI_IMPL_H

#include <stddef.h>

/* The most bytes that go as so many single ones, INT_MAX: what is larger is put together of units
 * of this size. All ranks have the same. */
extern size_t wd_comm_mpi_count_max;

#endif
