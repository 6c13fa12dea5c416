/* The functions of NVIDIA's driver and libraries that the cuda device calls, looked up at run time.
 *
 * One table has a sub-table of function pointers per library, made from the lists in api_driver.h,
 * api_lt.h, api_cudnn.h and api_nccl.h. A library is opened when it is first needed: so one program
 * runs with and without each of them, and says which one is missing, where it was looked for, and
 * how to install it. Tests put a stand-in in the place of the whole table.
 */
#ifndef WD_DEV_CUDA_API_H
#define WD_DEV_CUDA_API_H

#include "core/error.h"
#include "dev/cuda/api_cudnn.h"
#include "dev/cuda/api_driver.h"
#include "dev/cuda/api_lt.h"
#include "dev/cuda/api_nccl.h"

#define X(result, field, symbol, parameters) result(*field) parameters;
typedef struct wd_cuda_driver {
    WD_CUDA_DRIVER_MAP(X)
} wd_cuda_driver;
typedef struct wd_cuda_lt {
    WD_CUDA_LT_MAP(X)
} wd_cuda_lt;
typedef struct wd_cuda_cudnn {
    WD_CUDA_CUDNN_MAP(X)
} wd_cuda_cudnn;
typedef struct wd_cuda_nccl {
    WD_CUDA_NCCL_MAP(X)
} wd_cuda_nccl;
#undef X

typedef enum wd_cuda_library {
    WD_CUDA_DRIVER,
    WD_CUDA_LT,
    WD_CUDA_CUDNN,
    WD_CUDA_NCCL,
    WD_CUDA_LIBRARIES
} wd_cuda_library;

typedef struct wd_cuda_api {
    bool has[WD_CUDA_LIBRARIES]; /* which of the sub-tables below are filled */
    wd_cuda_driver driver;
    wd_cuda_lt lt;
    wd_cuda_cudnn cudnn;
    wd_cuda_nccl nccl;
} wd_cuda_api;

/* Makes sure that the table has `library`, opening it (and first the driver, whose version decides
 * which versions of the others can be used) if no call has done so yet. *out is valid for ever, and
 * its sub-tables of libraries that were needed before never change. WD_UNSUPPORTED: the library is
 * missing, too old or damaged; the message says where it was looked for and how to install it.
 * Several threads may call it. */
wd_status wd__cuda_api_need(const wd_cuda_api **out, wd_cuda_library library, wd_err *err);

/* Whether a call for WD_CUDA_DRIVER has found the driver's library, be it usable or not. */
bool wd__cuda_api_found_driver(void);

/* Whether NVRTC, with which cuDNN compiles attention, was missing when cuDNN was opened. */
bool wd__cuda_api_lacks_nvrtc(void);

/* Tests: the table to use from now on, borrowed; NULL: NVIDIA's libraries again. No device may be
 * open. */
void wd__cuda_api_use(const wd_cuda_api *api);

/* Looks up all functions of `library` in `handle` (of dlopen) and stores them in their sub-table of
 * `api`. WD_UNSUPPORTED: one is missing, which the message names with `path`. */
wd_status wd__cuda_api_fill(wd_cuda_api *api, wd_cuda_library library, void *handle,
                            const char *path, wd_err *err);

#endif
