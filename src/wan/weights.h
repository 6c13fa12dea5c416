/* Weights of a checkpoint on a device, in the dtype that computes: in place where they can be, else
 * copied and converted. For components that hold or stream their own weights (text encoder, VAE).
 */
#ifndef WD_WAN_WEIGHTS_H
#define WD_WAN_WEIGHTS_H

#include "dev/device.h"
#include "io/safetensors.h"

/* Whether the queue's device can use the mapped tensor as it is. */
bool wd_weight_in_place(const wd_safetensors_entry *weight, wd_dtype dtype, const wd_queue *queue);

/* Bytes that wd_weight_bring needs at `raw`: those of the file, where the device cannot convert
 * them from host memory. */
size_t wd_weight_raw_bytes(const wd_safetensors_entry *weight, wd_dtype dtype,
                           const wd_queue *queue);

/* to = weight in `dtype`. `to` and `raw` are device memory; raw may be used again by the next call
 * on this queue. */
void wd_weight_bring(void *to, void *raw, const wd_safetensors_entry *weight, wd_dtype dtype,
                     wd_queue *queue);

#endif
