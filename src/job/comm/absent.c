/* The communicators of a build without MPI: only threads.c and dry.c are there. */
#include "job/comm/comm.h"

wd_status wd_comm_need_mpi(wd_err *err)
{
    return wd_fail(err, WD_UNSUPPORTED, "this program was built without MPI, so it has no ranks");
}

wd_status wd_comm_open_mpi(wd_comm **out, wd_err *err)
{
    (void)out;
    return wd_comm_need_mpi(err);
}
