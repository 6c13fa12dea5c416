/* Files of tensors that are written as a stream, whatever their header: internal to the writers of
 * safetensors and GGUF files. */
#ifndef WD_IO_SAFETENSORS_WRITER_IMPL_H
#define WD_IO_SAFETENSORS_WRITER_IMPL_H

#include "io/safetensors.h"

/* Starts a file with this header, `header_bytes` long, behind which `data_bytes` will be put. */
wd_status wd_safetensors_begin(wd_safetensors_writer **out, const char *path, const void *header,
                               size_t header_bytes, uint64_t data_bytes, wd_err *err);

/* Bytes of data that have been put. */
uint64_t wd_safetensors_bytes_put(const wd_safetensors_writer *writer);

#endif
