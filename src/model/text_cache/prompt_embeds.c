/* Embeddings of a job's prompts: see model/text_cache/prompt_embeds.h. */
#include "model/text_cache/prompt_embeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "core/memory.h"

wd_status wd_prompt_embeds_open(wd_prompt_embeds *out, const wd_text_place *place,
                                const wd_pipeline *pipeline, const char *const *prompts,
                                int64_t count, const char *negative, int64_t tokens, wd_dtype dtype,
                                wd_err *err)
{
    const char **all;
    *out = (wd_prompt_embeds){.count = count, .tokens = tokens, .width = pipeline->umt5.d_model};
    WD_TRY(wd_alloc((void **)&all, (size_t)count + 1, sizeof *all, "prompts", err));
    memcpy(all, prompts, (size_t)count * sizeof *all);
    all[count] = negative ? negative : "";
    const wd_status status =
        wd__text_cache_open(&out->cache, place, pipeline, all, count + 1, tokens, dtype, err);
    wd_free((void *)all);
    if (status != WD_OK) return status;
    const int64_t longest = wd__text_cache_longest(out->cache);
    out->text_tokens = longest < tokens ? longest + 1 : tokens;
    out->text_repeat = tokens - out->text_tokens + 1;
    return WD_OK;
}

void wd_prompt_embeds_close(wd_prompt_embeds *embeds)
{
    wd__text_cache_close(embeds->cache);
    *embeds = (wd_prompt_embeds){0};
}

void wd_prompt_embeds_key(char out[WD_PROMPTS_KEY_MAX], const wd_prompt_embeds *e, int64_t count)
{
    int32_t ids[e->tokens];
    XXH64_hash_t key = 0;
    for (int64_t i = 0; i < count; i++) {
        wd_text_cache_ids(ids, e->cache, i);
        key = XXH3_64bits_withSeed(ids, sizeof ids, key);
    }
    snprintf(out, WD_PROMPTS_KEY_MAX, "%016" PRIx64, (uint64_t)key);
}

void wd_prompt_embeds_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    const wd_prompt_embeds *e = context;
    wd_text_cache_fill(out, e->cache, prompt < 0 ? e->count : prompt, e->text_tokens, dtype);
}
