/* The functions of the CUDA driver, libcuda.so.1, that the cuda device calls.
 * X(result type, field of wd_cuda_driver, exported symbol, parameters).
 *
 * Symbols carry the version that both CUDA 12 and CUDA 13 drivers export, such as cuMemAlloc_v2.
 */
#ifndef WD_DEV_CUDA_API_DRIVER_H
#define WD_DEV_CUDA_API_DRIVER_H

#include "dev/cuda/abi.h"

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
    X(wd_cu_result, func_set_attribute, cuFuncSetAttribute,                                        \
      (wd_cu_function function, unsigned attribute, int value))                                    \
    X(wd_cu_result, launch_kernel, cuLaunchKernel,                                                 \
      (wd_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       wd_cu_stream stream, void **parameters, void **extra))

#endif
