/* One file of the text cache: the embeddings of some prompts.
 *
 *   text-<key>-<prompts>.safetensors, metadata format and key, tensors in this order:
 *     first        I64 [prompts + 1]          rows of prompt i: first[i] to first[i + 1]
 *     embeddings   F32 or BF16 [rows, text_dim]
 *     prompt_hash  U8 [prompts, 16]           XXH3-128 of each prompt's token ids (int32)
 *     checksum     U8 [16]                    XXH3-128 of the three above
 *
 * A prompt is identified by its token ids, since the result depends on tokenizer, cleaning and
 * maximum length only through them. The key identifies the encoder: its configuration, compute
 * dtype and weights (io/tensors/safetensors.h), and the kernels of a device that is no
 * processor. */
#ifndef WD_MODEL_TEXT_CACHE_TEXT_FILE_H
#define WD_MODEL_TEXT_CACHE_TEXT_FILE_H

#include "io/tensors/safetensors.h"
#include "model/files/pipeline.h"

enum { WD_TEXT_HASH_BYTES = 16, WD_TEXT_KEY_MAX = WD_SAFETENSORS_KEY_MAX };

typedef struct wd_text_hash {
    uint8_t byte[WD_TEXT_HASH_BYTES];
} wd_text_hash;

/* Some prompts with their rows, one after the other. */
typedef struct wd_text_rows {
    const wd_text_hash *hash; /* [count] */
    const int64_t *first;     /* [count + 1] */
    const char *row;          /* [first[count], text_dim] dtype */
    int64_t count, text_dim;
    wd_dtype dtype;
    void *index; /* memory of `hash` and `first`, if wd__text_file_open allocated it */
} wd_text_rows;

wd_text_hash wd__text_hash_of(const int32_t *ids, int64_t count);

/* Computes the key of an encoder: 32 hex digits. `kernels`: what decides the bits of the device
 * that encodes (wd_traits); NULL: any processor. */
void wd__text_key_of(char out[WD_TEXT_KEY_MAX], const wd_umt5_config *config,
                     const wd_safetensors *weights, wd_dtype dtype, const char *kernels);

/* Whether `name` is the name of a cache file with this key. */
bool wd__text_file_is_named(const char *name, const char *key);

/* Creates the folder, or removes temporary files from it that killed writers have left. */
wd_status wd__text_folder_prepare(const char *folder, wd_err *err);

/* Writes the rows to a new file in `folder`, under its name only when it is complete; `path` is set
 * to its path. */
wd_status wd__text_file_write(char path[WD_PATH_MAX], const char *folder, const char *key,
                              const wd_text_rows *rows, wd_err *err);

/* Maps and checks a file. rows->dtype and rows->text_dim are the expected values; the other fields
 * are set. The rows are valid until *set is closed. `hash` and `first` are copies, which the caller
 * frees (rows->index), since another process may write to the file after the check. WD_MISMATCH:
 * another format or encoder; WD_BAD_FORMAT: damaged. */
wd_status wd__text_file_open(wd_safetensors **set, wd_text_rows *rows, const char *path,
                             const char *key, wd_err *err);

#endif
