/* Folders that hold a pipeline's parts as others lay them out: ComfyUI's models/
 * (diffusion_models/, text_encoders/, vae/), and Wan's own repositories
 * (diffusion_pytorch_model*.safetensors with the original config.json, or high_noise_model/ and
 * low_noise_model/; google/umt5-xxl/). */
#ifndef WD_MODEL_FILES_LAYOUT_H
#define WD_MODEL_FILES_LAYOUT_H

#include "model/files/pipeline.h"

/* *found: whether pipeline->path is such a folder; then the parts that it has are in
 * pipeline->part, but for those that are `given` from elsewhere. Several files that may be meant
 * are an error that names them, and the option that says which. */
wd_status wd__layout_find(bool *found, wd_pipeline *pipeline, const bool given[WD_COMPONENT_COUNT],
                          wd_err *err);

#endif
