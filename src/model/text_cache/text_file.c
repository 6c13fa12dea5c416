/* Files of the text cache: see model/text_cache/text_file.h. */
#include "model/text_cache/text_file.h"

#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* declares the state, which is on the stack here */
#include <xxhash.h>

#include "core/memory.h"
#include "core/text.h"
#include "dev/device.h"

/* The format with its version, which is raised when the meaning of a file changes. */
static const char format[] = "wandistiller text cache 1";
static const char prefix[] = "text-", suffix[] = ".safetensors";

enum { NAME_KEY = 16 };

static wd_text_hash canonical(XXH128_hash_t hash)
{
    wd_text_hash out;
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    memcpy(out.byte, bytes.digest, sizeof out.byte);
    return out;
}

static void hex(char *out, wd_text_hash hash)
{
    for (int i = 0; i < WD_TEXT_HASH_BYTES; i++) sprintf(out + 2 * i, "%02x", hash.byte[i]);
}

wd_text_hash wd__text_hash_of(const int32_t *ids, int64_t count)
{
    return canonical(XXH3_128bits(ids, (size_t)count * sizeof *ids));
}

/* ---- the encoder's key ---- */

void wd__text_key_of(char out[WD_TEXT_KEY_MAX], const wd_umt5_config *c,
                     const wd_safetensors *weights, wd_dtype dtype, const char *kernels)
{
    char text[256 + WD_KERNELS_TEXT];
    snprintf(text, sizeof text, "%s %s %lld %lld %lld %lld %lld %lld %lld %lld %a%s%s", format,
             wd_dtype_file_name(dtype), (long long)c->vocab_size, (long long)c->d_model,
             (long long)c->d_kv, (long long)c->d_ff, (long long)c->heads, (long long)c->layers,
             (long long)c->buckets, (long long)c->max_distance, c->eps, kernels ? " " : "",
             kernels ? kernels : "");
    wd_safetensors_key(out, weights, text);
}

/* ---- files ---- */

bool wd__text_file_is_named(const char *name, const char *key)
{
    size_t n = strlen(name), expected = strlen(prefix) + NAME_KEY + 1 + NAME_KEY + strlen(suffix);
    return n == expected && !strncmp(name, prefix, strlen(prefix)) &&
           !strncmp(name + strlen(prefix), key, NAME_KEY) &&
           !strcmp(name + n - strlen(suffix), suffix);
}

static wd_text_hash checksum_of(const wd_text_rows *r)
{
    XXH3_state_t state;
    size_t row_bytes = (size_t)r->text_dim * wd_dtype_bytes(r->dtype);
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, r->first, (size_t)(r->count + 1) * sizeof *r->first);
    XXH3_128bits_update(&state, r->row, (size_t)r->first[r->count] * row_bytes);
    XXH3_128bits_update(&state, r->hash, (size_t)r->count * sizeof *r->hash);
    return canonical(XXH3_128bits_digest(&state));
}

wd_status wd__text_folder_prepare(const char *folder, wd_err *err)
{
    wd_file_remove_abandoned(folder, prefix);
    return wd_folder_make(folder, err);
}

wd_status wd__text_file_write(char path[WD_PATH_MAX], const char *folder, const char *key,
                              const wd_text_rows *r, wd_err *err)
{
    char name[128], list[2 * WD_TEXT_HASH_BYTES + 1];
    size_t hash_bytes = (size_t)r->count * sizeof *r->hash;
    hex(list, canonical(XXH3_128bits(r->hash, hash_bytes)));
    snprintf(name, sizeof name, "%s%.*s-%.*s%s", prefix, NAME_KEY, key, NAME_KEY, list, suffix);
    WD_TRY(wd_path_join(path, folder, name, err));
    const wd_safetensors_item item[] = {
        {"first", WD_I64, 1, {r->count + 1}},
        {"embeddings", r->dtype, 2, {r->first[r->count], r->text_dim}},
        {"prompt_hash", WD_U8, 2, {r->count, WD_TEXT_HASH_BYTES}},
        {"checksum", WD_U8, 1, {WD_TEXT_HASH_BYTES}}};
    const char *const metadata[] = {"format", format, "key", key, NULL};
    wd_text_hash checksum = checksum_of(r);
    wd_safetensors_writer *writer;
    wd_status status;
    WD_TRY(wd_safetensors_create(&writer, path, item, 4, metadata, err));
    WD_TRY_OUT(
        wd_safetensors_put(writer, r->first, (size_t)(r->count + 1) * sizeof *r->first, err));
    WD_TRY_OUT(wd_safetensors_put(
        writer, r->row, (size_t)(r->first[r->count] * r->text_dim) * wd_dtype_bytes(r->dtype),
        err));
    WD_TRY_OUT(wd_safetensors_put(writer, r->hash, hash_bytes, err));
    WD_TRY_OUT(wd_safetensors_put(writer, &checksum, sizeof checksum, err));
    return wd_safetensors_finish(writer, err);
out:
    wd_safetensors_abandon(writer);
    return status;
}

