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

/* Something that is run on a dry queue before it is run on the job's. */
typedef wd_status wd_forward_fn(void *context, wd_queue *queue, wd_err *err);

/* Runs `fn` on a dry queue and then on the job's. WD_DOES_NOT_FIT, before the second run: there is
 * not so much memory. */
wd_status wd__forward_run(const wd_forward_call *call, wd_forward_fn *fn, void *context,
                          wd_err *err);

/* Checks that the device of the job has room for `pool` bytes, and its host for `host` bytes and a
 * processor's pool. */
wd_status wd__forward_check_fits(const wd_forward_call *call, size_t pool, size_t host,
                                 wd_err *err);

wd_status wd__forward_transformer(const wd_forward_call *call, wd_component component, wd_err *err);
wd_status wd__forward_text_encoder(const wd_forward_call *call, wd_err *err);
wd_status wd__forward_vae_decoder(const wd_forward_call *call, wd_err *err);
wd_status wd__forward_vae_encoder(const wd_forward_call *call, wd_err *err);

#endif
