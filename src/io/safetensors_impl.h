/* A set of files with tensors. Private to safetensors*.c. */
#ifndef WD_IO_SAFETENSORS_IMPL_H
#define WD_IO_SAFETENSORS_IMPL_H

#include "io/safetensors_file.h"

struct wd_safetensors {
    wd_safetensors_file *file;
    int64_t files;
    wd_safetensors_entry *entry; /* of all files, by name */
    int64_t count;
    wd_safetensors_entry *scale; /* taken from them by wd_safetensors_pair_scales */
    char *names;                 /* that wd_safetensors_rename has given, one after the other */
};

#endif
