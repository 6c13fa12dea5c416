/* What a caller of NCCL needs to know of its binary interface: opaque handles, results, the key by
 * which ranks find one another, and the beginning of its configuration. Written from the published
 * interface, so that the cuda device compiles without NVIDIA's headers; where nccl.h is there,
 * abi_nccl_test.c compares everything here with it.
 */
#ifndef WD_DEV_CUDA_ABI_NCCL_H
#define WD_DEV_CUDA_ABI_NCCL_H

#include <stddef.h>

typedef struct ncclComm *wd_nccl_comm;

/* Enumerations are `unsigned`: see dev/cuda/abi.h. */
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

#endif
