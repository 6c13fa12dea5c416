/* Describes the content of a model folder, a Hub id or a safetensors file, as JSON and as text.
 *
 * The tree (all counts are integers, all sizes bytes):
 *   path, kind ("pipeline", "component", "transformer file", "text encoder file", "VAE file",
 *       "file"), class
 *   components { <name> { class, path (of one that lies elsewhere), loras (that are merged into
 *       it, as they were given), config {...}, and for those with weights:
 *       files, tensors, parameters, bytes_on_disk,
 *       dtypes { <dtype> { tensors, parameters, bytes } },
 *       bytes_in_memory { stored, bfloat16 (keep_f32 tensors in fp32), float32 },
 *       stages [ { name, tensors, parameters, bytes } ] } }
 *   of a pipeline, also: parameters, bytes_on_disk, prompt_tokens, default_height, default_width,
 *       size_multiple, boundary_ratio (or null), expand_timesteps
 *   of a component's file, also: naming ("diffusers", "original" or "llama.cpp"), prefix
 *   of another file: tensor_list [ { name, dtype, shape } ]
 * A damaged or unsupported checkpoint is the same error as when a job uses it. */
#ifndef WD_MODEL_CONVERT_INSPECT_H
#define WD_MODEL_CONVERT_INSPECT_H

#include <jansson.h>

#include "model/files/pipeline.h"

/* `parts`: NULL, or components that lie elsewhere; then `name` may be NULL. *out is the caller's to
 * json_decref. */
wd_status wd_inspect_tree(json_t **out, const char *name, const wd_pipeline_parts *parts,
                          wd_err *err);

/* Formats the tree as tables for a terminal. The caller frees *out with wd_free. */
wd_status wd_inspect_text(char **out, const json_t *tree, wd_err *err);

#endif
