/* The GPUs of a job: that they are of one kind, and whether those of different ranks exchange
 * gradients directly. */
#ifndef WD_API_SETUP_RANK_GPUS_H
#define WD_API_SETUP_RANK_GPUS_H

#include "dev/peers.h"
#include "job/watch/watch.h"
#include "train/loop/devices.h"
#include "wandistiller.h"

/* What results depend on (wd_traits' kernels) is compared, of all devices that --devices lists, on
 * all ranks. Where it differs the student depends on which of them computes what: WD_MISMATCH with
 * --deterministic_reduce, which promises that it does not; else the first rank logs a warning. All
 * ranks call it. */
wd_status wd_rank_gpus_compare(const wd_devices *devices, wd_comm *comm,
                               const wd_train_options *options, wd_err *err);

/* Makes the students' devices peers (comm->peers), so that gradients go from GPU to GPU; or leaves
 * them to go by way of host memory, since --nccl says so, or, which the first rank logs, since the
 * devices cannot. With --nccl on that is WD_UNSUPPORTED. When the peers fail, `watch` ends the job.
 * All ranks call it, before memory is planned; wd_rank_peers_close is its end. */
wd_status wd_rank_gpus_open(const wd_devices *devices, wd_comm *comm, wd_watch *watch,
                            const wd_train_options *options, wd_err *err);

/* The same for a plan of ranks that are not there: each is taken to have a GPU of its own. The pool
 * of the first device has less by the memory that NCCL took in the last job of so many ranks and
 * hosts with such GPUs; if none is known, a warning says that it is not counted. The caller closes
 * comm->peers. */
wd_status wd_rank_gpus_open_planned(const wd_devices *devices, wd_comm *comm,
                                    const wd_train_options *options, wd_err *err);

#endif
