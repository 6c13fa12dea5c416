/* Reads and writes the tensor files of `forward`, and of `sample` with --latents and --trace. */
#ifndef WD_API_JOBS_TENSOR_FILE_H
#define WD_API_JOBS_TENSOR_FILE_H

#include "io/tensors/safetensors.h"

/* Reads the tensor `name` of an open file as fp32 (exact for all number types but F64 and I64
 * beyond 2^24). Its shape is written to dim[ndim]; the caller frees *out with wd_free. If the
 * tensor is missing, or has another number of dimensions, the error says what the file has. */
wd_status wd__tensor_file_floats(float **out, int64_t *dim, int ndim, const wd_safetensors *file,
                                 const char *name, wd_err *err);

/* Reads a tensor of integers, which must fit into int32_t. */
wd_status wd__tensor_file_ints(int32_t **out, int64_t *dim, int ndim, const wd_safetensors *file,
                               const char *name, wd_err *err);

/* A tensor that will be written; `data` is borrowed. */
typedef struct wd_tensor_out {
    wd_safetensors_item item;
    const void *data;
} wd_tensor_out;

wd_tensor_out wd__tensor_out_of(const char *name, wd_dtype dtype, const void *data,
                                const int64_t *dim, int ndim);

/* Call it before computing. It refuses a `path` that cannot be written, or at which there is a file
 * that wd__tensor_file_write has not written, such as a model, or the input file `in` (NULL: none).
 * `option` is the name of the option with the path. */
wd_status wd__tensor_file_check(const char *path, const char *option, const char *in, wd_err *err);

wd_status wd__tensor_file_write(const char *path, const wd_tensor_out *tensors, int64_t count,
                                wd_err *err);

#endif
