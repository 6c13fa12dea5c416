/* Files of tensors that are written as a stream, whatever their header: internal to the writers of
 * safetensors and GGUF files. */
#ifndef WD_IO_TENSORS_SAFETENSORS_WRITER_IMPL_H
#define WD_IO_TENSORS_SAFETENSORS_WRITER_IMPL_H

#include "io/tensors/safetensors.h"

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
