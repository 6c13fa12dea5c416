/* NVIDIA GPUs as devices (dev/device.h). A build without CUDA has absent.c in the place of all of
 * src/dev/cuda: it says so, and how to get a build that has it. */
#ifndef WD_DEV_CUDA_H
#define WD_DEV_CUDA_H

#include "dev/device.h"

/* *out = how many GPUs the driver shows to this process; CUDA_VISIBLE_DEVICES is the driver's.
 * WD_UNSUPPORTED: none can be used, since this build has no CUDA, or there is no driver or one that
 * is too old. */
wd_status wd_cuda_count(int *out, wd_err *err);

/* WD_UNSUPPORTED: the driver does not show GPU `number`, from 0, to this process; the message says
 * how many it shows, whether CUDA_VISIBLE_DEVICES hides some, and what to do. Fails as
 * wd_cuda_count does, too. */
wd_status wd_cuda_require(int number, wd_err *err);

enum { WD_CUDA_USABLE_MAX = 64 };

/* The GPUs that this program can use. */
typedef struct wd_cuda_usable {
    int number[WD_CUDA_USABLE_MAX]; /* as the driver counts them, in its order */
    int count;
    bool has_driver; /* the driver's library was found, whether it can be used or not */
    char why[2048];  /* why GPUs, or all of CUDA, cannot be used; "": there is no such reason */
} wd_cuda_usable;

/* Finds the GPUs that the driver shows and that are of sm_80 or later. It never fails: `why` has
 * the reasons. */
void wd_cuda_find_usable(wd_cuda_usable *out);

/* Opens GPU `number`, from 0 as the driver counts them: "cuda:0 (NVIDIA H200, 139 GiB)". Its pool
 * holds what is free when it is opened, less what libraries will take. Two devices may be of one
 * GPU; they share its memory. WD_UNSUPPORTED: no such GPU, a library is missing, or it is older
 * than sm_80. */
wd_status wd_device_open_cuda(wd_device **out, int number, wd_err *err);

#endif
