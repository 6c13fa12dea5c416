/* A transformer's weights with LoRAs merged into them.
 *
 * Data flow: files of LoRAs and of the transformer -> every changed tensor, computed in fp32 and
 * rounded once, to the dtype in which it will be kept -> a safetensors file of these tensors, in a
 * folder -> the transformer's set of tensors, whose changed ones lie in that file. So whoever reads
 * weights reads merged ones: in place, into memory, or from disk in every sweep. A file is found
 * again by its name, which has the key of all that has gone into it. */
#ifndef WD_WAN_LORA_MERGE_H
#define WD_WAN_LORA_MERGE_H

#include "wan/lora.h"

/* Where merged tensors lie, and what they are. */
typedef struct wd_lora_place {
    const char *folder; /* borrowed; NULL: nowhere yet */
    wd_dtype dtype;     /* of all but those that stay fp32; WD_DTYPE_COUNT: each one's own */
} wd_lora_place;

/* Overlays the set, whose tensors have diffusers' names, with the merged file of these LoRAs
 * (wd_loras_open). Where that has not been written yet, the changed tensors have no data, which
 * suffices to plan. */
wd_status wd_lora_overlay(wd_safetensors *set, const char *loras, const wd_tensor_table *table,
                          const wd_lora_place *place, wd_err *err);

/* Writes the merged file, unless it is there: *bytes of it, 0 if it was. Several processes may. */
wd_status wd_lora_merge(uint64_t *bytes, const wd_safetensors *set, const char *loras,
                        const wd_tensor_table *table, const wd_lora_place *place, wd_err *err);

/* Identifies the LoRAs and `more`, a text of at most 64 characters. */
wd_status wd_lora_key(char out[WD_LORA_KEY_MAX], const char *loras, const wd_tensor_table *table,
                      const char *more, wd_err *err);

#endif
