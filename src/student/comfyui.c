/* Students for ComfyUI: see student/comfyui.h. */
#include "student/comfyui.h"

#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/json.h"
#include "student/swap.h"
#include "wan/convert.h"
#include "wan/workflow.h"

static const char weights_name[] = "student.safetensors";

wd_export_options wd_student_sampling(const wd_pipeline *student)
{
    wd_export_options o = wd_export_defaults();
    o.flow_shift = student->scheduler.flow_shift;
    o.sampling_steps = student->default_steps;
    o.height = student->default_height;
    o.width = student->default_width;
    if (student->scheduler.kind == WD_SCHEDULER_EULER) o.student_steps = student->default_steps;
    return o;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

wd_status wd_student_write_workflow(const char *path, const char *file, bool is_gguf,
                                    const wd_pipeline *student, const wd_export_options *o,
                                    wd_err *err)
{
    json_t *json;
    const bool large = student->dit.in_channels == 48;
    const wd_workflow workflow = {
        .unet = name_of(file),
        .unet_is_gguf = is_gguf,
        .clip = "umt5_xxl_fp16.safetensors", /* as Comfy-Org publishes them */
        .vae = large ? "wan2.2_vae.safetensors" : "wan_2.1_vae.safetensors",
        .prompt = o->prompt,
        .latent_channels = student->dit.in_channels,
        .width = o->width,
        .height = o->height,
        .steps = o->sampling_steps,
        .shift = o->flow_shift,
        .cfg = 1, /* guidance is folded in */
        .sampler = o->student_steps ? "euler" : "uni_pc",
    };
    WD_TRY(wd_workflow_make(&json, &workflow, err));
    const wd_status status = wd_json_save(json, path, err);
    json_decref(json);
    return status;
}

static wd_status write_all(const char *fresh, const wd_pipeline *student,
                           const wd_export_options *options, wd_err *err)
{
    static const wd_dtype dtype = WD_BF16;
    char path[WD_PATH_MAX];
    WD_TRY(wd_folder_remove(fresh, err)); /* of a run that was killed */
    WD_TRY(wd_folder_make(fresh, err));
    WD_TRY(wd_path_join(path, fresh, weights_name, err));
    WD_TRY(wd_convert_to_original(path, student, WD_COMPONENT_TRANSFORMER, &dtype, err));
    char workflow[WD_PATH_MAX];
    WD_TRY(wd_path_join(workflow, fresh, "student.json", err));
    return wd_student_write_workflow(workflow, path, false, student, options, err);
}

wd_status wd_student_for_comfyui(const char *folder, const wd_export_options *options, wd_err *err)
{
    char path[WD_PATH_MAX], fresh[WD_PATH_MAX];
    void *block = NULL;
    wd_status status;
    WD_TRY(wd_path_join(path, folder, "comfyui", err));
    WD_TRY(wd_path_join(fresh, folder, ".tmp-comfyui", err));
    WD_TRY_OUT(wd_alloc(&block, 1, sizeof(wd_pipeline), "a pipeline", err));
    WD_TRY_OUT(wd_pipeline_open(block, folder, err));
    WD_TRY_OUT(write_all(fresh, block, options, err));
    WD_TRY_OUT(wd_folder_swap_in(path, fresh, err));
    wd_log(WD_LOG_INFO, "for ComfyUI: %s/%s, and the workflow student.json", path, weights_name);
out:
    wd_free(block);
    if (status != WD_OK) wd_folder_remove(fresh, NULL);
    return status;
}
