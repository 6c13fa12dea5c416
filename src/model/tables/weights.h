/* Weights of a checkpoint on a device, in the compute dtype: in place if possible, else copied and
 * converted. The text encoder and the VAE use this. */
#ifndef WD_MODEL_TABLES_WEIGHTS_H
#define WD_MODEL_TABLES_WEIGHTS_H

#include "dev/device.h"
#include "io/tensors/safetensors.h"

/* Whether the queue's device can use the mapped tensor as it is. */
bool wd_weight_in_place(const wd_safetensors_entry *weight, wd_dtype dtype, const wd_queue *queue);

/* Bytes that wd_weight_bring needs at `raw`: the size of the tensor in the file if the device
 * cannot convert it from host memory, else 0. */
size_t wd_weight_raw_bytes(const wd_safetensors_entry *weight, wd_dtype dtype,
                           const wd_queue *queue);

/* to = weight in `dtype`. `to` and `raw` are device memory; the next call on this queue may use raw
 * again. */
void wd_weight_bring(void *to, void *raw, const wd_safetensors_entry *weight, wd_dtype dtype,
                     wd_queue *queue);

#endif
