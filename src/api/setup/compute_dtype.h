/* The dtype in which a command computes a model where --dtype does not say. */
#ifndef WD_API_SETUP_COMPUTE_DTYPE_H
#define WD_API_SETUP_COMPUTE_DTYPE_H

#include "dev/device.h"
#include "model/files/pipeline.h"

/* *out = `given` (the value of --dtype), or if that is NULL the dtype of the component's files: F32
 * where most of its weights are float32 and the processor computes, else BF16. GPUs, real or
 * simulated, compute in BF16 unless --dtype says float32. Reads headers only. */
wd_status wd_compute_dtype(wd_dtype *out, const char *given, const wd_pipeline *pipeline,
                           wd_component component, const wd_device *device, wd_err *err);

#endif
