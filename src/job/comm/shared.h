/* Host memory shared by the ranks of one host: some ranks fill it, all read it.
 *
 * It has no name: the first rank of a host makes a memory file (memfd_create), and the others open
 * it at /proc/PID/fd of that rank. So no file is left behind, however the job ends, other users
 * cannot open it, and the size of /dev/shm, which is small in containers, does not matter. */
#ifndef WD_JOB_COMM_SHARED_H
#define WD_JOB_COMM_SHARED_H

#include "job/comm/comm.h"

typedef struct wd_shared wd_shared;

/* All ranks of the job call it; `bytes` is the same on all ranks of a host. The memory is zeroed
 * and all its pages exist, so that using it cannot fail. An error on one rank is returned on all.
 * *out is NULL if `bytes` is 0, and on a host of one rank. `what` names the memory in errors. */
wd_status wd_shared_open(wd_shared **out, wd_comm *comm, size_t bytes, const char *what,
                         wd_err *err);

/* The address of the memory in this rank, which differs from rank to rank. 4096-byte aligned. NULL
 * for NULL. */
void *wd_shared_data(const wd_shared *shared);

/* All ranks of the job call it once they have filled their parts: after it all ranks see all parts,
 * and can only read them. NULL is allowed. */
void wd_shared_seal(wd_shared *shared, wd_comm *comm);

/* Frees it in this rank only: the others keep it. NULL is allowed. */
void wd_shared_close(wd_shared *shared);

#endif
