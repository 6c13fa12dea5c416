/* A set of files with tensors. Private to safetensors*.c. */
#ifndef WD_IO_TENSORS_SAFETENSORS_IMPL_H
#define WD_IO_TENSORS_SAFETENSORS_IMPL_H

#include "io/tensors/safetensors_file.h"

struct wd_safetensors {
    wd_safetensors_file *file;
    int64_t files;
    wd_safetensors_entry *entry; /* of all files, by name */
    int64_t count;
    wd_safetensors_entry *scale;          /* taken from them by wd_safetensors_pair_scales */
    wd_safetensors_entry *expected_scale; /* [count] of an overlay that is not there yet; or NULL */
    char *names; /* that wd_safetensors_rename has given, one after the other */
};

/* Whether a tensor of this name is a scale; *base: the length of the name without its end. */
bool wd__safetensors_is_scale(const char *name, size_t *base);

/* Gives the set's weight that the scale is of this scale, which stays where it is. */
wd_status wd__safetensors_pair(wd_safetensors *set, const wd_safetensors_entry *scale, size_t base,
                               wd_err *err);

#endif
