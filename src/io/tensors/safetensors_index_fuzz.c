/* Fuzz target: any bytes as the index of a set of safetensors files, and as the files. What opens
 * must be readable from end to end. */
#include "fuzzing.h"

#include "io/tensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"model.safetensors.index.json", "a.safetensors",
                                        "b.safetensors", "model.safetensors"};
    unsigned sum = 0;
    wd_err err;
    wd_safetensors *set;
    wd_fuzz_files(names, 4, data, bytes);
    if (wd_safetensors_open_stem(&set, wd_fuzz_folder(), "model", &err) != WD_OK) return 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        const unsigned char *at = e->tensor.data;
        for (size_t j = 0; j < wd_tensor_bytes(&e->tensor); j++) sum += at[j];
        if (wd_safetensors_find(set, e->name) != e) abort();
    }
    wd_fuzz_use(sum);
    wd_safetensors_close(set);
    return 0;
}
