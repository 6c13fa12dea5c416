/* A fuse: ends the process where something takes too long for which nobody can wait with a limit,
 * such as MPI while it brings the ranks together. */
#ifndef WD_DIST_FUSE_H
#define WD_DIST_FUSE_H

#include <stdbool.h>
#include <sys/types.h>

#include "dist/watch.h"

typedef struct wd_fuse wd_fuse;

/* From now on `what` (borrowed) may take so many seconds; one rank of those on a machine that are
 * children of one process reports it then. */
wd_status wd_fuse_light(wd_fuse **out, int rank, double seconds, const char *what, wd_err *err);

/* Once it burns, the watch says so and ends the whole job. NULL: there is none. */
void wd_fuse_tell(wd_fuse *fuse, wd_watch *watch);

/* The same from now on for something else. */
void wd_fuse_renew(wd_fuse *fuse, double seconds, const char *what);

void wd_fuse_put_out(wd_fuse *fuse); /* NULL is allowed */

/* Whether nobody else of this machine's ranks that `launcher` has started is reporting: from now on
 * this process is, as long as it lives. */
bool wd_fuse_is_first(pid_t launcher);

#endif
