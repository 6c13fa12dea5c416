/* NVIDIA GPUs as devices (dev/device.h). A build without CUDA has absent.c in the place of all of
 * src/dev/cuda: it says so, and how to get a build that has it. */
#ifndef WD_DEV_CUDA_CUDA_H
#define WD_DEV_CUDA_CUDA_H

#include "dev/device.h"

/* *out = how many GPUs the driver shows to this process; CUDA_VISIBLE_DEVICES is the driver's.
 * WD_UNSUPPORTED: none can be used, since this build has no CUDA, or there is no driver or one that
 * is too old. */
wd_status wd_cuda_count(int *out, wd_err *err);

/* Opens GPU `number`, from 0 as the driver counts them: "cuda:0 (NVIDIA H200, 139 GiB)". Its pool
 * holds what is free when it is opened, less what libraries will take. Two devices may be of one
 * GPU; they share its memory. WD_UNSUPPORTED: no such GPU, a library is missing, or it is older
 * than sm_80. */
wd_status wd_device_open_cuda(wd_device **out, int number, wd_err *err);

#endif
