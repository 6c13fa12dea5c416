/* Which library or kernel an operation goes to: matrix products to cuBLASLt, attention and
 * convolutions to cuDNN, as far as these can do them; the rest, and what they cannot do, to our own
 * kernels. The choice follows from an operation's shapes and dtypes alone, so that a dry run makes
 * the same one; a library that refuses all the same calls our own kernels itself. */
#include <stdio.h>
#include <string.h>

#include "dev/cuda/impl.h"
#include "dev/cuda/kernels/image.h"

/* ---- open and close ---- */

/* Whether the driver does not know the form of the kernels: it is older than the nvcc that compiled
 * them. */
static bool is_too_old(wd_cu_result result)
{
    return result == WD_CU_INVALID_IMAGE || result == WD_CU_NO_BINARY_FOR_GPU ||
           result == WD_CU_INVALID_PTX || result == WD_CU_UNSUPPORTED_PTX_VERSION;
}

static wd_status explain_load(wd_cuda_device *d, wd_cu_result result, wd_err *err)
{
    int version = 0;
    wd_err why;
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    driver->driver_get_version(&version);
    const wd_status status = wd__cuda_fail(
        &why, driver, result,
        "%s: the NVIDIA driver, which supports CUDA %d.%d, cannot load this program's "
        "kernels",
        d->base.name, version / 1000, version % 1000 / 10);
    if (!is_too_old(result)) return wd_fail(err, status, "%s", why.message);
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s; kernels that nvcc 13 compiled need driver 580 or later: install a newer "
                   "driver, or say --devices cpu (--device cpu) to compute on the processor",
                   why.message);
}

static wd_status load_kernels(wd_cuda_device *d, wd_err *err)
{
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    wd_cu_result result = driver->module_load_data(&d->module, wd_cuda_image);
    if (result) {
        d->module = NULL;
        return explain_load(d, result, err);
    }
    for (int k = 0; k < WD_CUDA_KERNEL_COUNT; k++) {
        const char *name = wd__cuda_kernel_symbol((wd_cuda_kernel)k);
        result = driver->module_get_function(&d->kernel[k], d->module, name);
        if (result) return wd__cuda_fail(err, driver, result, "%s: kernel %s", d->base.name, name);
    }
    return WD_OK;
}

/* What decides the bits of results, and how fast they come. */
static wd_status describe(wd_cuda_device *d, wd_err *err)
{
    char model[64] = "", *out = d->base.traits.kernels;
    const size_t bytes = sizeof d->base.traits.kernels;
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    const wd_cu_result result = driver->device_get_name(model, sizeof model - 1, d->gpu.number);
    if (result) return wd__cuda_fail(err, driver, result, "%s: its name", d->base.name);
    snprintf(out, bytes, "%s, sm_%d, ", model, d->gpu.capability);
    size_t used = strlen(out);
    if (!d->products) {
        snprintf(out + used, bytes - used, "no libraries");
        return WD_OK;
    }
    wd__cuda_products_version(d->products, out, bytes);
    used = strlen(out);
    snprintf(out + used, bytes - used, ", ");
    wd__cuda_attention_version(d->attention, out, bytes);
    return WD_OK;
}

/* Kernels come first: where the driver is too old for them, finding the libraries does not help. */
wd_status wd__cuda_dispatch_open(wd_cuda_device *d, bool libraries, wd_err *err)
{
    WD_TRY(load_kernels(d, err));
    if (!libraries) return describe(d, err);
    WD_TRY(wd__cuda_api_need(&d->gpu.api, WD_CUDA_LT, err));
    WD_TRY(wd__cuda_api_need(&d->gpu.api, WD_CUDA_CUDNN, err));
    WD_TRY(wd__cuda_products_open(&d->products, &d->gpu, &d->base, err));
    WD_TRY(wd__cuda_attention_open(&d->attention, &d->gpu, err));
    WD_TRY(wd__cuda_conv_open(&d->conv, &d->gpu, err));
    return describe(d, err);
}

void wd__cuda_dispatch_close(wd_cuda_device *d)
{
    wd__cuda_conv_close(d->conv);
    wd__cuda_attention_close(d->attention);
    wd__cuda_products_close(d->products);
    if (d->module) wd__cuda_driver_of(d)->module_unload(d->module);
}

/* ---- choosing ---- */

static bool library_can(const wd_cuda_device *d, wd_op op, const void *args)
{
    if (!d->products) return false;
    switch (op) {
    case WD_OP_MATMUL:
        return wd__cuda_products_can(d->products, args);
    case WD_OP_ATTENTION:
        return wd__cuda_attention_can(d->attention, args);
    case WD_OP_ATTENTION_BACKWARD:
        return wd__cuda_attention_backward_can(d->attention, args);
    case WD_OP_CONV:
        return wd__cuda_conv_can(d->conv, args);
    default:
        return false;
    }
}

