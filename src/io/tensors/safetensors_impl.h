/* What the files about sets of tensors share: a file of a set, a set, and a file that is written.
 * Private to safetensors*.c and gguf*.c. */
#ifndef WD_IO_TENSORS_SAFETENSORS_IMPL_H
#define WD_IO_TENSORS_SAFETENSORS_IMPL_H

#include <jansson.h>

#include "io/tensors/safetensors.h"

/* One safetensors or GGUF file of a set, mapped and checked. */
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

/* ---- a set ---- */

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

/* ---- files that are written as a stream, whatever their header ---- */

/* What the file is called until it is complete. */
typedef enum wd_safetensors_while {
    WD_WHILE_NAMED,  /* as wd_file_temporary says */
    WD_WHILE_UNNAMED /* nothing, where the file system has such files: see wd_file_unnamed */
} wd_safetensors_while;

/* Starts a file with this header, `header_bytes` long, behind which `data_bytes` will be put. */
wd_status wd__safetensors_begin(wd_safetensors_writer **out, const char *path,
                                wd_safetensors_while named, const void *header, size_t header_bytes,
                                uint64_t data_bytes, wd_err *err);

/* Bytes of data that have been put. */
uint64_t wd__safetensors_bytes_put(const wd_safetensors_writer *writer);

#endif
