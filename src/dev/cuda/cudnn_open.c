/* See cudnn_open.h. */
#include "dev/cuda/cudnn_open.h"

enum { VERSION_MIN = 91800 };

/* Up to 9.15 attention's backward pass is wrong where the number of keys is no multiple of 128, and
 * before 9.18 its deterministic form is none on an H100 (release notes of cudnn-frontend;
 * NVIDIA-NeMo/Megatron-Bridge#2169). */
static wd_status check_version(size_t version, const char *what, wd_err *err)
{
    if (version < 90000 || version >= 100000)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: expected cuDNN 9, found version number %zu: install "
                       "nvidia-cudnn-cu13 or nvidia-cudnn-cu12 with pip",
                       what, version);
    if (version >= VERSION_MIN) return WD_OK;
    return wd_fail(
        err, WD_UNSUPPORTED,
        "%s: cuDNN %zu.%zu.%zu has known faults: expected 9.18 or later; earlier versions "
        "give wrong gradients of attention for some numbers of keys, or other gradients "
        "each time; a Python environment with PyTorch may have an older cuDNN, which is "
        "found first: install the newest into an environment of its own (pip install "
        "nvidia-cudnn-cu13, or nvidia-cudnn-cu12), and make that the active one",
        what, version / 10000, version / 100 % 100, version % 100);
}

wd_status wd_cudnn_open(wd_cudnn_target *out, const wd_cuda_gpu *gpu, const char *what, wd_err *err)
{
    const wd_cuda_cudnn *cudnn = &gpu->api->cudnn;
    *out = (wd_cudnn_target){0};
    if (!gpu->api->has[WD_CUDA_CUDNN])
        return wd_fail(err, WD_UNSUPPORTED, "%s needs cuDNN 9", what);
    size_t version = cudnn->get_version();
    WD_TRY(check_version(version, what, err));
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
