/* The cluster of a run (teacher/placement.h): what devices, hosts and the ways between them have,
 * and how fast they are. Stated, known from an earlier run (api/rate_cache.h), or measured. With
 * many ranks all of them get the same cluster: the least memory and the slowest rates of any. */
#ifndef WD_API_TRAIN_CLUSTER_H
#define WD_API_TRAIN_CLUSTER_H

#include "api/train_plan.h"

/* The ranks of a run: described by setup->trainer.machine.comm, where nobody is there to talk to if
 * it has no vtable; NULL: one. */
int wd_train_ranks(const wd_train_setup *setup);

/* Whether other ranks are there, to talk to and to share this host with while it is measured. */
bool wd_train_has_others(const wd_train_setup *setup);

/* *all = the `mine` of every rank, of `bytes` bytes each, by rank: the caller's to wd_free. All
 * ranks call it. */
wd_status wd_train_gather(void **all, const void *mine, size_t bytes, wd_comm *comm, wd_err *err);

/* Budgets of devices and host, and what all but the teacher takes of them: p->beside, host_budget,
 * input.cluster, input.target. All ranks call it but for a plan that is `like` one there is (or
 * NULL).
 */
wd_status wd_train_cluster_budgets(wd_train_plan *p, const wd_train_setup *s,
                                   const wd_train_plan *like, wd_err *err);

/* The same without what drawing sample sheets takes: of the cluster nothing is measured anew. All
 * ranks call it. */
wd_status wd_train_cluster_leave_out_sheets(wd_train_plan *p, const wd_train_setup *s, wd_err *err);

/* Bytes of host memory that this process has taken since the job began, and keeps. */
size_t wd_train_program_bytes(const wd_train_setup *setup);

/* What the program itself has now, of the rank that has most: p->program_bytes, taken of host
 * memory. All ranks call it. */
wd_status wd_train_cluster_count_program(wd_train_plan *p, const wd_train_setup *s, wd_err *err);

/* The rates of that cluster. Likewise. */
wd_status wd_train_cluster_rates(wd_train_plan *p, const wd_train_setup *s,
                                 const wd_train_plan *like, wd_err *err);

#endif
