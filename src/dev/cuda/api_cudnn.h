/* The functions of cuDNN that the cuda device calls.
 * X(result type, field of wd_cuda_cudnn, exported symbol, parameters).
 */
#ifndef WD_DEV_CUDA_API_CUDNN_H
#define WD_DEV_CUDA_API_CUDNN_H

#include <stddef.h>

#define WD_CUDA_CUDNN_MAP(X) X(size_t, get_version, cudnnGetVersion, (void))

#endif
