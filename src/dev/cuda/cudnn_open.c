/* See cudnn_open.h. */
#include "dev/cuda/cudnn_open.h"

wd_status wd_cudnn_open(wd_cudnn_target *out, const wd_cuda_gpu *gpu, const char *what, wd_err *err)
{
    const wd_cuda_cudnn *cudnn = &gpu->api->cudnn;
    *out = (wd_cudnn_target){0};
    if (!gpu->api->has[WD_CUDA_CUDNN])
        return wd_fail(err, WD_UNSUPPORTED, "%s needs cuDNN 9", what);
    size_t version = cudnn->get_version();
    if (version / 10000 != 9)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s needs cuDNN 9, and this is version number %zu: install "
                       "nvidia-cudnn-cu13 or nvidia-cudnn-cu12 with pip",
                       what, version);
    wd_cudnn_handle handle = NULL;
    wd_cudnn_status status = cudnn->create(&handle);
    if (status)
        return wd_fail(
            err,
            status == WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ? WD_OUT_OF_MEMORY
                                                                            : WD_UNSUPPORTED,
            "cuDNN %zu does not work on this GPU: %s", version, cudnn->error_string(status));
    *out = (wd_cudnn_target){.cudnn = cudnn, .handle = handle};
    return WD_OK;
}

void wd_cudnn_close(wd_cudnn_target *target)
{
    if (target->handle) target->cudnn->destroy(target->handle);
    *target = (wd_cudnn_target){0};
}

wd_status wd_cudnn_use_stream(const wd_cudnn_target *target, wd_cu_stream stream, wd_err *err)
{
    wd_cudnn_status status = target->cudnn->set_stream(target->handle, stream);
    if (!status) return WD_OK;
    return wd_fail(err, WD_INTERNAL, "cuDNN %zu refused a stream: %s", target->cudnn->get_version(),
                   target->cudnn->error_string(status));
}
