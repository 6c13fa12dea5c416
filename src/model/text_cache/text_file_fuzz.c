/* Fuzz target: any bytes as a file of the text cache. Its rows are readable from end to end. */
#include "fuzzing.h"

#include "core/memory.h"
#include "model/text_cache/text_file.h"

static const char key[] = "0123456789abcdef0123456789abcdef";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    unsigned sum = 0;
    wd_err err;
    wd_safetensors *set;
    wd_text_rows rows = {.dtype = WD_F32, .text_dim = 2};
    const char *path = wd_fuzz_file("text.safetensors", data, bytes);
    if (wd__text_file_open(&set, &rows, path, key, &err) != WD_OK) return 0;
    for (int64_t i = 0; i < rows.count; i++) {
        const size_t row_bytes = (size_t)rows.text_dim * wd_dtype_bytes(rows.dtype);
        sum += rows.hash[i].byte[WD_TEXT_HASH_BYTES - 1];
        for (int64_t r = rows.first[i]; r < rows.first[i + 1]; r++)
            for (size_t b = 0; b < row_bytes; b++)
                sum += (unsigned char)rows.row[(size_t)r * row_bytes + b];
    }
    wd_free(rows.index);
    wd_fuzz_use(sum);
    wd_safetensors_close(set);
    return 0;
}
