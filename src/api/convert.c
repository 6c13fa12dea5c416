/* `convert`: a transformer between diffusers' layout and the original one. */
#include <string.h>

#include "api/merged.h"
#include "api/parts.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/log.h"
#include "core/stop.h"
#include "wan/convert.h"

static wd_status to_diffusers(wd_merged *merged, const wd_convert_options *options, bool second,
                              const wd_dtype *dtype, wd_err *err)
{
    const char *file = second ? options->transformer_2 : options->transformer;
    const char *loras = second ? options->teacher_lora_2 : options->teacher_lora;
    if (!file) file = options->model;
    if (!file)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "convert --to diffusers needs --model FILE or --transformer FILE");
    if (loras) WD_TRY(wd_merged_make_folder(merged, err));
    return wd_convert_to_diffusers(options->out, file, loras, merged->folder, dtype, err);
}

static wd_status to_original(wd_merged *merged, const wd_convert_options *options, bool second,
                             const wd_dtype *dtype, wd_err *err)
{
    const wd_component component = second ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
    wd_pipeline_parts parts = WD_PARTS_OF(options);
    wd_pipeline pipeline;
    parts.lora[!second] = NULL; /* of the expert that is not converted */
    WD_TRY(wd_pipeline_open_parts(&pipeline, options->model, &parts, err));
    WD_TRY(wd_merged_open(merged, &pipeline, dtype ? *dtype : WD_DTYPE_COUNT, err));
    return wd_convert_to_original(options->out, &pipeline, component, dtype, err);
}

wd_status wd_convert(const wd_convert_options *options, wd_err *err)
{
    WD_TRY(wd_options_check(WD_JOB_CONVERT, options, err));
    wd_stop_begin();
    wd_dtype dtype;
    const bool given = options->dtype && wd_dtype_parse(&dtype, options->dtype);
    const bool second = !strcmp(options->component, "transformer_2");
    wd_merged merged = {""};
    wd_status status;
    if (!strcmp(options->to, "diffusers"))
        status = to_diffusers(&merged, options, second, given ? &dtype : NULL, err);
    else
        status = to_original(&merged, options, second, given ? &dtype : NULL, err);
    wd_merged_close(&merged);
    if (status != WD_OK) return status;
    wd_log(WD_LOG_INFO, "%s written", options->out);
    return WD_OK;
}
