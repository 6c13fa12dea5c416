/* The ranks of a run: finds from options and environment which ranks there are, and opens their
 * communicator and their watch. */
#ifndef WD_API_SETUP_RANKS_H
#define WD_API_SETUP_RANKS_H

#include "job/watch/watch.h"
#include "wandistiller.h"

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
