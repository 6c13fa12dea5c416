/* Tests: a libcuda.so.1 that shows one GPU without memory, so that a program finds and opens its
 * libraries and then ends with a clear error. All other functions do nothing and return 0. */
#include <stdio.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* Those of the list that are written below. */
#define cuDriverGetVersion of_list_1
#define cuDeviceGetCount of_list_2
#define cuDeviceGetName of_list_3
#define cuDeviceGetAttribute of_list_4
#define cuDevicePrimaryCtxRetain of_list_5
#define cuMemAlloc_v2 of_list_6
#define cuMemGetInfo_v2 of_list_7
#define WD_LIBRARY_LIST "dev/cuda/api_driver.h"
#define WD_LIBRARY_MAP WD_CUDA_DRIVER_MAP
#include "standin/library.c"
#undef cuDriverGetVersion
#undef cuDeviceGetCount
#undef cuDeviceGetName
#undef cuDeviceGetAttribute
#undef cuDevicePrimaryCtxRetain
#undef cuMemAlloc_v2
#undef cuMemGetInfo_v2

wd_cu_result cuDriverGetVersion(int *version)
{
    *version = 13000;
    return WD_CU_SUCCESS;
}

wd_cu_result cuDeviceGetCount(int *count)
{
    *count = 1;
    return WD_CU_SUCCESS;
}

wd_cu_result cuDeviceGetName(char *name, int bytes, wd_cu_device device)
{
    snprintf(name, (size_t)bytes, "GPU without memory");
    return WD_CU_SUCCESS;
}

wd_cu_result cuDeviceGetAttribute(int *value, unsigned attribute, wd_cu_device device)
{
    *value = attribute == WD_CU_DEVICE_CAPABILITY_MAJOR ? 9 : 0;
    return WD_CU_SUCCESS;
}

wd_cu_result cuDevicePrimaryCtxRetain(wd_cu_context *context, wd_cu_device device)
{
    static char it;
    *context = (wd_cu_context)(void *)&it;
    return WD_CU_SUCCESS;
}

wd_cu_result cuMemGetInfo_v2(size_t *free, size_t *total)
{
    *free = *total = (size_t)80 << 30;
    return WD_CU_SUCCESS;
}

wd_cu_result cuMemAlloc_v2(wd_cu_address *address, size_t bytes)
{
    return WD_CU_OUT_OF_MEMORY;
}
