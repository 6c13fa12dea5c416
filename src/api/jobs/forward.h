/* `forward`: one function per kind of component. Each reads its inputs from `in`, runs, and writes
 * options->out. */
#ifndef WD_API_JOBS_FORWARD_H
#define WD_API_JOBS_FORWARD_H

#include "api/setup/run.h"
#include "model/files/pipeline.h"
#include "wandistiller.h"

typedef struct wd_forward_call {
    const wd_forward_options *options;
    const wd_pipeline *pipeline;
    wd_dtype dtype;
    const wd_safetensors *in;
    wd_run *run;
} wd_forward_call;

/* wd_forward with a device that is open already: `run` was opened with options of this job, and is
 * used for options->device and options->num_threads. It is borrowed, and can be used again. */
wd_status wd__forward_on(wd_run *run, const wd_forward_options *options, wd_err *err);

/* Checks that the device of the job has room for `pool` bytes, and its host for `host` bytes and a
 * processor's pool. */
wd_status wd__forward_check_fits(const wd_forward_call *call, size_t pool, size_t host,
                                 wd_err *err);

wd_status wd__forward_transformer(const wd_forward_call *call, wd_component component, wd_err *err);

#endif
