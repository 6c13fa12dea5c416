/* The functions of NCCL that the cuda device calls.
 * X(result type, field of wd_cuda_nccl, exported symbol, parameters).
 */
#ifndef WD_DEV_CUDA_API_NCCL_H
#define WD_DEV_CUDA_API_NCCL_H

/* ncclResult_t is an enumeration: see dev/cuda/abi.h. */
#define WD_CUDA_NCCL_MAP(X) X(unsigned, get_version, ncclGetVersion, (int *version))

#endif
