/* Declarations that opening a pipeline's folder and opening its parts share. Internal to
 * model/files/pipeline*.c and layout.c. */
#ifndef WD_MODEL_FILES_PIPELINE_IMPL_H
#define WD_MODEL_FILES_PIPELINE_IMPL_H

#include "model/files/pipeline.h"

enum { WD_PIPELINE_TEXT_TOKENS_MAX = 512 };

/* Reads all that the folder p->path has; what does not fit together is wd__pipeline_complete's. */
wd_status wd__pipeline_read_folder(wd_pipeline *p, wd_err *err);

/* Reads a component's configuration file `where` into *p. */
wd_status wd__pipeline_read_component(wd_pipeline *p, wd_component c, const char *where,
                                      wd_err *err);

/* Takes the configuration of one expert, which must be that of the other one if that is there. */
wd_status wd__pipeline_take_dit(wd_pipeline *p, wd_component c, const wd_dit_config *config,
                                const char *where, wd_err *err);

/* Which component a configuration of that "_class_name" or "model_type" is of; WD_COMPONENT_COUNT:
 * none. Both experts are transformers. */
wd_component wd__pipeline_component_of(const char *class_name, const char *model_type);

/* Checks that the components fit together, and sets what follows from all of them: the size of
 * pictures, guidance and negative prompt. */
wd_status wd__pipeline_complete(wd_pipeline *p, wd_err *err);

/* ---- other layouts: layout.c ----
 *
 * Folders that hold a pipeline's parts as others lay them out: ComfyUI's models/
 * (diffusion_models/, text_encoders/, vae/), and Wan's own repositories
 * (diffusion_pytorch_model*.safetensors with the original config.json, or high_noise_model/ and
 * low_noise_model/; google/umt5-xxl/). */

/* *found: whether pipeline->path is such a folder; then the parts that it has are in
 * pipeline->part, but for those that are `given` from elsewhere. Several files that may be meant
 * are an error that names them, and the option that says which. */
wd_status wd__layout_find(bool *found, wd_pipeline *pipeline, const bool given[WD_COMPONENT_COUNT],
                          wd_err *err);

#endif
