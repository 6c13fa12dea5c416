/* Which library or kernel an operation goes to. */
#include <string.h>

#include "dev/cuda/impl.h"

wd_status wd_cuda_dispatch_open(wd_cuda_device *device, wd_err *err)
{
    (void)device, (void)err;
    return WD_OK;
}

void wd_cuda_dispatch_close(wd_cuda_device *device)
{
    (void)device;
}

bool wd_cuda_can(const wd_device *device, wd_op op, wd_dtype dtype)
{
    (void)device, (void)op, (void)dtype;
    return false;
}

size_t wd_cuda_workspace(const wd_device *device, wd_op op, const void *args)
{
    (void)device, (void)op, (void)args;
    return 0;
}

void wd_cuda_queue_launch(wd_queue *queue, wd_op op, const void *args)
{
    wd_err err;
    (void)args;
    wd_fail(&err, WD_DEVICE_FAULT, "%s has no kernel for operation %s", queue->device->name,
            wd_op_name(op));
    wd_cuda_keep_fault(wd_cuda_of(queue->device), &err);
}
