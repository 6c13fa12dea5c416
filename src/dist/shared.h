/* Host memory that the ranks of one host have together: filled by some, read by all.
 *
 * It has no name: the first rank of a host makes a memory file (memfd_create), and the others open
 * it where /proc shows what that rank has open. So nothing can be left behind, however the job
 * ends, nobody else can open it, and /dev/shm, which containers keep small, does not matter. */
#ifndef WD_DIST_SHARED_H
#define WD_DIST_SHARED_H

#include "dist/comm.h"

typedef struct wd_shared wd_shared;

/* All ranks of the job call it; `bytes` is what the ranks of this host say, all the same. They are
 * zeroed and there: using them cannot fail. An error on one rank is one on all. *out is NULL where
 * `bytes` is 0 and where a host has one rank. `what` names it in errors. */
wd_status wd_shared_open(wd_shared **out, wd_comm *comm, size_t bytes, const char *what,
                         wd_err *err);

/* Where this rank has it; on others it is elsewhere. 4096-byte aligned. NULL for NULL. */
void *wd_shared_data(const wd_shared *shared);

/* All ranks of the job call it, once what they had to write is written: from then on it is there
 * for all, and only to be read. NULL is allowed. */
void wd_shared_seal(wd_shared *shared, wd_comm *comm);

/* For this rank only: the others keep it. NULL is allowed. */
void wd_shared_close(wd_shared *shared);

#endif
