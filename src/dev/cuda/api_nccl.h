/* The functions of NCCL that the cuda device calls.
 * X(result type, field of wd_cuda_nccl, exported symbol, parameters).
 */
#ifndef WD_DEV_CUDA_API_NCCL_H
#define WD_DEV_CUDA_API_NCCL_H

#include "dev/cuda/abi.h"
#include "dev/cuda/abi_nccl.h"

#define WD_CUDA_NCCL_MAP(X)                                                                        \
    X(wd_nccl_result, get_version, ncclGetVersion, (int *version))                                 \
    X(wd_nccl_result, get_key, ncclGetUniqueId, (wd_nccl_key * key))                               \
    X(wd_nccl_result, comm_open, ncclCommInitRankConfig,                                           \
      (wd_nccl_comm * comm, int ranks, wd_nccl_key key, int rank, wd_nccl_config *config))         \
    X(wd_nccl_result, comm_finalize, ncclCommFinalize, (wd_nccl_comm comm))                        \
    X(wd_nccl_result, comm_destroy, ncclCommDestroy, (wd_nccl_comm comm))                          \
    X(wd_nccl_result, comm_get_async_error, ncclCommGetAsyncError,                                 \
      (wd_nccl_comm comm, wd_nccl_result * result))                                                \
    X(const char *, get_error_string, ncclGetErrorString, (wd_nccl_result result))                 \
    X(const char *, get_last_error, ncclGetLastError, (wd_nccl_comm comm))                         \
    X(wd_nccl_result, group_start, ncclGroupStart, (void))                                         \
    X(wd_nccl_result, group_end, ncclGroupEnd, (void))                                             \
    X(wd_nccl_result, send, ncclSend,                                                              \
      (const void *from, size_t count, wd_nccl_type type, int to, wd_nccl_comm comm,               \
       wd_cu_stream stream))                                                                       \
    X(wd_nccl_result, receive, ncclRecv,                                                           \
      (void *to, size_t count, wd_nccl_type type, int from, wd_nccl_comm comm,                     \
       wd_cu_stream stream))

#endif
