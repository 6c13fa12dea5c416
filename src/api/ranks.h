/* The ranks of a run: what options and environment say of them, and their communicator. */
#ifndef WD_API_RANKS_H
#define WD_API_RANKS_H

#include "dist/watch.h"

/* How many ranks each machine is to have by --nproc_per_node or --multi_gpu; 0: none says so. */
wd_status wd_ranks_wanted(int *out, const wd_train_options *options, wd_err *err);

/* Opens the communicator of all ranks that were started and can meet, with the watch over them,
 * else a single one without: whatever the options say, so that what is wrong with them is said
 * once. All ranks call it. From then on rank 0 alone logs what is no warning (core/log.h). */
wd_status wd_ranks_open(wd_comm **comm, wd_watch **watch, wd_err *err);

/* What launcher and options do not agree on is refused, with the line to run instead. Of ranks that
 * cannot meet the first one says why: the others' message is empty. */
wd_status wd_ranks_check(const wd_comm *comm, const wd_train_options *options, wd_err *err);
void wd_ranks_close(wd_comm *comm); /* collective; NULL is allowed */

/* Threads of a process by itself: `wanted`, or, where that is 0 and the environment says nothing
 * (OMP_NUM_THREADS), as many as Slurm has allocated cores; 0: all that it may run on. */
int64_t wd_threads_alone(int64_t wanted);

/* The same of a rank: where neither says it, the cores that the ranks of its machine may use and
 * Slurm has for them, divided among them: at least 1, for a single rank as above. All ranks call
 * it. */
int64_t wd_ranks_threads(wd_comm *comm, int64_t wanted);

/* Lets all ranks compute with the best kernels that each of them has, so that they get the same
 * bits. Comes before the first device is opened. WD_UNSUPPORTED, WD_INVALID_ARGUMENT: what
 * WD_CPU_ISA asks for cannot be had. All ranks call it. */
wd_status wd_ranks_kernels(wd_comm *comm, wd_err *err);

#endif
