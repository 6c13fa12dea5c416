/* The state of the text cache, and the functions that its files share. Private to
 * src/model/text_cache/text_cache*.c.
 *
 * text_cache.c         prompts, their tokens, their rows in files, and queries
 * text_cache_encode.c  encodes prompts that no file has, alone or with other processes */
#ifndef WD_MODEL_TEXT_CACHE_TEXT_CACHE_IMPL_H
#define WD_MODEL_TEXT_CACHE_TEXT_CACHE_IMPL_H

#include <string.h>

#include "model/text_cache/text_cache.h"
#include "model/text_cache/text_file.h"

/* A prompt of the job. */
typedef struct wd_text_prompt {
    wd_text_hash hash;
    int64_t first_id, tokens; /* its ids: ids[first_id] ... */
    bool lacking;             /* one of the processes that share lacks its rows */
    int64_t at;               /* its index in the caller's list */
    const char *row;          /* its embeddings; NULL: not known yet */
} wd_text_prompt;

/* The memory of rows: a mapped file, or a block. */
typedef struct wd_text_source {
    wd_safetensors *set;
    char *memory;
} wd_text_source;

struct wd_text_cache {
    wd_text_prompt *prompt; /* [count] by hash */
    int64_t *sorted;        /* [count] index of the caller's prompt i in `prompt` */
    int32_t *ids;
    int64_t count, id_count, id_room;
    int64_t max_tokens, text_dim, computed;
    int64_t cut; /* number of prompts with more than max_tokens tokens */
    int32_t pad_id;
    wd_dtype dtype;
    wd_text_source *source;
    int64_t sources, source_room;
    size_t tokenizer_bytes;
    /* until all prompts have rows: */
    const char *folder; /* or NULL */
    const wd_pipeline *pipeline;
    wd_safetensors *weights;
    char key[WD_TEXT_KEY_MAX];         /* of the files */
    char encoder_key[WD_TEXT_KEY_MAX]; /* the same without kernels */
    wd_text_share share;               /* parts 0: alone */
};

static inline bool wd__text_hash_same(const wd_text_hash *a, const wd_text_hash *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* Compares for qsort: by hash, then by the caller's order. */
int wd__text_prompt_order(const void *a, const void *b);

/* Reserves space for one more source, so that adding it cannot fail. */
wd_status wd__text_cache_reserve(wd_text_cache *cache, wd_err *err);

/* Adds rows in `memory` (of wd_alloc), which the cache owns from now on. Space must be reserved. */
void wd__text_cache_take_memory(wd_text_cache *cache, const wd_text_rows *rows, char *memory);

/* Maps a file of the cache and uses its rows; a file without needed rows is closed. */
wd_status wd__text_cache_take_file(wd_text_cache *cache, const char *path, wd_err *err);

/* Maps all files of the folder. A file that cannot be used is skipped with a warning. */
wd_status wd__text_cache_take_folder(wd_text_cache *cache, wd_err *err);

#endif
