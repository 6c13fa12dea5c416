/* `forward`: one function per kind of component. Each reads its inputs from `in`, runs, and writes
 * options->out. */
#ifndef WD_API_FORWARD_H
#define WD_API_FORWARD_H

#include "api/run.h"
#include "wan/pipeline.h"

typedef struct wd_forward_call {
    const wd_forward_options *options;
    const wd_pipeline *pipeline;
    wd_dtype dtype;
    const wd_safetensors *in;
    wd_run *run;
} wd_forward_call;

wd_status wd_forward_transformer(const wd_forward_call *call, wd_component component, wd_err *err);
wd_status wd_forward_text_encoder(const wd_forward_call *call, wd_err *err);
wd_status wd_forward_vae_decoder(const wd_forward_call *call, wd_err *err);
wd_status wd_forward_vae_encoder(const wd_forward_call *call, wd_err *err);

#endif
