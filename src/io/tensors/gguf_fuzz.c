/* Fuzz target: any bytes as a GGUF file; of what opens every tensor's first and last value can be
 * read, and of a tokenizer in its metadata a SentencePiece model is made. */
#include "fuzzing.h"

#include "core/memory.h"
#include "dev/codec/values.h"
#include "io/tensors/gguf.h"
#include "io/tensors/safetensors.h"
#include "io/text/spiece.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_safetensors *set;
    unsigned sum = 0;
    const char *path = wd_fuzz_file("file.gguf", data, bytes);
    if (wd_safetensors_open(&set, path, &err) != WD_OK) return 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_tensor *t = &wd_safetensors_at(set, i)->tensor;
        float first = 0, last = 0;
        if (t->dtype != WD_F32 && t->dtype != WD_F16 && t->dtype != WD_BF16 &&
            !wd_dtype_is_quantised(t->dtype))
            continue;
        if (wd_tensor_count(t)) {
            wd_tensor_values(&first, t, 0, 1);
            wd_tensor_values(&last, t, wd_tensor_count(t) - 1, 1);
        }
        sum += (unsigned)(first > 0) + (unsigned)(last > 0);
    }
    wd_safetensors_metadata(set, "general.architecture");
    char *model;
    size_t model_bytes;
    if (wd_gguf_spiece(&model, &model_bytes, set, &err) == WD_OK) {
        sum += wd__spiece_check(model, model_bytes, "the tokenizer", &err) == WD_OK;
        wd_free(model);
    }
    wd_fuzz_use(sum);
    wd_safetensors_close(set);
    return 0;
}
