/* A component that lies somewhere by itself: a safetensors or GGUF file, or a folder with one, as
 * people have them for ComfyUI or from Wan's own repositories. What it is follows from its tensors;
 * of what these do not tell, a config.json of diffusers or transformers beside the file may. */
#ifndef WD_MODEL_FILES_COMPONENT_FILE_H
#define WD_MODEL_FILES_COMPONENT_FILE_H

#include "io/tensors/safetensors.h"
#include "model/tables/config.h"
#include "model/tables/naming.h"

/* Opens a transformer's, text encoder's or VAE's weights, under the names that the file has. Torch
 * files are refused by name, with the safetensors file to use instead. */
wd_status wd_component_file_open(wd_safetensors **out, const char *path, wd_component component,
                                 wd_err *err);

/* Configurations, from the tensors of an open set. A VAE is one of the two published ones, by its
 * latent channels (16: Wan 2.1, 48: Wan 2.2), or what a config.json beside it says. */
wd_status wd_component_file_umt5_config(wd_umt5_config *out, const wd_safetensors *set,
                                        wd_err *err);
wd_status wd_component_file_vae_config(wd_vae_config *out, const wd_safetensors *set, wd_err *err);

/* Checks that the set has the tensors of `table`, under diffusers' names, but for those that may
 * miss, in shapes and dtypes that are read. */
wd_status wd_component_file_check(const wd_safetensors *set, const wd_tensor_table *table,
                                  wd_err *err);

/* Warns where the name of a transformer's file says that it is the other expert, or, if it is
 * `alone`, that it is one of two. */
void wd__component_file_warn_of_expert(const char *path, wd_component component, bool alone);

/* The same of the files of LoRAs, "FILE[:strength],...", of one of two experts. */
void wd__loras_warn_of_expert(const char *loras, wd_component component);

/* Whether `text` has `part` in it, whatever the case of its letters (ASCII). */
bool wd__name_contains(const char *text, const char *part);

/* Refuses tensors that are neither in the table nor harmless (buffers that follow from nothing but
 * the configuration, other parts of an all-in-one file, a T5 decoder): a model that has them is
 * another one, which computes something else with them. `ignores` makes this a warning in the log,
 * but not for tensors of an architecture that is known. `naming`: how the set's tensors were
 * named before they got the table's names. */
wd_status wd_extra_check(const wd_safetensors *set, const wd_tensor_table *table,
                         const wd_naming *naming, wd_component component, bool ignores,
                         wd_err *err);

#endif
