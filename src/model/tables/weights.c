/* Weights on a device: see model/tables/weights.h. */
#include "model/tables/weights.h"

#include "core/checked.h"
#include "dev/codec/values.h"
#include "dev/ops.h"

enum { ALIGN = 64 };

/* Whether kernels may read the mapped bytes. */
static bool readable(const wd_safetensors_entry *weight, const wd_queue *queue)
{
    const bool aligned = !weight->unaligned && !(weight->scale && weight->scale->unaligned);
    return wd_device_traits(wd_queue_device(queue))->reads_host && aligned;
}

bool wd_weight_in_place(const wd_safetensors_entry *weight, wd_dtype dtype, const wd_queue *queue)
{
    return weight->tensor.dtype == dtype && readable(weight, queue);
}

size_t wd_weight_raw_bytes(const wd_safetensors_entry *weight, wd_dtype dtype,
                           const wd_queue *queue)
{
    const size_t bytes = wd_tensor_bytes(&weight->tensor);
    if (weight->tensor.dtype == dtype || readable(weight, queue)) return 0;
    if (!weight->scale) return bytes;
    return wd_round_up(bytes, ALIGN) + wd_tensor_bytes(&weight->scale->tensor);
}

void wd_weight_bring(void *to, void *raw, const wd_safetensors_entry *weight, wd_dtype dtype,
                     wd_queue *queue)
{
    wd_tensor t = weight->tensor;
    const size_t bytes = wd_tensor_bytes(&t);
    if (t.dtype == dtype) {
        wd_queue_copy_and_wait(queue, to, t.data, bytes);
        return;
    }
    if (!readable(weight, queue)) {
        wd_queue_copy_and_wait(queue, raw, t.data, bytes);
        t.data = raw;
        if (weight->scale) {
            char *scales = (char *)raw + wd_round_up(bytes, ALIGN);
            wd_queue_copy_and_wait(queue, scales, t.scales.data,
                                   wd_tensor_bytes(&weight->scale->tensor));
            t.scales.data = scales;
        }
    }
    if (wd_dtype_is_quantised(t.dtype)) {
        wd_tensor_dequantise(queue, to, dtype, dtype, &t);
        return;
    }
    wd_op_cast(queue, &(wd_cast_args){.to = to,
                                      .from = t.data,
                                      .to_type = dtype,
                                      .from_type = t.dtype,
                                      .count = wd_tensor_count(&t)});
}
