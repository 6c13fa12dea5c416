/* The GPU of tests that run both on the stand-in and on real GPUs. With WD_ON_STANDIN it is the
 * stand-in's; else it is the one that WD_TEST_DEVICE names, such as cuda:1, or the first one of
 * this machine. Where there is none, the program says why and ends with exit code 77. */
#ifndef WD_TESTS_KERNELS_TESTED_GPU_H
#define WD_TESTS_KERNELS_TESTED_GPU_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cuda.h"
#ifdef WD_ON_STANDIN
#include "standin/driver.h"
#endif

/* The number of the GPU that an environment variable names, "cuda:1"; `otherwise`: it names none.
 */
static inline int tested_gpu_named(const char *variable, int otherwise)
{
    const char *said = getenv(variable);
    return said && !strncmp(said, "cuda:", 5) ? atoi(said + 5) : otherwise;
}

static inline int tested_gpu_number(void)
{
    return tested_gpu_named("WD_TEST_DEVICE", 0);
}

/* The GPU that copies go to from the tested one: the one that WD_TEST_OTHER_DEVICE names. Without
 * that variable it is the second one of the stand-in, else the tested one itself. */
static inline int tested_gpu_other(void)
{
#ifdef WD_ON_STANDIN
    return tested_gpu_named("WD_TEST_OTHER_DEVICE", 1);
#else
    return tested_gpu_named("WD_TEST_OTHER_DEVICE", tested_gpu_number());
#endif
}

/* Puts the stand-in of driver, libraries and, if `nccl`, NCCL in the place of the real ones. */
static inline void tested_gpu_begin(bool nccl)
{
#ifdef WD_ON_STANDIN
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.nccl = nccl;
    wd_standin_install_all(&options);
#else
    (void)nccl;
#endif
}

/* Ends the program if `status` says that there is no such GPU, or another failure. */
static inline void tested_gpu_require(wd_status status, const char *what, const wd_err *err)
{
    if (status == WD_OK) return;
    printf("not tested here: %s: %s\n", what, err->message);
    fflush(stdout);
    exit(status == WD_UNSUPPORTED ? 77 : EXIT_FAILURE);
}

#endif
