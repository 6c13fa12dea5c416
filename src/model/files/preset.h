/* The published Wan models by name, without their files. That suffices to plan a run. */
#ifndef WD_MODEL_FILES_PRESET_H
#define WD_MODEL_FILES_PRESET_H

#include "model/files/pipeline.h"

/* Names of the presets: "wan2.1-1.3b", ..., NULL. */
extern const char *const wd_preset_names[];

/* The Hub id of the published pipeline in diffusers' format; NULL: no preset has this name. */
const char *wd_preset_hub_id(const char *name);

/* Sets the values of the published pipeline's configuration files: transformer (weights in F32 on
 * disk), text encoder, VAE, scheduler, boundary, text length. The pipeline has no path and no
 * weights. An unknown name is WD_INVALID_ARGUMENT, and the error lists all names. */
wd_status wd_preset_pipeline(wd_pipeline *out, const char *name, wd_err *err);

/* The configuration of the published VAE that has so many latent channels, 16 or 48. */
wd_status wd__preset_vae(wd_vae_config *out, int64_t channels, wd_err *err);

/* Gives a pipeline what none of its files says, of scheduler, boundary between the experts, and
 * whether time steps are expanded. They are those of the preset `name`; NULL: of the one that has
 * the pipeline's sizes and number of experts. *taken: its name; NULL: none fits, and nothing is
 * set. A preset of another number of experts is refused. */
wd_status wd__preset_complete(const char **taken, wd_pipeline *pipeline, const char *name,
                              wd_err *err);

/* Sets guidance_scale and negative_prompt of an open pipeline to those of the published model that
 * has its sizes; guidance 5 and no negative prompt where there is none. */
void wd__preset_advise(wd_pipeline *pipeline);

#endif
