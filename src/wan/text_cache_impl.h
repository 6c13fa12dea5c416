/* Inside the text cache: its state, and what its files share. Private to src/wan/text_cache*.c.
 *
 * text_cache.c         prompts and their tokens, what files have of them, who asks
 * text_cache_encode.c  what no file has, alone or with other processes */
#ifndef WD_WAN_TEXT_CACHE_IMPL_H
#define WD_WAN_TEXT_CACHE_IMPL_H

#include <string.h>

#include "wan/text_cache.h"
#include "wan/text_file.h"

/* A prompt of the job. */
typedef struct wd_text_prompt {
    wd_text_hash hash;
    int64_t first_id, tokens; /* its ids: ids[first_id] ... */
    bool lacking;             /* with others: one of them has no row */
    int64_t at;               /* its place in the caller's list */
    const char *row;          /* its embeddings, once they are there */
} wd_text_prompt;

/* Where rows live: a mapped file, or memory. */
typedef struct wd_text_source {
    wd_safetensors *set;
    char *memory;
} wd_text_source;

struct wd_text_cache {
    wd_text_prompt *prompt; /* [count] by hash */
    int64_t *sorted;        /* [count] place of the caller's prompt i in `prompt` */
    int32_t *ids;
    int64_t count, id_count, id_room;
    int64_t max_tokens, text_dim, computed;
    int64_t cut; /* prompts that have more tokens */
    int32_t pad_id;
    wd_dtype dtype;
    wd_text_source *source;
    int64_t sources, source_room;
    size_t tokenizer_bytes;
    /* until all prompts have rows: */
    const char *folder; /* or NULL */
    const wd_pipeline *pipeline;
    wd_safetensors *weights;
    char key[WD_TEXT_KEY_MAX];
    wd_text_share share; /* parts 0: alone */
};

static inline bool wd_text_hash_same(const wd_text_hash *a, const wd_text_hash *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* By hash, those of one hash in the caller's order: for qsort. */
int wd_text_prompt_order(const void *a, const void *b);

/* Room for one more source, so that nothing fails once it is there. */
wd_status wd_text_cache_reserve(wd_text_cache *cache, wd_err *err);

/* Takes rows that lie in `memory` (of wd_alloc), the cache's from now on; there is room. */
void wd_text_cache_take_memory(wd_text_cache *cache, const wd_text_rows *rows, char *memory);

/* Maps a file of the cache and takes what it has; one that we need nothing of is let go. */
wd_status wd_text_cache_take_file(wd_text_cache *cache, const char *path, wd_err *err);

/* Takes what the files of the folder have. One that cannot be used is passed over with a warning.
 */
wd_status wd_text_cache_take_folder(wd_text_cache *cache, wd_err *err);

#endif
