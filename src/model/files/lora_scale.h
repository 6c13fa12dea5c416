/* How much of a LoRA's products is added: the factor of B A, before the strength that the user
 * gives.
 *
 * It is alpha / rank, or alpha / sqrt(rank) under rsLoRA. A trainer writes alpha as a tensor beside
 * each product (kohya, ComfyUI), or once for all of them: PEFT in adapter_config.json beside
 * adapter_model.safetensors, diffusers in the same form as JSON in the file's metadata
 * ("lora_adapter_metadata"), others as a number in the metadata ("lora_alpha", "ss_network_alpha").
 * All that is there is read, and what contradicts something else is refused, since a factor that is
 * not seen leaves a LoRA that is too weak or too strong and looks like any other. kohya's numbers
 * only describe most modules: convolutions and chosen blocks may have others, in their tensors.
 * Where nothing says it, the factor is 1. */
#ifndef WD_MODEL_FILES_LORA_SCALE_H
#define WD_MODEL_FILES_LORA_SCALE_H

#include <jansson.h>

#include "io/file/file.h"
#include "io/tensors/safetensors.h"

enum { WD_LORA_SCALE_SOURCES = 4 };

/* One place that says it, in PEFT's terms. */
typedef struct wd_lora_scale_source {
    char where[WD_PATH_MAX + 64]; /* for messages */
    double alpha, rank;           /* of modules without a pattern of their own; NAN: not said */
    bool by_root;                 /* alpha / sqrt(rank) */
    bool yields;                  /* it says what most modules have; an alpha tensor comes first */
    json_t *alphas, *ranks;       /* owned; objects of patterns and numbers, or NULL */
    uint8_t *used;                /* [patterns of alphas]: it names a module of the file */
} wd_lora_scale_source;

typedef struct wd_lora_scales {
    const char *file; /* borrowed */
    wd_lora_scale_source source[WD_LORA_SCALE_SOURCES];
    int count;
} wd_lora_scales;

/* Reads what `set`, the open file `path` of a LoRA, and files beside it say. What would change the
 * result otherwise than by this factor (DoRA, a bias, PiSSA, ...) is an error, and so is a setting
 * that is not known. `path` must outlive *out. */
wd_status wd__lora_scales_open(wd_lora_scales *out, const wd_safetensors *set, const char *path,
                               wd_err *err);
void wd__lora_scales_close(wd_lora_scales *scales); /* a zeroed one is fine */

/* The factor of one product. `module`: its name as the file has it, without a prefix; `rank`: of
 * its tensors; `alpha`: its own alpha tensor, which has the value `value`, or NULL. Two places that
 * say different factors, and a rank that is not the tensors', are errors, but for kohya's. */
wd_status wd__lora_scale(double *out, wd_lora_scales *scales, const char *module, int64_t rank,
                         const wd_safetensors_entry *alpha, double value, wd_err *err);

/* To be called when all products have their factors: an alpha for modules that the file does not
 * have is an error, since it was meant for some that are called otherwise here. */
wd_status wd__lora_scales_check_used(const wd_lora_scales *scales, wd_err *err);

#endif
