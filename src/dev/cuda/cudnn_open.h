/* A handle of cuDNN for one GPU, as attention.c and conv.c each have one. */
#ifndef WD_DEV_CUDA_CUDNN_OPEN_H
#define WD_DEV_CUDA_CUDNN_OPEN_H

#include "dev/cuda/cudnn_graph.h"
#include "dev/cuda/library.h"

/* *out is zeroed where there is an error. `what` needs it: "attention on a GPU". WD_UNSUPPORTED,
 * WD_OUT_OF_MEMORY. */
wd_status wd_cudnn_open(wd_cudnn_target *out, const wd_cuda_gpu *gpu, const char *what,
                        wd_err *err);
void wd_cudnn_close(wd_cudnn_target *target); /* of a zeroed one, too */

/* What runs from now on, runs on the stream. WD_INTERNAL. */
wd_status wd_cudnn_use_stream(const wd_cudnn_target *target, wd_cu_stream stream, wd_err *err);

#endif
