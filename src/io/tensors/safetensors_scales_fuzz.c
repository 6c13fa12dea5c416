/* Fuzz target: any bytes as a safetensors file of quantised weights. What is paired has a scale for
 * every value, all of which can be read. */
#include "fuzzing.h"

#include "dev/codec/values.h"
#include "io/tensors/safetensors.h"

static unsigned read_values(const wd_tensor *t)
{
    const int64_t count = wd_tensor_count(t), last = count - 1;
    float first, end;
    unsigned sum;
    if (!count) return 0;
    wd_tensor_values(&first, t, 0, 1);
    wd_tensor_values(&end, t, last, 1);
    memcpy(&sum, &first, sizeof sum);
    return sum + (end > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_safetensors *set;
    unsigned sum = 0;
    const char *path = wd_fuzz_file("file.safetensors", data, bytes);
    if (wd_safetensors_open(&set, path, &err) != WD_OK) return 0;
    if (wd_safetensors_pair_scales(set, &err) == WD_OK)
        for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
            const wd_safetensors_entry *e = wd_safetensors_at(set, i);
            if (wd_dtype_is_quantised(e->tensor.dtype) != e->scaled) abort();
            if (e->scaled) sum += read_values(&e->tensor);
        }
    wd_fuzz_use(sum);
    wd_safetensors_close(set);
    return 0;
}
