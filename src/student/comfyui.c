/* Students for ComfyUI: see student/comfyui.h. */
#include "student/comfyui.h"

#include "core/log.h"
#include "core/memory.h"
#include "io/json.h"
#include "student/swap.h"
#include "wan/convert.h"
#include "wan/workflow.h"

static const char weights_name[] = "student.safetensors";

static wd_status write_workflow(const char *folder, const wd_pipeline *student,
                                const wd_export_options *o, wd_err *err)
{
    char path[WD_PATH_MAX];
    json_t *json;
    const bool large = student->dit.in_channels == 48;
    const wd_workflow workflow = {
        .unet = weights_name,
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
    WD_TRY(wd_path_join(path, folder, "student.json", err));
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
    return write_workflow(fresh, student, options, err);
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
