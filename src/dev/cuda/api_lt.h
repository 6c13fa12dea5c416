/* The functions of cuBLASLt that the cuda device calls.
 * X(result type, field of wd_cuda_lt, exported symbol, parameters).
 */
#ifndef WD_DEV_CUDA_API_LT_H
#define WD_DEV_CUDA_API_LT_H

#include <stddef.h>

#define WD_CUDA_LT_MAP(X) X(size_t, get_version, cublasLtGetVersion, (void))

#endif
