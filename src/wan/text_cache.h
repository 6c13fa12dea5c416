/* Prompt embeddings: computed once, kept on disk, mapped.
 *
 *   prompts -> cleaned -> token ids -> rows of the encoder, from the cache where it has them
 *
 * Several processes of one job may encode together, each its share of every batch; of those that
 * have the folder in common one writes.
 *
 * Opening says what there is; encoding then opens the encoder only if a prompt is missing, and
 * closes it before it returns: then its memory is gone, and what is left is mapped files. Rows are
 * kept as the encoder gave them, in its dtype, without padding. Nothing of a cache file is trusted:
 * another format, encoder, dtype or checksum makes its prompts be computed anew (wan/text_file.h).
 */
#ifndef WD_WAN_TEXT_CACHE_H
#define WD_WAN_TEXT_CACHE_H

#include "dev/device.h"
#include "wan/pipeline.h"

typedef struct wd_text_cache wd_text_cache;

/* The tokens of `count` prompts (the negative one is a prompt like the others), cut to max_tokens,
 * which is logged, and of their embeddings in encoder_dtype (F32 or BF16) what `folder` has (made
 * where missing; NULL: they are kept in memory). `folder` and `pipeline` are borrowed until the
 * cache is closed. */
wd_status wd_text_cache_open(wd_text_cache **out, const char *folder, const wd_pipeline *pipeline,
                             const char *const *prompts, int64_t count, int64_t max_tokens,
                             wd_dtype encoder_dtype, wd_err *err);
void wd_text_cache_close(wd_text_cache *cache); /* NULL is allowed */

/* One of `parts` processes that have opened the same prompts. */
typedef struct wd_text_share {
    int part, parts;
    bool writes; /* into the folder: one of those for which it is the same */
    /* Each process has its part, [at[part], at[part + 1]) of data, and then all of it. `at`
     * [parts + 1] in bytes is the same for all. Called by all of them as often. */
    void (*gather)(void *context, void *data, const size_t *at);
    void *context;
} wd_text_share;

/* Encodes with others from now on: what any of them lacks. The cache must have a folder. All call
 * it, and encode on devices that are not dry together. */
wd_status wd_text_cache_share(wd_text_cache *cache, const wd_text_share *share, wd_err *err);

/* Computes the embeddings that are missing, which must be done before one is asked for. They are
 * written every few thousand rows, so that a run that is interrupted goes on where it was. On a dry
 * device nothing is computed or written, and they are still missing: device and memory meter
 * (core/memory.h) then show what a real call needs. */
wd_status wd_text_cache_encode(wd_text_cache *cache, wd_queue *queue, wd_err *err);

/* How much more memory the process had at the most while prompts were turned into tokens: measured,
 * for the tokenizer's memory is not ours. */
size_t wd_text_cache_tokenizer_bytes(const wd_text_cache *cache);

/* Says which encoder, of which dtype, the embeddings are of; lives as long as the cache. */
const char *wd_text_cache_key(const wd_text_cache *cache);

/* How many different prompts had to be computed. */
int64_t wd_text_cache_computed(const wd_text_cache *cache);

/* Rows [*count, text_dim] of prompt i: its tokens' and no more, in the encoder's dtype; host memory
 * that lives as long as the cache. */
const void *wd_text_cache_rows(const wd_text_cache *cache, int64_t i, int64_t *count);
wd_dtype wd_text_cache_dtype(const wd_text_cache *cache);

/* Tokens of the longest prompt. */
int64_t wd_text_cache_longest(const wd_text_cache *cache);

/* out [rows, text_dim] (host) = rows of prompt i in `dtype` (F32 or BF16), zeros behind them: with
 * max_tokens rows what diffusers' Wan pipeline hands to the transformer. The prompt must have no
 * more tokens than rows. */
void wd_text_cache_fill(void *out, const wd_text_cache *cache, int64_t i, int64_t rows,
                        wd_dtype dtype);

/* out [max_tokens] = token ids of prompt i, padded as the tokenizer does. */
void wd_text_cache_ids(int32_t *out, const wd_text_cache *cache, int64_t i);

#endif
