/* Opens a GPU step by step, and prints as JSON what a report needs of it: attributes, versions and
 * files of the libraries, and after each step the seconds that it took and the memory that is free.
 * A step that fails is printed with its error, and the others follow. On the stand-ins, and, built
 * once more, on a GPU (kernels/tested_gpu.h). */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "dev/cuda/impl.h"
#include "io/json/json.h"
#include "kernels/tested_gpu.h"

enum { ATTRIBUTES = 160, DESCRIPTION_BYTES = 1 << 16 };

typedef struct report {
    json_t *all, *steps;
    wd_cuda_device *device; /* with our kernels alone, until steps open the libraries */
    double begun;
    bool failed;
} report;

static void begin_step(report *r)
{
    r->begun = wd_clock_s();
}

/* Ends a step: its seconds, the memory that is then free, and its error. */
static void end_step(report *r, const char *name, wd_status status, const wd_err *err)
{
    size_t free = 0, total = 0;
    json_t *step = json_object();
    json_object_set_new(step, "step", json_string(name));
    json_object_set_new(step, "seconds", json_real(wd_clock_s() - r->begun));
    if (r->device && !wd__cuda_driver_of(r->device)->mem_get_info(&free, &total))
        json_object_set_new(step, "bytes_free", json_integer((json_int_t)free));
    if (status != WD_OK) json_object_set_new(step, "error", wd_json_string(err->message));
    r->failed |= status != WD_OK;
    json_array_append_new(r->steps, step);
}

static void add_gpu(const report *r)
{
    const wd_cuda_driver *driver = wd__cuda_driver_of(r->device);
    json_t *attributes = json_object();
    size_t bytes = 0;
    int version = 0, value = 0;
    driver->driver_get_version(&version);
    driver->device_total_mem(&bytes, r->device->gpu.number);
    for (unsigned i = 1; i < ATTRIBUTES; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        if (!driver->device_get_attribute(&value, i, r->device->gpu.number))
            json_object_set_new(attributes, number, json_integer(value));
    }
    json_object_set_new(r->all, "name", wd_json_string(wd_device_name(&r->device->base)));
    json_object_set_new(r->all, "driver_cuda_version", json_integer(version));
    json_object_set_new(r->all, "bytes_total", json_integer((json_int_t)bytes));
    json_object_set_new(r->all, "attributes", attributes);
}

/* What cuDNN knows of the GPU; plans can be made for it elsewhere with this text. */
static wd_status describe_for_cudnn(const report *r, wd_err *err)
{
    const wd_cuda_api *api = r->device->gpu.api;
    const wd_cuda_cudnn *cudnn = &api->cudnn;
    wd_cudnn_handle handle = NULL;
    wd_cudnn_descriptor d = NULL;
    int64_t count = 0;
    char *text = calloc(1, DESCRIPTION_BYTES);
    wd_cudnn_status s = cudnn->create(&handle);
    if (!s) s = cudnn->descriptor_create(WD_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
    if (!s) s = cudnn->set(d, WD_CUDNN_ATTR_DEVICEPROP_HANDLE, WD_CUDNN_TYPE_HANDLE, 1, &handle);
    if (!s) s = cudnn->finalize(d);
    if (!s)
        s = cudnn->get(d, WD_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, WD_CUDNN_TYPE_CHAR,
                       DESCRIPTION_BYTES - 1, &count, text);
    if (!s) json_object_set_new(r->all, "cudnn_device", wd_json_string(text));
    if (d) cudnn->descriptor_destroy(d);
    if (handle) cudnn->destroy(handle);
    free(text);
    return s ? wd_fail(err, WD_UNSUPPORTED, "cuDNN does not describe the GPU: %s",
                       cudnn->error_string(s))
             : WD_OK;
}

static int add_file(struct dl_phdr_info *info, size_t bytes, void *files)
{
    (void)bytes;
    const char *name = strrchr(info->dlpi_name, '/');
    if (name && (!strncmp(name, "/libcu", 6) || !strncmp(name, "/libnv", 6) ||
                 !strncmp(name, "/libnccl", 8)))
        json_array_append_new(files, wd_json_string(info->dlpi_name));
    return 0;
}

static void add_files(const report *r)
{
    json_t *files = json_array();
    dl_iterate_phdr(add_file, files);
    json_object_set_new(r->all, "files", files);
}

static void open_products(report *r)
{
    wd_err err;
    wd_cuda_device *d = r->device;
    begin_step(r);
    wd_status status = wd__cuda_api_need(&d->gpu.api, WD_CUDA_LT, &err);
    end_step(r, "find cuBLASLt", status, &err);
    if (status != WD_OK) return;
    json_object_set_new(r->all, "cublaslt_version",
                        json_integer((json_int_t)d->gpu.api->lt.get_version()));
    begin_step(r);
    status = wd__cuda_products_open(&d->products, &d->gpu, &d->base, &err);
    end_step(r, "open cuBLASLt and check its products", status, &err);
}

static void open_cudnn(report *r)
{
    wd_err err;
    wd_cuda_device *d = r->device;
    begin_step(r);
    wd_status status = wd__cuda_api_need(&d->gpu.api, WD_CUDA_CUDNN, &err);
    end_step(r, "find cuDNN", status, &err);
    if (status != WD_OK) return;
    json_object_set_new(r->all, "cudnn_version",
                        json_integer((json_int_t)d->gpu.api->cudnn.get_version()));
    begin_step(r);
    status = describe_for_cudnn(r, &err);
    const bool failed = r->failed;
    end_step(r, "describe the GPU by cuDNN", status, &err);
    r->failed = failed; /* nothing else needs the description */
    begin_step(r);
    status = wd__cuda_attention_open(&d->attention, &d->gpu, &err);
    end_step(r, "open attention by cuDNN", status, &err);
    begin_step(r);
    status = wd__cuda_conv_open(&d->conv, &d->gpu, &err);
    end_step(r, "open convolutions by cuDNN", status, &err);
}

static void find_nccl(report *r)
{
    wd_err err;
    int version = 0;
    begin_step(r);
    const wd_status status = wd__cuda_api_need(&r->device->gpu.api, WD_CUDA_NCCL, &err);
    end_step(r, "find NCCL", status, &err);
    if (status != WD_OK || r->device->gpu.api->nccl.get_version(&version)) return;
    json_object_set_new(r->all, "nccl_version", json_integer(version));
}

int main(void)
{
    report r = {.all = json_object(), .steps = json_array()};
    wd_device *device = NULL;
    wd_err err;
    tested_gpu_begin(true);
    begin_step(&r);
    wd_status status = wd__cuda_open_kernels(&device, tested_gpu_number(), &err);
    tested_gpu_require(status, "a GPU", &err);
    r.device = wd__cuda_of(device);
    end_step(&r, "open the context and load our kernels", status, &err);
    add_gpu(&r);
    open_products(&r);
    open_cudnn(&r);
    find_nccl(&r);
    add_files(&r);
    json_object_set_new(r.all, "steps", r.steps);
    char *text = json_dumps(r.all, JSON_INDENT(1));
    if (text) puts(text);
    free(text);
    json_decref(r.all);
    wd_device_close(device);
    return r.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
