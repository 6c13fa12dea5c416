/* What the cuda device uses of NCCL: opaque handles, results, the key by which ranks find one
 * another, the beginning of its configuration, and functions.
 *
 * Written from the published interface, so that the cuda device compiles without NVIDIA's headers;
 * where nccl.h is there, abi_nccl_test.c compares everything here with it.
 */
#ifndef WD_DEV_CUDA_API_NCCL_H
#define WD_DEV_CUDA_API_NCCL_H

#include <stddef.h>

#include "dev/cuda/api_driver.h"

typedef struct ncclComm *wd_nccl_comm;

/* Enumerations are `unsigned`: see dev/cuda/api_driver.h. */
typedef unsigned wd_nccl_result, wd_nccl_type;

/* ncclUniqueId: one rank makes it, all ranks of a communicator are told it. */
typedef struct wd_nccl_key {
    char internal[128];
} wd_nccl_key;

/* ncclConfig_t as of version 2.14, which later versions take, too: they read `size` bytes of it
 * and fill in the rest. */
typedef struct wd_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;     /* 0: calls return before they are done; ncclCommGetAsyncError says when */
    int cluster_size; /* of blocks, which version 2.14 does not know */
} wd_nccl_config;

/* X(our name, NVIDIA's name, value). */
#define WD_NCCL_VALUE_MAP(X)                                                                       \
    X(SUCCESS, ncclSuccess, 0)                                                                     \
    X(UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError, 1)                                             \
    X(SYSTEM_ERROR, ncclSystemError, 2)                                                            \
    X(INTERNAL_ERROR, ncclInternalError, 3)                                                        \
    X(INVALID_ARGUMENT, ncclInvalidArgument, 4)                                                    \
    X(INVALID_USAGE, ncclInvalidUsage, 5)                                                          \
    X(REMOTE_ERROR, ncclRemoteError, 6)                                                            \
    X(IN_PROGRESS, ncclInProgress, 7)                                                              \
    X(INT8, ncclInt8, 0)                                                                           \
    X(UNDEFINED, NCCL_CONFIG_UNDEF_INT, -2147483647 - 1)

#define X(name, nvidia_name, value) WD_NCCL_##name = value,
enum { WD_NCCL_VALUE_MAP(X) };
#undef X

#define WD_NCCL_MAGIC 0xcafebeefu
#define WD_NCCL_CONFIG_VERSION 21400u /* 2.14.0 */

/* ---- functions ---- */

/* X(result type, field of wd_cuda_nccl, exported symbol, parameters). */
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
