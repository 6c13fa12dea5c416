/* A hash of weights: see io/tensors/safetensors.h. */
#include "io/tensors/safetensors.h"

#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* declares the state, which is on the stack here */
#include <xxhash.h>

enum { PAGE = 4096, PAGES = 1024 };

/* Hashes the first page of the tensor, and one every `stride` bytes. */
static void hash_values(XXH3_state_t *state, const wd_tensor *t, size_t stride)
{
    const char *data = t->data;
    size_t bytes = wd_tensor_bytes(t);
    for (size_t at = 0; at < bytes; at += stride)
        XXH3_128bits_update(state, data + at, bytes - at < PAGE ? bytes - at : PAGE);
}

void wd_safetensors_key(char out[WD_SAFETENSORS_KEY_MAX], const wd_safetensors *weights,
                        const char *more)
{
    XXH3_state_t state;
    XXH128_canonical_t key;
    int64_t count = wd_safetensors_count(weights);
    size_t stride = wd_safetensors_file_bytes(weights) / PAGES;
    if (stride < PAGE) stride = PAGE;
    wd__safetensors_will_skip(weights, true);
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, more, strlen(more) + 1);
    for (int64_t i = 0; i < count; i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(weights, i);
        const char *type = wd_dtype_file_name(e->tensor.dtype);
        XXH3_128bits_update(&state, e->name, strlen(e->name) + 1);
        XXH3_128bits_update(&state, type, strlen(type) + 1);
        XXH3_128bits_update(&state, e->tensor.dim, (size_t)e->tensor.ndim * sizeof(int64_t));
        hash_values(&state, &e->tensor, stride);
        if (e->scale) hash_values(&state, &e->scale->tensor, stride);
    }
    wd__safetensors_will_skip(weights, false);
    XXH128_canonicalFromHash(&key, XXH3_128bits_digest(&state));
    for (size_t i = 0; i < sizeof key.digest; i++) sprintf(out + 2 * i, "%02x", key.digest[i]);
}
