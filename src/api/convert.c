/* `convert`: a transformer between diffusers' layout and the original one. */
#include <string.h>

#include "core/dtype.h"
#include "core/log.h"
#include "core/stop.h"
#include "wan/convert.h"

wd_status wd_convert(const wd_convert_options *options, wd_err *err)
{
    WD_TRY(wd_options_check(WD_JOB_CONVERT, options, err));
    wd_stop_begin();
    wd_dtype dtype;
    const bool given = options->dtype && wd_dtype_parse(&dtype, options->dtype);
    if (!strcmp(options->to, "diffusers")) {
        WD_TRY(wd_convert_to_diffusers(options->out, options->model, given ? &dtype : NULL, err));
    } else {
        const bool second = !strcmp(options->component, "transformer_2");
        wd_pipeline pipeline;
        WD_TRY(wd_pipeline_open(&pipeline, options->model, err));
        WD_TRY(wd_convert_to_original(
            options->out, &pipeline, second ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER,
            given ? &dtype : NULL, err));
    }
    wd_log(WD_LOG_INFO, "%s written", options->out);
    return WD_OK;
}
