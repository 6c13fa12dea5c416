/* Fuzz target: any bytes as a safetensors file; what opens must be readable from end to end. */
#include "fuzzing.h"

#include "io/tensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_safetensors *set;
    unsigned sum = 0;
    const char *path = wd_fuzz_file("file.safetensors", data, bytes);
    if (wd_safetensors_open(&set, path, &err) != WD_OK) return 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        const unsigned char *at = e->tensor.data;
        size_t size = wd_tensor_bytes(&e->tensor);
        for (size_t j = 0; j < size; j++) sum += at[j];
        if (wd_safetensors_find(set, e->name) != e) abort();
        if (e->unaligned != ((uintptr_t)at % wd_dtype_align(e->tensor.dtype) != 0)) abort();
        wd_safetensors_will_need(e);
        wd_safetensors_dont_need(e);
    }
    wd_safetensors_metadata(set, "format");
    wd_fuzz_use(sum);
    wd_safetensors_close(set);
    return 0;
}
