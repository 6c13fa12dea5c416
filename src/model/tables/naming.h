/* The components of a pipeline, and how a file names the tensors of one: as diffusers does, as the
 * original release, or, a text encoder, as llama.cpp does in GGUF files; each behind a prefix
 * ("model.diffusion_model."); and a set of tensors under diffusers' names, so that whoever works
 * with it need not know. */
#ifndef WD_MODEL_TABLES_NAMING_H
#define WD_MODEL_TABLES_NAMING_H

#include "io/tensors/safetensors.h"
#include "model/tables/config.h"

typedef enum wd_component {
    WD_COMPONENT_TRANSFORMER,   /* the only expert, or the high-noise one */
    WD_COMPONENT_TRANSFORMER_2, /* the low-noise expert */
    WD_COMPONENT_TEXT_ENCODER,
    WD_COMPONENT_VAE,
    WD_COMPONENT_TOKENIZER,
    WD_COMPONENT_SCHEDULER,
    WD_COMPONENT_COUNT
} wd_component;

const char *wd_component_name(wd_component component); /* its folder: "transformer_2" */

enum { WD_NAMING_PREFIX_MAX = 128 };

typedef struct wd_naming {
    wd_component component;            /* transformer_2 is named as transformer is */
    bool original;                     /* the original release's names, not diffusers' */
    bool llama;                        /* llama.cpp's names of a text encoder, not transformers' */
    char prefix[WD_NAMING_PREFIX_MAX]; /* in front of every name */
    wd_vae_config vae;                 /* of a VAE: what its names depend on */
} wd_naming;

/* Takes from all names what wrappers of torch put between their parts: "_orig_mod." of
 * torch.compile, "_fsdp_wrapped_module." and "_checkpoint_wrapped_module.". */
wd_status wd_naming_unwrap(wd_safetensors *set, wd_err *err);

/* Which naming the set has for a transformer, text encoder or VAE; false: none that is known. Its
 * prefix is one that files are known to have, or one that all names of the set have ("module.",
 * "ema."). `vae` is its configuration where that is known, else NULL, which means the published
 * layouts. */
bool wd_naming_detect(wd_naming *out, const wd_safetensors *set, wd_component component,
                      const wd_vae_config *vae);

/* What a message says of a set that has no known naming, but tensors that are called as those of
 * the component behind a prefix that others lack; "" if it has none. Returns `out`. */
const char *wd_naming_hint(char *out, size_t bytes, const wd_safetensors *set,
                           wd_component component);

/* The entry of a tensor, by its diffusers name; NULL: there is none. */
const wd_safetensors_entry *wd_naming_find(const wd_naming *naming, const wd_safetensors *set,
                                           const char *diffusers_name);

/* Gives the tensors of `table` that are in the set their diffusers names, and those of a GGUF file
 * the table's shapes (wd_safetensors_take_shape). Other tensors keep their names and shapes. */
wd_status wd_naming_apply(const wd_naming *naming, wd_safetensors *set,
                          const wd_tensor_table *table, wd_err *err);

#endif
