/* The kinds of residency there are; each is a file of its own. */
#ifndef WD_TEACHER_RESIDENCY_KINDS_H
#define WD_TEACHER_RESIDENCY_KINDS_H

#include "teacher/residency.h"

/* `resident`: every stage stays where `queue`'s device computes, in dtype `storage` (fp32 islands
 * stay fp32). A tensor that the device can read in the mapped file, as it is, is used there; others
 * are copied to the pool, stage by stage, so that at no time more than one stage exists twice. Maps
 * the experts' weights itself and keeps them mapped. `pipeline` is borrowed during the call. On a
 * dry device no page of the files is read: this plans it. */
wd_status wd_residency_open_resident(wd_residency **out, const wd_pipeline *pipeline,
                                     wd_dtype storage, wd_queue *queue, wd_err *err);

/* As wd_residency_open_resident, for one component as the only expert. */
wd_status wd_residency_open_component(wd_residency **out, const wd_pipeline *pipeline,
                                      wd_component component, wd_dtype storage, wd_queue *queue,
                                      wd_err *err);

/* `placed`: every stage of this rank is where the placement says: it stays on a device, or it is
 * streamed, from host memory (`offload`: laid out there as on the device) or from the files
 * (`disk`: read for every sweep by a thread that reads ahead, without filling the page cache).
 * `queues`: a queue of each of the rank's devices, borrowed; those that the placement does not use
 * may be NULL. `processor`: a queue of the processor, used during the call; NULL where no stage is
 * in host memory. `comm`: the ranks of the job, borrowed, which must all call it; NULL: there is
 * one rank. */
wd_status wd_residency_open_placed(wd_residency **out, const wd_pipeline *pipeline,
                                   const wd_placement *placement, wd_dtype storage,
                                   wd_queue *const *queues, wd_queue *processor, wd_comm *comm,
                                   wd_err *err);

/* `dry`: gives addresses that must not be dereferenced, to plan on a dry device without a pipeline.
 * Tensors of a stage follow one another, as in a block that was copied, or with `gaps` lie apart,
 * as in a mapped file: products over adjacent weights are computed as one. */
wd_status wd_residency_open_dry(wd_residency **out, const wd_dit_config *config, int experts,
                                wd_dtype compute, bool gaps, wd_err *err);

#endif
