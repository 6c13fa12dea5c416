/* Connects the ranks' watches: every rank listens on a port, and connects to the ranks of lower
 * numbers. Both sides prove that they know the job's secret (job/watch/watch_handshake.h), so that
 * other programs that connect to the port are rejected; the port is closed once all ranks are
 * connected.
 */
#ifndef WD_JOB_WATCH_WATCH_CONNECT_H
#define WD_JOB_WATCH_WATCH_CONNECT_H

#include "job/watch/watch.h"

typedef struct wd_connect wd_connect;

/* Begins to listen; *mine is the address that the caller gives the other ranks. `one_machine`: all
 * ranks are on this machine, and only its processes can connect. */
wd_status wd__connect_listen(wd_connect **out, int rank, int ranks, bool one_machine,
                             wd_watch_address *mine, wd_err *err);

/* Sets the addresses of all ranks, `all`: [ranks], borrowed. */
void wd__connect_begin(wd_connect *connect, const wd_watch_address *all);

/* Goes on with all connections that are being made, without waiting. Returns a rank that is
 * connected now, with its socket in *fd, which the caller owns; -1: no further one. */
int wd__connect_step(wd_connect *connect, int *fd, double now_s);

void wd__connect_close(wd_connect *connect); /* NULL is allowed */

#endif
