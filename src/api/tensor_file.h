/* Tensors from and to the files that a user hands over: `forward`, and `sample` with --latents and
 * --trace. */
#ifndef WD_API_TENSOR_FILE_H
#define WD_API_TENSOR_FILE_H

#include "io/safetensors.h"

/* The tensor `name` of an open file as fp32 (any number type but F64 and I64 beyond 2^24 is exact):
 * *out is the caller's to wd_free, its sizes go to dim[ndim]. A missing tensor, or one with another
 * number of dimensions, is an error with what there is. */
wd_status wd_tensor_file_floats(float **out, int64_t *dim, int ndim, const wd_safetensors *file,
                                const char *name, wd_err *err);

/* The same for integers, which must fit. */
wd_status wd_tensor_file_ints(int32_t **out, int64_t *dim, int ndim, const wd_safetensors *file,
                              const char *name, wd_err *err);

/* A tensor to be written: `data` is borrowed. */
typedef struct wd_tensor_out {
    wd_safetensors_item item;
    const void *data;
} wd_tensor_out;

wd_tensor_out wd_tensor_out_of(const char *name, wd_dtype dtype, const void *data,
                               const int64_t *dim, int ndim);

/* Before anything is computed: refuses a `path` that cannot be written, or at which there is a file
 * that wd_tensor_file_write did not write, such as a model, or the one that is read (`in`; NULL:
 * none). `option` is where the path comes from. */
wd_status wd_tensor_file_check(const char *path, const char *option, const char *in, wd_err *err);

wd_status wd_tensor_file_write(const char *path, const wd_tensor_out *tensors, int64_t count,
                               wd_err *err);

#endif
