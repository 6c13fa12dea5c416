/* Folder model/text_cache. Prompt embeddings: computed once, kept on disk.
 *
 * Prompt embeddings, which are computed once, kept on disk, and mapped.
 *
 *   prompts -> cleaned -> token ids -> rows of the encoder, taken from the cache if it has them
 *
 * Several processes of a job may encode together, each a share of every batch. Of the processes
 * that use the same folder one writes.
 *
 * open looks up the prompts in the cache. encode then opens the encoder only if a prompt is
 * missing, and closes it before it returns, so that only mapped files remain in memory. Rows are
 * kept in the encoder's dtype, without padding. Cache files are not trusted: if format, encoder,
 * dtype or checksum differ, the prompts are computed again (model/text_cache/text_file.h). */
#ifndef WD_MODEL_TEXT_CACHE_TEXT_CACHE_H
#define WD_MODEL_TEXT_CACHE_TEXT_CACHE_H

#include "dev/device.h"
#include "model/files/pipeline.h"

typedef struct wd_text_cache wd_text_cache;

/* The folder of a cache, and the kernels that compute what it lacks. */
typedef struct wd_text_place {
    const char *folder;  /* created if it is missing; NULL: embeddings are kept in memory */
    const char *kernels; /* wd_traits' of the device that encodes, whose bits other devices do not
                          * have: files of other kernels are not taken. NULL: any processor's */
} wd_text_place;

/* Tokenizes `count` prompts (the negative prompt is one of them), cuts them to max_tokens, which is
 * logged, and maps those of their embeddings in encoder_dtype (F32 or BF16) that the folder has.
 * `place` NULL: no folder, and a processor. The folder and `pipeline` are borrowed until the cache
 * is closed. */
wd_status wd__text_cache_open(wd_text_cache **out, const wd_text_place *place,
                              const wd_pipeline *pipeline, const char *const *prompts,
                              int64_t count, int64_t max_tokens, wd_dtype encoder_dtype,
                              wd_err *err);
void wd__text_cache_close(wd_text_cache *cache); /* NULL is allowed */

/* The role of this process among `parts` processes that have opened the same prompts. */
typedef struct wd_text_share {
    int part, parts;
    bool writes; /* whether it writes the folder; one process per folder does */
    /* An allgather: before the call each process has its part, bytes [at[part], at[part + 1]) of
     * data, after it all of data. `at` [parts + 1] is the same for all. All processes make the same
     * calls. */
    void (*gather)(void *context, void *data, const size_t *at);
    void *context;
} wd_text_share;

/* From now on the cache encodes together with other processes all prompts that any of them lacks.
 * The cache must have a folder. All processes call this, and all call encode together unless the
 * device is dry. */
wd_status wd_text_cache_share(wd_text_cache *cache, const wd_text_share *share, wd_err *err);

/* Computes the embeddings that are missing; call it before embeddings are read. They are written
 * every few thousand rows, so that an interrupted run can continue there. On a dry device nothing
 * is computed or written, and the embeddings stay missing; device and memory counters
 * (core/memory.h) then show the memory that a real call needs. */
wd_status wd_text_cache_encode(wd_text_cache *cache, wd_queue *queue, wd_err *err);

/* Launches on a dry queue what encoding prompts of up to `max_tokens` tokens needs most of, so that
 * device and memory counters show the most that wd_text_cache_encode takes, whatever the prompts.
 */
wd_status wd_text_cache_rehearse(const wd_pipeline *pipeline, int64_t max_tokens,
                                 wd_dtype encoder_dtype, wd_queue *dry, wd_err *err);

/* The measured peak of memory, in bytes, by which tokenization increased that of the process. It is
 * measured since the tokenizer library has an allocator of its own. */
size_t wd_text_cache_tokenizer_bytes(const wd_text_cache *cache);

/* Identifies encoder and dtype of the embeddings (wd__text_key_of), not what computes them; valid
 * until the cache is closed. */
const char *wd_text_cache_key(const wd_text_cache *cache);

/* The number of different prompts that had to be computed. */
int64_t wd__text_cache_computed(const wd_text_cache *cache);

/* Bytes of the files that encoding writes for the prompts that the folder lacks; 0 without a
 * folder. */
uint64_t wd_text_cache_bytes_to_write(const wd_text_cache *cache);

/* Rows [*count, text_dim] of prompt i, one per token without padding, in the encoder's dtype; host
 * memory, valid until the cache is closed. */
const void *wd__text_cache_rows(const wd_text_cache *cache, int64_t i, int64_t *count);
wd_dtype wd__text_cache_dtype(const wd_text_cache *cache);

/* Tokens of the longest prompt. */
int64_t wd__text_cache_longest(const wd_text_cache *cache);

/* Tokens of prompt i. */
int64_t wd__text_cache_tokens(const wd_text_cache *cache, int64_t i);

/* out [rows, text_dim] (host) = rows of prompt i in `dtype` (F32 or BF16), followed by zeros. With
 * max_tokens rows this is the input of the transformer in diffusers' Wan pipeline. The prompt must
 * have no more tokens than rows. */
void wd_text_cache_fill(void *out, const wd_text_cache *cache, int64_t i, int64_t rows,
                        wd_dtype dtype);
/* The same of the prompt's first `tokens_max` tokens, of which there may be fewer. */
void wd__text_cache_fill_cut(void *out, const wd_text_cache *cache, int64_t i, int64_t tokens_max,
                             int64_t rows, wd_dtype dtype);

/* out [max_tokens] = token ids of prompt i, padded with the tokenizer's padding id. */
void wd_text_cache_ids(int32_t *out, const wd_text_cache *cache, int64_t i);

#endif
