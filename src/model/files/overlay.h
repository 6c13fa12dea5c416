/* Tensors of a transformer that are made before it is used: LoRAs are merged into them, and they
 * are quantised.
 *
 * Data flow: files of LoRAs and of the transformer -> every changed tensor, computed in fp32 and
 * rounded once, to the dtype in which it will be kept -> a safetensors file of these tensors, in a
 * folder -> the transformer's set of tensors, whose changed ones lie in that file. So whoever reads
 * weights reads these: in place, into memory, or from disk in every sweep. A file is found again by
 * its name, which has the key of all that has gone into it. */
#ifndef WD_MODEL_FILES_OVERLAY_H
#define WD_MODEL_FILES_OVERLAY_H

#include "model/files/lora.h"

/* Where the file lies, and what is in it. */
typedef struct wd_overlay {
    const char *folder; /* borrowed; NULL: nowhere yet */
    wd_dtype dtype;     /* of merged tensors, but for those that stay fp32; WD_DTYPE_COUNT: each
                         * one's own */
    wd_dtype quantised; /* WD_F8_E4M3 or WD_I8: that of matrices of blocks, with a scale for each
                         * row, unless they are quantised in the transformer's own files; WD_F32: as
                         * the others */
    bool is_made; /* the file has been written or found: from now on a missing one is an error */
} wd_overlay;

/* Overlays the set, whose tensors have diffusers' names, with the file that these LoRAs
 * (wd__loras_open; NULL: none) and this overlay make of it. Where that has not been written yet,
 * the changed tensors have no data, which suffices to plan. */
wd_status wd_overlay_apply(wd_safetensors *set, const char *loras, const wd_tensor_table *table,
                           const wd_overlay *overlay, wd_err *err);

/* The bytes of the set's tensors that have no data yet: those of the file, once it is written. */
uint64_t wd_overlay_bytes_to_write(const wd_safetensors *set);

/* Writes the file, unless it is there: *bytes of it, 0 if it was. Several processes may at the same
 * time: the file of the first one stays, and is never replaced. */
wd_status wd_overlay_write(uint64_t *bytes, const wd_safetensors *set, const char *loras,
                           const wd_tensor_table *table, const wd_overlay *overlay, wd_err *err);

/* Whether `quantised` of an overlay means this tensor, whose files have it in `stored`. */
bool wd_overlay_quantises(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype quantised);

#endif
