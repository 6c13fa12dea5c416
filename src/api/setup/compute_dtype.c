/* See api/setup/compute_dtype.h. */
#include "api/setup/compute_dtype.h"

/* *out = whether most weights of the component are float32 in its own files: LoRAs and what
 * quantises them are left out. */
static wd_status is_float32(bool *out, const wd_pipeline *pipeline, wd_component component,
                            wd_err *err)
{
    wd_pipeline files = *pipeline;
    wd_safetensors *set;
    int64_t float32 = 0, all = 0;
    files.lora[0] = files.lora[1] = NULL;
    files.overlay = (wd_overlay){0};
    WD_TRY(wd_pipeline_open_weights(&set, &files, component, err));
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_tensor *t = &wd_safetensors_at(set, i)->tensor;
        all += wd_tensor_count(t);
        if (t->dtype == WD_F32) float32 += wd_tensor_count(t);
    }
    wd_safetensors_close(set);
    *out = float32 > all / 2;
    return WD_OK;
}

wd_status wd_compute_dtype(wd_dtype *out, const char *given, const wd_pipeline *pipeline,
                           wd_component component, const wd_device *device, wd_err *err)
{
    bool float32;
    if (given) {
        wd_dtype_parse(out, given);
        return WD_OK;
    }
    *out = WD_BF16;
    if (!wd_device_traits(device)->reads_host) return WD_OK;
    WD_TRY(is_float32(&float32, pipeline, component, err));
    if (float32) *out = WD_F32;
    return WD_OK;
}
