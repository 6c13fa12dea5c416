/* Names of tensors: those of diffusers and transformers, which this program uses, and those of the
 * original release, which ComfyUI and others read. Shapes and values are the same in both. */
#ifndef WD_MODEL_TABLES_NAMES_H
#define WD_MODEL_TABLES_NAMES_H

#include "model/tables/config.h"

/* Writes the original name of a tensor into `out`, cut to `bytes` (WD_TENSOR_NAME_MAX is enough).
 * False: no text-to-video transformer has a tensor of this name. */
bool wd_names_to_original(char *out, size_t bytes, const char *diffusers_name);

/* Does this for a tensor of the text encoder, whose diffusers name is that of transformers:
 * "shared.weight" is "token_embedding.weight" in the original (wan/modules/t5.py). */
bool wd__names_umt5_to_original(char *out, size_t bytes, const char *transformers_name);

/* The same in llama.cpp's names, which GGUF files of text encoders have: "token_embd.weight". */
bool wd__names_umt5_to_llama(char *out, size_t bytes, const char *transformers_name);

/* Does this for a tensor of the VAE (wan/modules/vae.py, for the 2.2 layout vae2_2.py): the
 * original name of a decoder's layer depends on the number of layers of a level. */
bool wd__names_vae_to_original(char *out, size_t bytes, const char *diffusers_name,
                               const wd_vae_config *config);

/* The other architecture to which a tensor of this name (in either naming) belongs, such as "a VACE
 * model". NULL: no known one. */
const char *wd_names_foreign(const char *name);

#endif
