/* Weights on a device: see wan/weights.h. */
#include "wan/weights.h"

#include "dev/ops.h"

/* Whether kernels may read the mapped bytes. */
static bool readable(const wd_safetensors_entry *weight, const wd_queue *queue)
{
    return wd_device_traits(wd_queue_device(queue))->reads_host && !weight->unaligned;
}

bool wd_weight_in_place(const wd_safetensors_entry *weight, wd_dtype dtype, const wd_queue *queue)
{
    return weight->tensor.dtype == dtype && readable(weight, queue);
}

size_t wd_weight_raw_bytes(const wd_safetensors_entry *weight, wd_dtype dtype,
                           const wd_queue *queue)
{
    bool convert = weight->tensor.dtype != dtype;
    return convert && !readable(weight, queue) ? wd_tensor_bytes(&weight->tensor) : 0;
}

void wd_weight_bring(void *to, void *raw, const wd_safetensors_entry *weight, wd_dtype dtype,
                     wd_queue *queue)
{
    const wd_tensor *t = &weight->tensor;
    const void *from = t->data;
    if (t->dtype == dtype) {
        wd_queue_copy_and_wait(queue, to, from, wd_tensor_bytes(t));
        return;
    }
    if (!readable(weight, queue)) {
        wd_queue_copy_and_wait(queue, raw, from, wd_tensor_bytes(t));
        from = raw;
    }
    wd_op_cast(queue, &(wd_cast_args){.to = to,
                                      .from = from,
                                      .to_type = dtype,
                                      .from_type = t->dtype,
                                      .count = wd_tensor_count(t)});
}
