/* The prompts of a job with the negative one behind them, as the transformer sees them.
 *
 * A transformer sees `tokens` rows of each, of which those behind its tokens are zeros and alike.
 * How many of them are computed is one number for all prompts of a job: the longest's, and one more
 * that stands for the padding behind it (wd_dit_shape). So it follows from the job's prompts alone,
 * and not from which of them are in a batch. */
#ifndef WD_API_PROMPT_EMBEDS_H
#define WD_API_PROMPT_EMBEDS_H

#include "wan/text_cache.h"

enum { WD_PROMPTS_KEY_MAX = 17 };

typedef struct wd_prompt_embeds {
    int64_t count;                    /* without the negative one */
    int64_t tokens, width;            /* tokens: what prompts are cut and padded to */
    int64_t text_tokens, text_repeat; /* rows that are computed, and how many the last stands for */
    wd_text_cache *cache;             /* prompt i, and at `count` the negative one */
} wd_prompt_embeds;

/* Opens the cache in `folder` (NULL: none) for `prompts` and `negative` (NULL: ""), in `dtype`.
 * What it lacks wd_text_cache_encode computes. */
wd_status wd_prompt_embeds_open(wd_prompt_embeds *out, const char *folder,
                                const wd_pipeline *pipeline, const char *const *prompts,
                                int64_t count, const char *negative, int64_t tokens, wd_dtype dtype,
                                wd_err *err);
void wd_prompt_embeds_close(wd_prompt_embeds *embeds); /* a zeroed one is fine */

/* A key of the first `count` prompts in their order, by their tokens: 16 hex digits. */
void wd_prompt_embeds_key(char out[WD_PROMPTS_KEY_MAX], const wd_prompt_embeds *embeds,
                          int64_t count);

/* A wd_sweep_text_fn: `context` is the wd_prompt_embeds, `out` gets its text_tokens rows. Prompt -1
 * is the negative one. */
void wd_prompt_embeds_text(void *context, void *out, int64_t prompt, wd_dtype dtype);

#endif
