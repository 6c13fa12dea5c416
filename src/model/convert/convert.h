/* Folder model/convert. From one form of a model's files to another, and what a file is.
 *
 * Converts a transformer between a diffusers folder and one file with the original key names, which
 * ComfyUI loads: safetensors or GGUF. Tensors are copied one at a time from the mapped source to
 * the file, so memory does not grow with the model. Nothing is overwritten: if the file, or a model
 * in the folder, exists already, the error names it. */
#ifndef WD_MODEL_CONVERT_CONVERT_H
#define WD_MODEL_CONVERT_CONVERT_H

#include "model/files/pipeline.h"

/* Writes the safetensors file `path`. `dtype`: NULL keeps every tensor's dtype, and makes bfloat16
 * of quantised ones; F32, F16 or BF16 for all but those that stay fp32 (keep_f32); F8_E4M3:
 * ComfyUI's scaled fp8. Which tensor has which dtype then is said in model/convert/convert_lines.h.
 * A value that the dtype cannot hold is an error. */
wd_status wd_convert_to_original(const char *path, const wd_pipeline *pipeline,
                                 wd_component component, const wd_dtype *dtype, wd_err *err);

/* Writes the GGUF file `path`. `dtype`: NULL keeps the dtypes that GGUF has; else F32, F16, BF16,
 * Q8_0 or Q4_K, as model/convert/convert_lines.h says. */
wd_status wd_convert_to_gguf(const char *path, const wd_pipeline *pipeline, wd_component component,
                             const wd_dtype *dtype, wd_err *err);

/* Warns where ComfyUI or stable-diffusion.cpp would run a model of that configuration and length of
 * text in another way than it was made, or not at all. `name` stands for it in the warnings. */
void wd_convert_warn_of_clients(const char *name, const wd_dit_config *config, int64_t text_tokens);

/* The error that `path` exists. */
wd_status wd_convert_refuse_replacing(const char *path, wd_err *err);

/* Writes a component with weights as diffusers or transformers has it: its weights, under their
 * names and in the dtypes that they have, and config.json, into `folder`, which is there. */
wd_status wd_convert_component(const char *folder, const wd_pipeline *pipeline,
                               wd_component component, wd_err *err);

/* Writes <folder>/config.json and <folder>/diffusion_pytorch_model.safetensors from one file in
 * either naming. `loras` are merged by way of a file in `merged`, a folder; NULL: there are none.
 * `ignores_unknown`: see wd_extra_check. */
wd_status wd_convert_to_diffusers(const char *folder, const char *path, const char *loras,
                                  const char *merged, const wd_dtype *dtype, bool ignores_unknown,
                                  wd_err *err);

#endif
