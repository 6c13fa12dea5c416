/* Failures of a cuda device. What is put on a stream runs later, and after a failure every call
 * with that context fails, so that the first one is what matters: it is kept, nothing more is asked
 * of the device, and wd_device_fault says it to whoever asks. */
#include <stdarg.h>
#include <stdio.h>

#include "dev/cuda/impl.h"

/* "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)". */
static void describe(char *out, size_t bytes, const wd_cuda_driver *driver, wd_cu_result result)
{
    const char *name = NULL, *text = NULL;
    if (driver->get_error_name(result, &name) || !name) name = "an unknown error";
    if (driver->get_error_string(result, &text) || !text) text = "the driver has no text for it";
    snprintf(out, bytes, "%s (%u: %s)", name, result, text);
}

wd_status wd__cuda_fail(wd_err *err, const wd_cuda_driver *driver, wd_cu_result result,
                        const char *format, ...)
{
    char what[256], why[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    describe(why, sizeof why, driver, result);
    return wd_fail(err, result == WD_CU_OUT_OF_MEMORY ? WD_OUT_OF_MEMORY : WD_DEVICE_FAULT,
                   "%s: %s", what, why);
}

void wd__cuda_keep_fault(wd_cuda_device *device, const wd_err *err)
{
    pthread_mutex_lock(&device->fault_lock);
    if (!device->failed) device->fault = *err;
    device->failed = true;
    pthread_mutex_unlock(&device->fault_lock);
}

bool wd__cuda_check(wd_cuda_device *device, wd_cu_result result, const char *format, ...)
{
    wd_err err = {0};
    char what[256];
    va_list arguments;
    if (result == WD_CU_SUCCESS) return true;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    wd__cuda_fail(&err, wd__cuda_driver_of(device), result, "%s: %s", device->base.name, what);
    wd__cuda_keep_fault(device, &err);
    return false;
}

bool wd__cuda_enter(wd_cuda_device *device)
{
    if (device->failed) return false;
    const wd_cu_result result = wd__cuda_driver_of(device)->ctx_set_current(device->gpu.context);
    return wd__cuda_check(device, result, "its context cannot be used");
}

void wd__cuda_wait_if_failed(wd_cuda_device *device)
{
    const wd_cuda_driver *driver = wd__cuda_driver_of(device);
    driver->ctx_set_current(device->gpu.context);
    if (device->failed) driver->ctx_synchronize();
}

wd_status wd__cuda_fault(wd_device *device, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    if (!d->failed) return WD_OK;
    pthread_mutex_lock(&d->fault_lock);
    const wd_err fault = d->fault;
    pthread_mutex_unlock(&d->fault_lock);
    return wd_fail(err, WD_DEVICE_FAULT, "%s", fault.message);
}
