/* What the cuda device uses of the CUDA driver, libcuda.so.1: types, constants and functions.
 *
 * They are declared here, after NVIDIA's documentation of the CUDA Driver API (versions 12 and 13),
 * so that the device compiles on machines without a CUDA toolkit. abi_test.c compares everything in
 * this file with NVIDIA's own header where there is one.
 *
 * Names: wd_cu_x is the driver's CUx. Handles are pointers to the driver's own incomplete structs;
 * enumerations are `unsigned`, which is how the compilers that we support pass them.
 */
#ifndef WD_DEV_CUDA_API_DRIVER_H
#define WD_DEV_CUDA_API_DRIVER_H

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

/* What cuDeviceGetAttribute is asked for, and flags. */
#define WD_CU_VALUE_MAP(X)                                                                         \
    X(DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                        \
    X(DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                   \
    X(DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                   \
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

/* ---- functions ---- */

/* X(result type, field of wd_cuda_driver, exported symbol, parameters). Symbols carry the version
 * that both CUDA 12 and CUDA 13 drivers export, such as cuMemAlloc_v2. */
#define WD_CUDA_DRIVER_MAP(X)                                                                      \
    X(wd_cu_result, init, cuInit, (unsigned flags))                                                \
    X(wd_cu_result, driver_get_version, cuDriverGetVersion, (int *version))                        \
    X(wd_cu_result, get_error_name, cuGetErrorName, (wd_cu_result result, const char **name))      \
    X(wd_cu_result, get_error_string, cuGetErrorString, (wd_cu_result result, const char **text))  \
    X(wd_cu_result, device_get_count, cuDeviceGetCount, (int *count))                              \
    X(wd_cu_result, device_get, cuDeviceGet, (wd_cu_device * device, int ordinal))                 \
    X(wd_cu_result, device_get_name, cuDeviceGetName,                                              \
      (char *name, int name_bytes, wd_cu_device device))                                           \
    X(wd_cu_result, device_get_attribute, cuDeviceGetAttribute,                                    \
      (int *value, unsigned attribute, wd_cu_device device))                                       \
    X(wd_cu_result, device_get_pci_bus_id, cuDeviceGetPCIBusId,                                    \
      (char *text, int text_bytes, wd_cu_device device))                                           \
    X(wd_cu_result, device_total_mem, cuDeviceTotalMem_v2, (size_t * bytes, wd_cu_device device))  \
    X(wd_cu_result, device_can_access_peer, cuDeviceCanAccessPeer,                                 \
      (int *can, wd_cu_device device, wd_cu_device peer))                                          \
    X(wd_cu_result, device_primary_ctx_retain, cuDevicePrimaryCtxRetain,                           \
      (wd_cu_context * context, wd_cu_device device))                                              \
    X(wd_cu_result, ctx_set_current, cuCtxSetCurrent, (wd_cu_context context))                     \
    X(wd_cu_result, ctx_get_current, cuCtxGetCurrent, (wd_cu_context * context))                   \
    X(wd_cu_result, ctx_synchronize, cuCtxSynchronize, (void))                                     \
    X(wd_cu_result, ctx_enable_peer_access, cuCtxEnablePeerAccess,                                 \
      (wd_cu_context peer, unsigned flags))                                                        \
    X(wd_cu_result, mem_get_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                \
    X(wd_cu_result, mem_alloc, cuMemAlloc_v2, (wd_cu_address * address, size_t bytes))             \
    X(wd_cu_result, mem_free, cuMemFree_v2, (wd_cu_address address))                               \
    X(wd_cu_result, mem_host_alloc, cuMemHostAlloc, (void **block, size_t bytes, unsigned flags))  \
    X(wd_cu_result, mem_free_host, cuMemFreeHost, (void *block))                                   \
    X(wd_cu_result, mem_host_register, cuMemHostRegister_v2,                                       \
      (void *block, size_t bytes, unsigned flags))                                                 \
    X(wd_cu_result, mem_host_unregister, cuMemHostUnregister, (void *block))                       \
    X(wd_cu_result, mem_copy, cuMemcpy, (wd_cu_address to, wd_cu_address from, size_t bytes))      \
    X(wd_cu_result, memcpy_async, cuMemcpyAsync,                                                   \
      (wd_cu_address to, wd_cu_address from, size_t bytes, wd_cu_stream stream))                   \
    X(wd_cu_result, memcpy_peer_async, cuMemcpyPeerAsync,                                          \
      (wd_cu_address to, wd_cu_context to_context, wd_cu_address from, wd_cu_context from_context, \
       size_t bytes, wd_cu_stream stream))                                                         \
    X(wd_cu_result, memset_d8_async, cuMemsetD8Async,                                              \
      (wd_cu_address to, unsigned char value, size_t bytes, wd_cu_stream stream))                  \
    X(wd_cu_result, stream_create, cuStreamCreate, (wd_cu_stream * stream, unsigned flags))        \
    X(wd_cu_result, stream_destroy, cuStreamDestroy_v2, (wd_cu_stream stream))                     \
    X(wd_cu_result, stream_synchronize, cuStreamSynchronize, (wd_cu_stream stream))                \
    X(wd_cu_result, stream_wait_event, cuStreamWaitEvent,                                          \
      (wd_cu_stream stream, wd_cu_event event, unsigned flags))                                    \
    X(wd_cu_result, event_create, cuEventCreate, (wd_cu_event * event, unsigned flags))            \
    X(wd_cu_result, event_destroy, cuEventDestroy_v2, (wd_cu_event event))                         \
    X(wd_cu_result, event_record, cuEventRecord, (wd_cu_event event, wd_cu_stream stream))         \
    X(wd_cu_result, event_synchronize, cuEventSynchronize, (wd_cu_event event))                    \
    X(wd_cu_result, event_query, cuEventQuery, (wd_cu_event event))                                \
    X(wd_cu_result, module_load_data, cuModuleLoadData,                                            \
      (wd_cu_module * module, const void *image))                                                  \
    X(wd_cu_result, module_unload, cuModuleUnload, (wd_cu_module module))                          \
    X(wd_cu_result, module_get_function, cuModuleGetFunction,                                      \
      (wd_cu_function * function, wd_cu_module module, const char *name))                          \
    X(wd_cu_result, launch_kernel, cuLaunchKernel,                                                 \
      (wd_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       wd_cu_stream stream, void **parameters, void **extra))

#endif
