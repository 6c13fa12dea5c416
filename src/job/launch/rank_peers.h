/* The ranks' devices as peers (dev/peers.h): whether they can be, and who makes the key.
 *
 * Every rank tells the others what its device offers; all come to the same answer. The key goes by
 * the communicator, as all that is not gradients. */
#ifndef WD_JOB_LAUNCH_RANK_PEERS_H
#define WD_JOB_LAUNCH_RANK_PEERS_H

#include "dev/peers.h"
#include "job/comm/comm.h"
#include "job/watch/watch.h"

enum { WD_RANK_PEERS_TEXT = 512 };

/* comm->peers = this rank's, or NULL on all ranks: then `why` says what is in the way, or is ""
 * where no rank has a device that could be one. All ranks call it, when their devices are open and
 * before memory is planned. `watch` (NULL: none) ends the job when the peers fail later, or when
 * connecting them takes longer than `limit_s` seconds (0: as long as ranks of several machines may
 * take to start, wd_launch_limit_s: NCCL loads its kernels, too). Without a watch a call of NCCL's
 * that hangs ends this process. WD_DEVICE_FAULT: peers could not be opened; other ranks may have
 * theirs, or wait for this one, so the job is to end. */
wd_status wd_rank_peers_open(wd_comm *comm, char why[WD_RANK_PEERS_TEXT], wd_device *device,
                             wd_watch *watch, double limit_s, wd_err *err);

/* All ranks call it, before their devices are closed. Where there are no peers it does nothing. */
void wd_rank_peers_close(wd_comm *comm);

#endif
