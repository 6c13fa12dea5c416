/* The embeddings of a job's prompts, and after them that of the negative prompt.
 *
 * A transformer gets `tokens` rows for each prompt; the rows after its own tokens are zeros. The
 * number of rows that are computed is the same for all prompts of a job: that of the longest
 * prompt, and one more that represents the padding (wd_dit_shape). So it follows from the job's
 * prompts, and not from those in a batch. */
#ifndef WD_MODEL_TEXT_CACHE_PROMPT_EMBEDS_H
#define WD_MODEL_TEXT_CACHE_PROMPT_EMBEDS_H

#include "model/text_cache/text_cache.h"

enum { WD_PROMPTS_KEY_MAX = 17 };

typedef struct wd_prompt_embeds {
    int64_t count;                    /* without the negative prompt */
    int64_t tokens, width;            /* prompts are cut and padded to `tokens` rows of `width` */
    int64_t text_tokens, text_repeat; /* computed rows, and how many rows the last one represents */
    int64_t cut_from;     /* prompts from this one on are cut to the rows that the others need */
    wd_text_cache *cache; /* prompt i, and at index `count` the negative prompt */
} wd_prompt_embeds;

/* Opens the cache at `place` (NULL: none) for `prompts` and `negative` (NULL: ""), in `dtype`.
 * wd_text_cache_encode computes embeddings that the cache lacks. */
wd_status wd_prompt_embeds_open(wd_prompt_embeds *out, const wd_text_place *place,
                                const wd_pipeline *pipeline, const char *const *prompts,
                                int64_t count, const char *negative, int64_t tokens, wd_dtype dtype,
                                wd_err *err);
/* The prompts from number `first` on, which `count` may be, no longer say how many rows are
 * computed: only those before them do, and the negative one. What is longer is cut from now on. */
void wd_prompt_embeds_cut(wd_prompt_embeds *embeds, int64_t first);
/* How many prompts are cut so. */
int64_t wd_prompt_embeds_are_cut(const wd_prompt_embeds *embeds);

void wd_prompt_embeds_close(wd_prompt_embeds *embeds); /* a zeroed struct is allowed */

/* Computes a key of the tokens of `count` prompts from number `first` on, in their order and as
 * they are cut: 16 hex digits. */
void wd_prompt_embeds_key(char out[WD_PROMPTS_KEY_MAX], const wd_prompt_embeds *embeds,
                          int64_t first, int64_t count);

/* A wd_sweep_text_fn: `context` is the wd_prompt_embeds, `out` gets text_tokens rows. Prompt -1 is
 * the negative prompt. */
void wd_prompt_embeds_text(void *context, void *out, int64_t prompt, wd_dtype dtype);

#endif