size_t wd__cuda_workspace(const wd_device *device, wd_op op, const void *args)
{
    const wd_cuda_device *d = wd__cuda_of(device);
    if (!library_can(d, op, args))
        return wd__cuda_kernels_take(op, args) ? wd__cuda_kernels_workspace(op, args) : 0;
    switch (op) {
    case WD_OP_MATMUL:
        return wd__cuda_products_workspace(d->products, args);
    case WD_OP_ATTENTION:
        return wd__cuda_attention_workspace(d->attention, args);
    case WD_OP_CONV:
        return wd__cuda_conv_workspace(d->conv, args);
    default:
        return wd__cuda_attention_backward_workspace(d->attention, args);
    }
}

bool wd__cuda_can(const wd_device *device, wd_op op, const void *args)
{
    return library_can(wd__cuda_of(device), op, args) || wd__cuda_kernels_take(op, args);
}

wd_status wd__cuda_prepare(wd_device *device, wd_op op, const void *args, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    if (!library_can(d, op, args) || !wd__cuda_enter(d)) return WD_OK;
    switch (op) {
    case WD_OP_ATTENTION:
        return wd__cuda_attention_prepare(d->attention, args, err);
    case WD_OP_ATTENTION_BACKWARD:
        return wd__cuda_attention_backward_prepare(d->attention, args, err);
    case WD_OP_CONV:
        return wd__cuda_conv_prepare(d->conv, args, err);
    default: /* what cuBLASLt chooses depends on addresses, and takes no time */
        return WD_OK;
    }
}

/* ---- launching ---- */

typedef struct launcher {
    const wd_cuda_work *work;
    wd_cuda_device *device;
    wd_cu_result result; /* of the first launch that failed */
} launcher;

/* The struct goes as a block of bytes, so that the driver checks its size with the kernel's. */
static void run_kernel(void *context, wd_cuda_kernel kernel, const unsigned grid[3],
                       const unsigned block[3], size_t shared_bytes, const void *args, size_t bytes)
{
    launcher *l = context;
    void *extra[] = {(void *)WD_CU_LAUNCH_BUFFER_POINTER, (void *)(uintptr_t)args,
                     (void *)WD_CU_LAUNCH_BUFFER_SIZE, &bytes, NULL};
    if (l->result) return;
    l->result = wd__cuda_driver_of(l->device)->launch_kernel(
        l->device->kernel[kernel], grid[0], grid[1], grid[2], block[0], block[1], block[2],
        (unsigned)shared_bytes, l->work->stream, NULL, extra);
}

wd_status wd__cuda_kernels_launch(const wd_cuda_work *work, wd_op op, const void *args, wd_err *err)
{
    launcher l = {.work = work, .device = wd__cuda_of(work->device)};
    if (!wd__cuda_kernels_take(op, args))
        return wd_fail(err, WD_DEVICE_FAULT,
                       "%s has no kernel for operation %s with these shapes and dtypes",
                       work->device->name, wd_op_name(op));
    wd__cuda_kernels_run(op, args, work->workspace, run_kernel, &l);
    if (!l.result) return WD_OK;
    return wd__cuda_fail(err, wd__cuda_driver_of(l.device), l.result, "%s: launching %s",
                         work->device->name, wd_op_name(op));
}

static wd_status launch(const wd_cuda_work *work, wd_op op, const void *args, wd_err *err)
{
    const wd_cuda_device *d = wd__cuda_of(work->device);
    if (!library_can(d, op, args)) return wd__cuda_kernels_launch(work, op, args, err);
    switch (op) {
    case WD_OP_MATMUL:
        return wd__cuda_products_launch(d->products, work, args, err);
    case WD_OP_ATTENTION:
        return wd__cuda_attention_launch(d->attention, work, args, err);
    case WD_OP_CONV:
        return wd__cuda_conv_launch(d->conv, work, args, err);
    default:
        return wd__cuda_attention_backward_launch(d->attention, work, args, err);
    }
}

void wd__cuda_queue_launch(wd_queue *queue, wd_op op, const void *args)
{
    wd_err err = {0};
    wd_cuda_device *d = wd__cuda_of(queue->device);
    if (d->failed) return;
    wd_queue_need_workspace(queue, op, args);
    if (!wd__cuda_enter(d)) return;
    const wd_cuda_work work = {.gpu = &d->gpu,
                               .stream = ((wd_cuda_queue *)queue)->stream,
                               .workspace = queue->workspace,
                               .workspace_bytes = queue->workspace_bytes,
                               .device = queue->device};
    if (launch(&work, op, args, &err) != WD_OK) wd__cuda_keep_fault(d, &err);
}
