/* Names of tensors: those of diffusers and transformers, which this program works with, and those
 * of the original release, which ComfyUI and others read. Shapes and values are the same under
 * both. */
#ifndef WD_WAN_NAMES_H
#define WD_WAN_NAMES_H

#include "wan/config.h"

/* Writes the original name of a tensor into `out`, cut to `bytes` (WD_TENSOR_NAME_MAX is enough).
 * False: the name is none that a text-to-video transformer has. */
bool wd_names_to_original(char *out, size_t bytes, const char *diffusers_name);

/* The same for a tensor of the text encoder, whose diffusers name is that of transformers:
 * "shared.weight" is "token_embedding.weight" in the original (wan/modules/t5.py). */
bool wd_names_umt5_to_original(char *out, size_t bytes, const char *transformers_name);

/* The same for a tensor of the VAE (wan/modules/vae.py, of the 2.2 layout vae2_2.py): what the
 * original calls a layer of the decoder follows from how many layers a level has. */
bool wd_names_vae_to_original(char *out, size_t bytes, const char *diffusers_name,
                              const wd_vae_config *config);

/* What other architecture a tensor of that name (either naming) belongs to: "a VACE model". NULL:
 * none that is known. */
const char *wd_names_foreign(const char *name);

#endif
