/* `convert`: a transformer between diffusers' layout and the original one. */
#include <string.h>

#include "api/parts.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/log.h"
#include "core/stop.h"
#include "wan/convert.h"

wd_status wd_convert(const wd_convert_options *options, wd_err *err)
{
    WD_TRY(wd_options_check(WD_JOB_CONVERT, options, err));
    wd_stop_begin();
    wd_dtype dtype;
    const bool given = options->dtype && wd_dtype_parse(&dtype, options->dtype);
    const bool second = !strcmp(options->component, "transformer_2");
    const wd_pipeline_parts parts = WD_PARTS_OF(options);
    if (!strcmp(options->to, "diffusers")) {
        const char *file = second ? options->transformer_2 : options->transformer;
        if (!file) file = options->model;
        if (!file)
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "convert --to diffusers needs --model FILE or --transformer FILE");
        WD_TRY(wd_convert_to_diffusers(options->out, file, given ? &dtype : NULL, err));
    } else {
        wd_pipeline pipeline;
        WD_TRY(wd_pipeline_open_parts(&pipeline, options->model, &parts, err));
        WD_TRY(wd_convert_to_original(
            options->out, &pipeline, second ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER,
            given ? &dtype : NULL, err));
    }
    wd_log(WD_LOG_INFO, "%s written", options->out);
    return WD_OK;
}
