/* A build without MPI. */
#include "dist/comm.h"

wd_status wd_comm_need_mpi(wd_err *err)
{
    return wd_fail(err, WD_UNSUPPORTED,
                   "this program was built without MPI, so it has no ranks: install libopenmpi-dev "
                   "and openmpi-bin and build it again, or run it without --distributed and "
                   "--nproc_per_node");
}

wd_status wd_comm_open_mpi(wd_comm **out, wd_err *err)
{
    (void)out;
    return wd_comm_need_mpi(err);
}
