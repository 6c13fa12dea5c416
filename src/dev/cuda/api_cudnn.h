/* The functions of cuDNN that the cuda device calls.
 * X(result type, field of wd_cuda_cudnn, exported symbol, parameters).
 */
#ifndef WD_DEV_CUDA_API_CUDNN_H
#define WD_DEV_CUDA_API_CUDNN_H

#include "dev/cuda/abi.h"
#include "dev/cuda/abi_cudnn.h"

#define WD_CUDA_CUDNN_MAP(X)                                                                       \
    X(size_t, get_version, cudnnGetVersion, (void))                                                \
    X(const char *, error_string, cudnnGetErrorString, (wd_cudnn_status status))                   \
    X(void, last_error, cudnnGetLastErrorString, (char *message, size_t bytes))                    \
    X(wd_cudnn_status, create, cudnnCreate, (wd_cudnn_handle * handle))                            \
    X(wd_cudnn_status, destroy, cudnnDestroy, (wd_cudnn_handle handle))                            \
    X(wd_cudnn_status, set_stream, cudnnSetStream, (wd_cudnn_handle handle, wd_cu_stream stream))  \
    X(wd_cudnn_status, descriptor_create, cudnnBackendCreateDescriptor,                            \
      (wd_cudnn_backend kind, wd_cudnn_descriptor * descriptor))                                   \
    X(wd_cudnn_status, descriptor_destroy, cudnnBackendDestroyDescriptor,                          \
      (wd_cudnn_descriptor descriptor))                                                            \
    X(wd_cudnn_status, finalize, cudnnBackendFinalize, (wd_cudnn_descriptor descriptor))           \
    X(wd_cudnn_status, set, cudnnBackendSetAttribute,                                              \
      (wd_cudnn_descriptor descriptor, wd_cudnn_attr attribute, wd_cudnn_type type, int64_t count, \
       const void *elements))                                                                      \
    X(wd_cudnn_status, get, cudnnBackendGetAttribute,                                              \
      (wd_cudnn_descriptor descriptor, wd_cudnn_attr attribute, wd_cudnn_type type,                \
       int64_t requested, int64_t * count, void *elements))                                        \
    X(wd_cudnn_status, execute, cudnnBackendExecute,                                               \
      (wd_cudnn_handle handle, wd_cudnn_descriptor plan, wd_cudnn_descriptor variant_pack))

#endif
