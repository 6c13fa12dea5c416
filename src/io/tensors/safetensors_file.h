/* One safetensors or GGUF file of a set, mapped and checked. Internal to safetensors.c. */
#ifndef WD_IO_TENSORS_SAFETENSORS_FILE_H
#define WD_IO_TENSORS_SAFETENSORS_FILE_H

#include <jansson.h>

#include "io/tensors/safetensors.h"

typedef struct wd_safetensors_file {
    char *path;
    char *names; /* the names of all entries, one after the other */
    void *map;
    size_t bytes;
    void *header; /* of GGUF: a copy of the beginning, up to the list of tensors */
    size_t header_bytes;
    wd_safetensors_entry *entry; /* in the order of their data */
    int64_t count;
    json_t *metadata; /* object of strings, or NULL */
} wd_safetensors_file;

wd_status wd__safetensors_file_open(wd_safetensors_file *out, const char *path, wd_err *err);
void wd__safetensors_file_close(
    wd_safetensors_file *file); /* a zeroed or partial file is allowed */

#endif
