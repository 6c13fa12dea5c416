/* The wd_cluster of a run (teacher/plan/placement.h): memory and rates of devices, hosts and the
 * links between them. They are given by options, known from an earlier run
 * (api/setup/rate_cache.h), or measured. All ranks get the same wd_cluster, with the least memory
 * and the slowest rates of any rank. */
#ifndef WD_API_PLAN_TRAIN_CLUSTER_H
#define WD_API_PLAN_TRAIN_CLUSTER_H

#include "api/plan/train_plan.h"

/* The number of ranks of a run, from setup->comm; NULL: one. A communicator without
 * a vtable only describes ranks that do not run. */
int wd_train_ranks(const wd_train_setup *setup);

/* Whether other ranks run, with which this one communicates and may share its host during
 * measurements. */
bool wd__train_has_others(const wd_train_setup *setup);

/* *all = the `mine` of every rank, `bytes` bytes each, in the order of ranks. The caller frees it
 * with wd_free. All ranks call it. */
wd_status wd__train_gather(void **all, const void *mine, size_t bytes, wd_comm *comm, wd_err *err);

/* Sets *value on all ranks to whether it is true on any, or, if `all`, on all of them. All ranks
 * call it. */
wd_status wd__train_agree_whether(bool *value, bool all, const wd_train_setup *setup, wd_err *err);

/* Sets the budgets of devices and host, and the memory of everything but the teacher:
 * p->without_teacher, host_budget, input.cluster, input.devices.target. `like`: a plan whose
 * budgets are used again, or NULL. All ranks call it if `like` is NULL. */
wd_status wd__train_cluster_budgets(wd_train_plan *p, const wd_train_setup *s,
                                    const wd_train_plan *like, wd_err *err);

/* Computes the memory of everything but the teacher again, with `samples` and the current options
 * of s's stepper, and measures nothing. All ranks call it. */
wd_status wd__train_cluster_plan_again(wd_train_plan *p, const wd_train_setup *s,
                                       const wd_samples_options *samples, wd_err *err);

/* Bytes of host memory that this process has allocated since the job began, and still has. */
size_t wd_train_program_bytes(const wd_train_setup *setup);

/* Sets p->program_bytes to the current memory of the program itself, of the rank that has most, and
 * subtracts it from host memory. All ranks call it. */
wd_status wd__train_cluster_count_program(wd_train_plan *p, const wd_train_setup *s, wd_err *err);

/* Sets the rates of input.cluster. `like` as above. All ranks call it. */
wd_status wd__train_cluster_rates(wd_train_plan *p, const wd_train_setup *s,
                                  const wd_train_plan *like, wd_err *err);

#endif
