/* A build without CUDA: see dev/cuda.h. */
#include "dev/cuda.h"

#include <stdio.h>

#include "core/error.h"

wd_status wd_cuda_count(int *out, wd_err *err)
{
    *out = 0;
    return wd_fail(
        err, WD_UNSUPPORTED,
        "this build has no CUDA: build it where the CUDA toolkit (nvcc, version 13; 12 "
        "is not tested) is installed, by `make` after `export PATH=/usr/local/cuda/bin:$PATH`");
}

wd_status wd_cuda_require(int number, wd_err *err)
{
    int count;
    (void)number;
    return wd_cuda_count(&count, err);
}

void wd_cuda_find_usable(wd_cuda_usable *out)
{
    int count;
    wd_err err;
    *out = (wd_cuda_usable){0};
    wd_cuda_count(&count, &err);
    snprintf(out->why, sizeof out->why, "%s", err.message);
}

wd_status wd_device_open_cuda(wd_device **out, int number, wd_err *err)
{
    (void)out;
    return wd_cuda_require(number, err);
}
