/* Fuzz target: any bytes as the input file of `forward`. What is read has as many values as its
 * shape says, and at least one. */
#include "fuzzing.h"

#include "api/jobs/tensor_file.h"
#include "core/memory.h"

static void read_tensors(const wd_safetensors *set, const char *name, int ndim)
{
    wd_err err;
    int64_t dim[5], count = 1;
    int32_t *ints;
    float *floats, sum = 0;
    if (wd__tensor_file_floats(&floats, dim, ndim, set, name, &err) == WD_OK) {
        for (int i = 0; i < ndim; i++) count *= dim[i];
        if (count < 1) abort();
        for (int64_t i = 0; i < count; i++) sum += floats[i];
        wd_fuzz_use(sum > 0);
        wd_free(floats);
    }
    if (wd__tensor_file_ints(&ints, dim, ndim, set, name, &err) == WD_OK) wd_free(ints);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_safetensors *set;
    const char *path = wd_fuzz_file("in.safetensors", data, bytes);
    if (wd_safetensors_open(&set, path, &err) != WD_OK) return 0;
    read_tensors(set, "input_ids", 2);
    read_tensors(set, "hidden_states", 5);
    wd_safetensors_close(set);
    return 0;
}
