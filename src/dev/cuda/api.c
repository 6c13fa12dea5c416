/* See dev/cuda/api.h. */
#include "dev/cuda/api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "dev/cuda/lookup.h"

/* ---- tables from a library that is open ---- */

/* A function of a list: its name in the library, and where its pointer belongs. */
typedef struct symbol {
    const char *name;
    void *to; /* a pointer to a function, which ISO C cannot convert from what dlsym returns */
} symbol;

static wd_status fill(const symbol *s, size_t count, void *handle, const char *path, wd_err *err)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(handle, s[i].name);
        if (!found)
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s has no function %s: it is not the library that its name says, or "
                           "its version is not one that this program can use",
                           path, s[i].name);
        *(void **)s[i].to = found;
    }
    return WD_OK;
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

wd_status wd__cuda_api_fill(wd_cuda_api *api, wd_cuda_library library, void *handle,
                            const char *path, wd_err *err)
{
#define X(result, field, symbol, parameters) {#symbol, &api->driver.field},
    const symbol driver[] = {WD_CUDA_DRIVER_MAP(X)};
#undef X
#define X(result, field, symbol, parameters) {#symbol, &api->lt.field},
    const symbol lt[] = {WD_CUDA_LT_MAP(X)};
#undef X
#define X(result, field, symbol, parameters) {#symbol, &api->cudnn.field},
    const symbol cudnn[] = {WD_CUDA_CUDNN_MAP(X)};
#undef X
#define X(result, field, symbol, parameters) {#symbol, &api->nccl.field},
    const symbol nccl[] = {WD_CUDA_NCCL_MAP(X)};
#undef X
    const symbol *const list[] = {driver, lt, cudnn, nccl};
    const size_t count[] = {COUNT(driver), COUNT(lt), COUNT(cudnn), COUNT(nccl)};
    WD_TRY(fill(list[library], count[library], handle, path, err));
    api->has[library] = true;
    return WD_OK;
}

/* ---- libraries of this machine ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `loaded` */
static wd_cuda_api loaded;
static int driver_version; /* 1000 times the CUDA version that the driver supports, such as 13000 */
static bool lacks_nvrtc;   /* NVRTC was not found, when cuDNN was opened */
static bool driver_found;  /* libcuda.so.1 could be opened, of whatever version it is */
static _Atomic(const wd_cuda_api *) in_use; /* NULL: `loaded` */

/* File names, and what to install, for drivers of CUDA 12 and of CUDA 13 and later. A driver of
 * CUDA 13 also runs libraries that were made for CUDA 12. */
typedef struct product {
    const char *name;
    const char *file[2][3];
} product;

static const product products[] = {
    [WD_CUDA_LT] = {"cuBLASLt",
                    {{"libcublasLt.so.12"}, {"libcublasLt.so.13", "libcublasLt.so.12"}}},
    [WD_CUDA_CUDNN] = {"cuDNN 9", {{"libcudnn.so.9"}, {"libcudnn.so.9"}}},
    [WD_CUDA_NCCL] = {"NCCL", {{"libnccl.so.2"}, {"libnccl.so.2"}}},
};

static const char *const install[2] = {
    "pip install nvidia-cublas-cu12 nvidia-cudnn-cu12 nvidia-cuda-nvrtc-cu12 nvidia-nccl-cu12",
    "pip install nvidia-cublas nvidia-cudnn-cu13 nvidia-cuda-nvrtc nvidia-nccl-cu13",
};

static wd_status load_driver(wd_err *err)
{
    static const char *const file[] = {"libcuda.so.1", NULL};
    wd_cuda_found found;
    wd__cuda_lookup_driver(&found, file);
    driver_found = found.handle != NULL;
    if (!driver_found)
        return wd_fail(err, WD_UNSUPPORTED,
                       "this machine has no NVIDIA driver: libcuda.so.1 was looked for in %s; "
                       "install the driver (version 580 or later), or let the container see it "
                       "(docker run --gpus all)",
                       found.looked);
    WD_TRY(wd__cuda_api_fill(&loaded, WD_CUDA_DRIVER, found.handle, found.path, err));
    const wd_cu_result result = loaded.driver.driver_get_version(&driver_version);
    if (!result && driver_version >= 12000) return WD_OK;
    loaded.has[WD_CUDA_DRIVER] = false;
    return wd_fail(err, WD_UNSUPPORTED,
                   "the NVIDIA driver supports CUDA %d.%d: expected 12.0 or later; install a "
                   "newer driver (version 580 or later)",
                   driver_version / 1000, driver_version % 1000 / 10);
}

