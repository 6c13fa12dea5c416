/* Tests: a libcuda.so.1 with which cuDNN plans, and nothing runs. There is no device; what cuDNN
 * looks up while it plans, and what the program does, is there and does nothing, or gives handles
 * that mean nothing. */
#include <stddef.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Those of the program's list that are written below. */
#define cuInit of_list_1
#define cuDriverGetVersion of_list_2
#define cuGetErrorName of_list_3
#define cuGetErrorString of_list_4
#define cuCtxGetCurrent of_list_5
#define cuModuleLoadData of_list_6
#define cuModuleGetFunction of_list_7
#define WD_LIBRARY_LIST "dev/cuda/api_driver.h"
#define WD_LIBRARY_MAP WD_CUDA_DRIVER_MAP
#include "standin/library.c"
#undef cuInit
#undef cuDriverGetVersion
#undef cuGetErrorName
#undef cuGetErrorString
#undef cuCtxGetCurrent
#undef cuModuleLoadData
#undef cuModuleGetFunction

enum { NO_DEVICE = 100, DRIVER_VERSION = 13000 };

unsigned cuInit(unsigned flags)
{
    return NO_DEVICE;
}

unsigned cuDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return 0;
}

unsigned cuGetErrorName(unsigned result, const char **name)
{
    *name = "CUDA_ERROR_NO_DEVICE";
    return 0;
}

unsigned cuGetErrorString(unsigned result, const char **text)
{
    *text = "there is no device: this driver is for plans only";
    return 0;
}

unsigned cuCtxGetCurrent(void **context)
{
    *context = NULL;
    return 0;
}

/* Functions whose first parameter is where to store a handle. */
#define HANDLE(name)                                                                               \
    unsigned name(void **handle)                                                                   \
    {                                                                                              \
        static char nothing;                                                                       \
        *handle = &nothing;                                                                        \
        return 0;                                                                                  \
    }
HANDLE(cuLibraryLoadData)
HANDLE(cuLibraryGetKernel)
HANDLE(cuKernelGetFunction)
HANDLE(cuModuleLoadData)
HANDLE(cuModuleGetFunction)

unsigned cuLibraryGetKernelCount(unsigned *count)
{
    *count = 1;
    return 0;
}

unsigned cuLibraryEnumerateKernels(void **kernel, unsigned count)
{
    return count ? cuLibraryGetKernel(kernel) : 0;
}

#define NOTHING(name)                                                                              \
    unsigned name(void)                                                                            \
    {                                                                                              \
        return 0;                                                                                  \
    }
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuKernelGetAttribute)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLibraryUnload)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)
