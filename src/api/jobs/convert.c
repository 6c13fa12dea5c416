/* `convert`: a transformer between diffusers' layout and files with the original names. */
#include <stdio.h>
#include <string.h>

#include "api/options/options.h"
#include "api/setup/run.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/stop.h"
#include "core/text.h"
#include "io/file/writable.h"
#include "model/convert/convert.h"
#include "train/output/comfyui.h"
#include "train/output/export.h"
#include "wandistiller.h"

/* Which dtypes a form has besides those that all have: float32, float16 and bfloat16. */
static const struct {
    const char *to, *more[3];
} dtypes[] = {{"comfyui", {"float8_e4m3fn"}}, {"gguf", {"q8_0", "q4_k"}}, {"diffusers", {NULL}}};

static wd_status check_dtype(const wd_convert_options *o, wd_dtype dtype, wd_err *err)
{
    char more[64] = "";
    size_t used = 0;
    if (!wd_dtype_is_quantised(dtype)) return WD_OK;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int k = 0; !strcmp(dtypes[i].to, o->to) && dtypes[i].more[k]; k++) {
            if (!strcmp(dtypes[i].more[k], o->dtype)) return WD_OK;
            used = wd_append_text(more, sizeof more, used, ", %s", dtypes[i].more[k]);
        }
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--dtype %s: expected float32, float16, bfloat16%s with --to %s", o->dtype, more,
                   o->to);
}

/* ComfyUI and ComfyUI-GGUF list files by the ending of their names, and only those that they know.
 */
static wd_status check_ending(const wd_convert_options *o, wd_err *err)
{
    const bool to_gguf = !strcmp(o->to, "gguf");
    if (!strcmp(o->to, "diffusers")) return wd_folder_check_writable(o->out, "--out", err);
    if (wd_path_has_ending(o->out, to_gguf ? ".gguf" : ".safetensors")) return WD_OK;
    if (!to_gguf && wd_path_has_ending(o->out, ".sft")) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--out %s: expected a name that ends in %s with --to %s: ComfyUI lists no other",
                   o->out, to_gguf ? ".gguf" : ".safetensors", o->to);
}

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
    WD_TRY(wd_convert_to_diffusers(options->out, file, loras, merged->folder, dtype,
                                   options->ignore_unknown_tensors, err));
    wd_log(WD_LOG_INFO, "%s written", options->out);
    return WD_OK;
}

/* Writes the file, and, for a student, a workflow that draws with it. Neither replaces anything. */
static wd_status to_one_file(wd_merged *merged, const wd_convert_options *options, bool second,
                             const wd_dtype *dtype, wd_err *err)
{
    const wd_component component = second ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
    const bool to_gguf = !strcmp(options->to, "gguf");
    char workflow[WD_PATH_MAX];
    bool is_student;
    wd_pipeline_parts parts = WD_PARTS_OF(options);
    wd_pipeline pipeline;
    parts.lora[!second] = NULL; /* of the expert that is not converted */
    parts.one_expert = true;
    if (snprintf(workflow, sizeof workflow, "%s.json", options->out) >= (int)sizeof workflow)
        return wd_fail(err, WD_INVALID_ARGUMENT, "%.400s...: path is too long", options->out);
    WD_TRY(wd_pipeline_open_parts(&pipeline, options->model, &parts, err));
    WD_TRY(wd_export_is_student(&is_student, pipeline.path, err));
    if (is_student && wd_path_exists(workflow)) return wd_convert_refuse_replacing(workflow, err);
    const bool merges_as_stored = !dtype || wd_dtype_is_quantised(*dtype);
    WD_TRY(wd_merged_open(merged, &pipeline, merges_as_stored ? WD_DTYPE_COUNT : *dtype, err));
    WD_TRY((to_gguf ? wd_convert_to_gguf : wd_convert_to_original)(options->out, &pipeline,
                                                                   component, dtype, err));
    wd_log(WD_LOG_INFO, "%s written", options->out);
    if (!is_student) return WD_OK;
    const wd_export_options usual = wd_student_sampling(&pipeline);
    WD_TRY(wd_student_write_workflow(workflow, options->out, to_gguf, &pipeline, &usual, err));
    wd_log(WD_LOG_INFO, "%s written: a workflow for ComfyUI", workflow);
    return WD_OK;
}

wd_status wd_convert(const wd_convert_options *options, wd_err *err)
{
    WD_C_LOCALE;
    WD_TRY(wd_options_check(WD_JOB_CONVERT, options, err));
    wd_stop_begin();
    wd_dtype dtype;
    const bool given = options->dtype && wd_dtype_parse(&dtype, options->dtype);
    const bool second = !strcmp(options->component, "transformer_2");
    if (given) WD_TRY(check_dtype(options, dtype, err));
    WD_TRY(check_ending(options, err));
    wd_merged merged = {0};
    wd_status status;
    if (!strcmp(options->to, "diffusers"))
        status = to_diffusers(&merged, options, second, given ? &dtype : NULL, err);
    else
        status = to_one_file(&merged, options, second, given ? &dtype : NULL, err);
    wd_merged_close(&merged);
    return status;
}