static const char *const nvrtc_files[2][3] = {{"libnvrtc.so.12"},
                                              {"libnvrtc.so.13", "libnvrtc.so.12"}};

/* cuDNN calls cuBLASLt, and compiles its attention with NVRTC. It finds both where they have been
 * opened before, wherever they lie. NVRTC in turn opens its builtins by their name alone, when it
 * first compiles: in the folders of pip nobody would find them. */
static void load_nvrtc(bool cuda_13)
{
    wd_cuda_found found;
    wd__cuda_lookup(&found, nvrtc_files[cuda_13]);
    if (found.handle) wd__cuda_lookup_beside(found.handle, "libnvrtc-builtins.so.*");
    lacks_nvrtc = !found.handle;
}

bool wd__cuda_api_lacks_nvrtc(void)
{
    pthread_mutex_lock(&lock);
    const bool lacks = !in_use && lacks_nvrtc;
    pthread_mutex_unlock(&lock);
    return lacks;
}

/* cuBLASLt of a toolkit and cuDNN of a Python environment may not fit each other: a place that has
 * both, and NVRTC, comes first. Once, before the first of them is opened. */
static void prefer_place(bool cuda_13)
{
    const char *const *const sets[] = {products[WD_CUDA_LT].file[cuda_13],
                                       products[WD_CUDA_CUDNN].file[cuda_13], nvrtc_files[cuda_13]};
    if (loaded.has[WD_CUDA_LT] || loaded.has[WD_CUDA_CUDNN] || loaded.has[WD_CUDA_NCCL]) return;
    wd__cuda_lookup_prefer(sets, 3);
}

static wd_status load(wd_cuda_library library, wd_err *err)
{
    if (loaded.has[library]) return WD_OK;
    if (library == WD_CUDA_DRIVER) return load_driver(err);
    WD_TRY(load(WD_CUDA_DRIVER, err));
    const bool cuda_13 = driver_version >= 13000;
    prefer_place(cuda_13);
    if (library == WD_CUDA_CUDNN) {
        WD_TRY(load(WD_CUDA_LT, err));
        load_nvrtc(cuda_13);
    }
    const product *p = &products[library];
    wd_cuda_found found;
    wd__cuda_lookup(&found, p->file[cuda_13]);
    if (!found.handle && library == WD_CUDA_NCCL)
        return wd_fail(err, WD_UNSUPPORTED,
                       "NCCL is missing; install it (%s); %s was looked for in %s",
                       install[cuda_13], p->file[cuda_13][0], found.looked);
    if (!found.handle)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s is missing: %s%s%s was looked for in %s; install it: %s; or say "
                       "--devices cpu (--device cpu) to compute on the processor",
                       p->name, p->file[cuda_13][0], p->file[cuda_13][1] ? " or " : "",
                       p->file[cuda_13][1] ? p->file[cuda_13][1] : "", found.looked,
                       install[cuda_13]);
    return wd__cuda_api_fill(&loaded, library, found.handle, found.path, err);
}

wd_status wd__cuda_api_need(const wd_cuda_api **out, wd_cuda_library library, wd_err *err)
{
    const wd_cuda_api *api = in_use;
    wd_status status = WD_OK;
    if (!api) {
        api = &loaded;
        pthread_mutex_lock(&lock);
        status = load(library, err);
        pthread_mutex_unlock(&lock);
    } else if (!api->has[library]) {
        status = wd_fail(err, WD_UNSUPPORTED, "%s is missing from the table that stands in for it",
                         library == WD_CUDA_DRIVER ? "the driver" : products[library].name);
    }
    if (status == WD_OK) *out = api;
    return status;
}

bool wd__cuda_api_found_driver(void)
{
    pthread_mutex_lock(&lock);
    const bool found = in_use || driver_found;
    pthread_mutex_unlock(&lock);
    return found;
}

void wd__cuda_api_use(const wd_cuda_api *api)
{
    in_use = api;
}
