/* The ranks of a run: finds from options and environment which ranks there are, and opens their
 * communicator and their watch. */
#ifndef WD_API_SETUP_RANKS_H
#define WD_API_SETUP_RANKS_H

#include "dev/peers.h"
#include "job/watch/watch.h"
#include "train/loop/devices.h"
#include "wandistiller.h"

/* ---- the ranks' GPUs ----
 *
 * The GPUs of a job: that they are of one kind, and whether those of different ranks exchange
 * gradients directly. */

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

/* The number of ranks that each machine shall have by --nproc_per_node or --multi_gpu; 0: neither
 * option is given. */
wd_status wd_ranks_wanted(int *out, const wd_train_options *options, wd_err *err);

/* Opens the communicator of all ranks that a launcher has started and that can connect, and their
 * watch; otherwise a communicator of one rank, without a watch. It does not depend on the options,
 * so that an error in them is reported once. All ranks call it. From then on only rank 0 logs
 * messages that are no warnings (core/log.h). */
wd_status wd_ranks_open(wd_comm **comm, wd_watch **watch, wd_err *err);

/* Refuses options that do not agree with the launcher; the error has the command to run instead. If
 * ranks cannot connect, only the first one has a message. */
wd_status wd_ranks_check(const wd_comm *comm, const wd_train_options *options, wd_err *err);
void wd_ranks_close(wd_comm *comm); /* collective; NULL is allowed */

/* The number of threads of a process without ranks: `wanted`, or, if that is 0 and OMP_NUM_THREADS
 * is not set, the number of cores that Slurm has allocated or the quota of a container
 * (core/cgroup.h) pays for; 0: all cores that it may run on. */
int64_t wd_threads_alone(int64_t wanted);

/* The number of threads of a rank: `wanted`, or, if that is 0 and OMP_NUM_THREADS is not set, its
 * share of the cores that the ranks of its machine may use, that a quota pays for, and that Slurm
 * has allocated, at least 1. For a single rank it is wd_threads_alone. All ranks call it. */
int64_t wd_ranks_threads(wd_comm *comm, int64_t wanted);

/* Lets all ranks compute with the best kernels that each of them has, so that they get the same
 * bits. Is called before the first device is opened. WD_UNSUPPORTED, WD_INVALID_ARGUMENT: there is
 * no such instruction set as WD_CPU_ISA names. All ranks call it. */
wd_status wd_ranks_kernels(wd_comm *comm, wd_err *err);

#endif
