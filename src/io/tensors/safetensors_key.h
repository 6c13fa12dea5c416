/* A hash that tells sets of weights apart without reading all of them, since reading 60 GB would
 * take minutes. It covers the names, dtypes and shapes of all tensors, and of their values the
 * first page of each tensor and pages at equal distances, up to 4 MiB in all. */
#ifndef WD_IO_TENSORS_SAFETENSORS_KEY_H
#define WD_IO_TENSORS_SAFETENSORS_KEY_H

#include "io/tensors/safetensors.h"

enum { WD_SAFETENSORS_KEY_MAX = 33 };

/* Writes 32 hex digits: XXH3-128 of the weights and of `more`, any text of the caller. */
void wd_safetensors_key(char out[WD_SAFETENSORS_KEY_MAX], const wd_safetensors *weights,
                        const char *more);

#endif