/* Returns the data of a tensor [dim[0], ..] if dtype and shape are as expected, else NULL. A dim of
 * -1 accepts any extent and is set to it. */
static const void *tensor_of(int64_t *dim, const wd_safetensors *set, const char *name,
                             wd_dtype dtype, int ndim)
{
    const wd_safetensors_entry *e = wd_safetensors_find(set, name);
    if (!e || e->tensor.dtype != dtype || e->tensor.ndim != ndim || e->unaligned) return NULL;
    for (int i = 0; i < ndim; i++) {
        if (dim[i] >= 0 && dim[i] != e->tensor.dim[i]) return NULL;
        dim[i] = e->tensor.dim[i];
    }
    return e->tensor.data;
}

/* Replaces the mapped `hash` and `first` by copies. */
static wd_status copy_index(wd_text_rows *r, wd_err *err)
{
    const size_t count = (size_t)r->count, first_bytes = (count + 1) * sizeof *r->first;
    WD_TRY(wd_alloc(&r->index, 1, first_bytes + count * sizeof *r->hash, "prompt rows", err));
    r->first = memcpy(r->index, r->first, first_bytes);
    r->hash = memcpy((char *)r->index + first_bytes, r->hash, count * sizeof *r->hash);
    return WD_OK;
}

/* Fills `r` from the file's tensors; WD_BAD_FORMAT: they are not those of a cache file. */
static wd_status read_tensors(wd_text_rows *r, const wd_safetensors *set, wd_err *err)
{
    int64_t hashes[2] = {-1, WD_TEXT_HASH_BYTES}, firsts[1], rows[2] = {-1, r->text_dim};
    int64_t check[1] = {WD_TEXT_HASH_BYTES};
    r->hash = tensor_of(hashes, set, "prompt_hash", WD_U8, 2);
    firsts[0] = hashes[0] + 1;
    r->first = tensor_of(firsts, set, "first", WD_I64, 1);
    r->row = tensor_of(rows, set, "embeddings", r->dtype, 2);
    const void *checksum = tensor_of(check, set, "checksum", WD_U8, 1);
    if (!r->hash || !r->first || !r->row || !checksum) return WD_BAD_FORMAT;
    r->count = hashes[0];
    WD_TRY(copy_index(r, err));
    if (r->first[0] != 0 || r->first[r->count] != rows[0]) return WD_BAD_FORMAT;
    for (int64_t i = 0; i < r->count; i++) {
        if (r->first[i + 1] <= r->first[i]) return WD_BAD_FORMAT;
    }
    wd_text_hash expected = checksum_of(r);
    return memcmp(&expected, checksum, sizeof expected) ? WD_BAD_FORMAT : WD_OK;
}

wd_status wd__text_file_open(wd_safetensors **out, wd_text_rows *rows, const char *path,
                             const char *key, wd_err *err)
{
    wd_safetensors *set;
    wd_status status;
    rows->index = NULL;
    WD_TRY(wd_safetensors_open(&set, path, err));
    const char *found_format = wd_safetensors_metadata(set, "format");
    const char *found_key = wd_safetensors_metadata(set, "key");
    if (!found_format || strcmp(found_format, format))
        status = wd_fail(err, WD_MISMATCH, "%s: is not \"%s\" but \"%.*s\"", path, format,
                         WD_TERMINAL_SAFE(found_format ? found_format : "", 64));
    else if (!found_key || strcmp(found_key, key))
        status = wd_fail(err, WD_MISMATCH, "%s: is of another text encoder", path);
    else
        status = read_tensors(rows, set, err);
    if (status == WD_BAD_FORMAT)
        wd_fail(err, status, "%s: is damaged: checksum or tensors do not agree", path);
    if (status == WD_OK) {
        *out = set;
        return WD_OK;
    }
    wd_safetensors_close(set);
    wd_free(rows->index);
    rows->index = NULL;
    return status;
}
