/* The part of the CUDA driver's binary interface that the cuda device uses: types, constants, and
 * through api_driver.h the signatures of functions. It is declared here, after NVIDIA's
 * documentation of the CUDA Driver API (versions 12 and 13), so that the device compiles on
 * machines without a CUDA toolkit. abi_test.c compares everything in this file with NVIDIA's own
 * header where there is one.
 *
 * Names: wd_cu_x is the driver's CUx. Handles are pointers to the driver's own incomplete structs;
 * enumerations are `unsigned`, which is how the compilers that we support pass them.
 */
#ifndef WD_DEV_CUDA_ABI_H
#define WD_DEV_CUDA_ABI_H

#include <stddef.h>

typedef unsigned wd_cu_result;            /* CUresult: 0, or why a call failed */
typedef int wd_cu_device;                 /* CUdevice: the number of a GPU */
typedef unsigned long long wd_cu_address; /* CUdeviceptr: an address in a GPU's memory */
typedef struct CUctx_st *wd_cu_context;
typedef struct CUmod_st *wd_cu_module;
typedef struct CUfunc_st *wd_cu_function;
typedef struct CUstream_st *wd_cu_stream;
typedef struct CUevent_st *wd_cu_event;

/* Results that the device tells apart. X(our name, the driver's name, value). */
#define WD_CU_RESULT_MAP(X)                                                                        \
    X(SUCCESS, CUDA_SUCCESS, 0)                                                                    \
    X(INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 1)                                                  \
    X(OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)                                                  \
    X(NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED, 3)                                              \
    X(DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                       \
    X(NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                                                        \
    X(INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE, 101)                                              \
    X(INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE, 200)                                                \
    X(INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201)                                            \
    X(NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                        \
    X(INVALID_PTX, CUDA_ERROR_INVALID_PTX, 218)                                                    \
    X(UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                            \
    X(INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400)                                              \
    X(NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                                                        \
    X(NOT_READY, CUDA_ERROR_NOT_READY, 600)                                                        \
    X(ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                            \
    X(PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                    \
    X(HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)              \
    X(LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, 719)                                                \
    X(NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801)                                                \
    X(SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY, 802)

/* What cuDeviceGetAttribute and cuFuncSetAttribute are asked for, and flags. */
#define WD_CU_VALUE_MAP(X)                                                                         \
    X(DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                        \
    X(DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                   \
    X(DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                   \
    X(DEVICE_SHARED_BYTES_MAX, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)          \
    X(FUNCTION_SHARED_BYTES_MAX, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)               \
    X(STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1)                                              \
    X(EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING, 2)                                            \
    X(HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)                                            \
    X(HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, 1)

/* What the elements of cuLaunchKernel's `extra` are: a struct's address, its size; then 0. The
 * driver has these as pointers. */
enum { WD_CU_LAUNCH_BUFFER_POINTER = 1, WD_CU_LAUNCH_BUFFER_SIZE = 2 };

#define X(name, driver_name, value) WD_CU_##name = value,
enum { WD_CU_RESULT_MAP(X) };
enum { WD_CU_VALUE_MAP(X) };
#undef X

#endif
