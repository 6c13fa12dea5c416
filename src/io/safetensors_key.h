/* What tells one set of weights from another without reading all of it: the names, dtypes and
 * shapes of its tensors, and of their values the first page of each and pages at even distances, up
 * to 4 MiB in all: reading all of 60 GB would take minutes. */
#ifndef WD_IO_SAFETENSORS_KEY_H
#define WD_IO_SAFETENSORS_KEY_H

#include "io/safetensors.h"

enum { WD_SAFETENSORS_KEY_MAX = 33 };

/* 32 hex digits (XXH3-128) of the weights and of `more`, a text of the caller's. */
void wd_safetensors_key(char out[WD_SAFETENSORS_KEY_MAX], const wd_safetensors *weights,
                        const char *more);

#endif
