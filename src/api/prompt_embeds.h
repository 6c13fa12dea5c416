/* The prompts of a job with the negative one behind them, as the transformer sees them. */
#ifndef WD_API_PROMPT_EMBEDS_H
#define WD_API_PROMPT_EMBEDS_H

#include "wan/text_cache.h"

typedef struct wd_prompt_embeds {
    int64_t count; /* without the negative one */
    int64_t tokens, width;
    wd_text_cache *cache; /* prompt i, and at `count` the negative one */
} wd_prompt_embeds;

/* Takes the embeddings of `prompts` and of `negative` (NULL: "") from the cache in `folder` (NULL:
 * none), or computes them in `dtype` and keeps them there. */
wd_status wd_prompt_embeds_open(wd_prompt_embeds *out, const char *folder,
                                const wd_pipeline *pipeline, const char *const *prompts,
                                int64_t count, const char *negative, int64_t tokens, wd_dtype dtype,
                                wd_queue *queue, wd_err *err);
void wd_prompt_embeds_close(wd_prompt_embeds *embeds); /* a zeroed one is fine */

/* A wd_sweep_text_fn: `context` is the wd_prompt_embeds. Prompt -1 is the negative one. */
void wd_prompt_embeds_text(void *context, void *out, int64_t prompt, wd_dtype dtype);

#endif
