/* Names of the transformer's tensors: diffusers' and those of the original release, which ComfyUI
 * and others read. Shapes and values are the same under both. */
#ifndef WD_WAN_NAMES_H
#define WD_WAN_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the original name of a tensor into `out`, cut to `bytes` (WD_TENSOR_NAME_MAX is enough).
 * False: the name is none that a text-to-video transformer has. */
bool wd_names_to_original(char *out, size_t bytes, const char *diffusers_name);

/* What other architecture a tensor of that name (either naming) belongs to: "a VACE model". NULL:
 * none that is known. */
const char *wd_names_foreign(const char *name);

#endif
