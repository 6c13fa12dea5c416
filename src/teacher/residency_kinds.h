/* The kinds of residency there are; each is a file of its own. */
#ifndef WD_TEACHER_RESIDENCY_KINDS_H
#define WD_TEACHER_RESIDENCY_KINDS_H

#include "teacher/residency.h"
#include "wan/pipeline.h"

/* Which experts a pipeline's teacher has: 2 with a boundary and a second transformer, else 1. */
int wd_teacher_experts(const wd_pipeline *pipeline);

/* The dtype that a teacher stored in `storage` computes in: F16 is a storage type, widened to F32
 * stage by stage; F32 and BF16 compute as they are. */
wd_dtype wd_teacher_compute_dtype(wd_dtype storage);

/* `resident`: every stage stays where `queue`'s device computes, in dtype `storage` (fp32 islands
 * stay fp32). A tensor that the device can read in the mapped file, as it is, is used there; others
 * are copied to the pool, stage by stage, so that at no time more than one stage exists twice. Maps
 * the experts' weights itself and keeps them mapped. `pipeline` is borrowed during the call. On a
 * dry device no page of the files is read: this plans it. */
wd_status wd_residency_open_resident(wd_residency **out, const wd_pipeline *pipeline,
                                     wd_dtype storage, wd_queue *queue, wd_err *err);

/* The same of one component alone, as the only expert. */
wd_status wd_residency_open_component(wd_residency **out, const wd_pipeline *pipeline,
                                      wd_component component, wd_dtype storage, wd_queue *queue,
                                      wd_err *err);

/* `streamed`: weights stay in host memory (`offload`: mapped where the file has the storage dtype,
 * else converted once) or in the files (`disk`: read for every sweep by a thread that reads ahead,
 * without filling the page cache), and come to `device` stage by stage through two slots. */
typedef struct wd_streamed_options {
    wd_dtype storage;
    bool from_disk;
    wd_device *device;   /* borrowed */
    wd_queue *processor; /* of the cpu device, used during the call; from_disk: NULL */
} wd_streamed_options;

wd_status wd_residency_open_streamed(wd_residency **out, const wd_pipeline *pipeline,
                                     const wd_streamed_options *options, wd_err *err);

/* `dry`: gives addresses that must not be dereferenced, for planning on a dry device what has no
 * pipeline. */
wd_status wd_residency_open_dry(wd_residency **out, const wd_dit_config *config, int experts,
                                wd_dtype compute, wd_err *err);

#endif
