/* Embeddings of a job's prompts: see model/text_cache/prompt_embeds.h. */
#include "model/text_cache/prompt_embeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "core/memory.h"

static void set_rows(wd_prompt_embeds *e, int64_t longest)
{
    e->text_tokens = longest < e->tokens ? longest + 1 : e->tokens;
    e->text_repeat = e->tokens - e->text_tokens + 1;
}

wd_status wd_prompt_embeds_open(wd_prompt_embeds *out, const wd_text_place *place,
                                const wd_pipeline *pipeline, const char *const *prompts,
                                int64_t count, const char *negative, int64_t tokens, wd_dtype dtype,
                                wd_err *err)
{
    const char **all;
    *out = (wd_prompt_embeds){
        .count = count, .tokens = tokens, .width = pipeline->umt5.d_model, .cut_from = count};
    WD_TRY(wd_alloc((void **)&all, (size_t)count + 1, sizeof *all, "prompts", err));
    memcpy(all, prompts, (size_t)count * sizeof *all);
    all[count] = negative ? negative : "";
    const wd_status status =
        wd__text_cache_open(&out->cache, place, pipeline, all, count + 1, tokens, dtype, err);
    wd_free((void *)all);
    if (status != WD_OK) return status;
    set_rows(out, wd__text_cache_longest(out->cache));
    return WD_OK;
}

void wd_prompt_embeds_cut(wd_prompt_embeds *e, int64_t first)
{
    int64_t longest = wd__text_cache_tokens(e->cache, e->count);
    for (int64_t i = 0; i < first; i++) {
        const int64_t tokens = wd__text_cache_tokens(e->cache, i);
        if (tokens > longest) longest = tokens;
    }
    e->cut_from = first;
    set_rows(e, longest);
}

/* Of a prompt that may be cut; where the last row represents padding, it is none of the prompt's.
 */
static int64_t tokens_max(const wd_prompt_embeds *e)
{
    return e->text_repeat > 1 ? e->text_tokens - 1 : e->text_tokens;
}

int64_t wd_prompt_embeds_are_cut(const wd_prompt_embeds *e)
{
    int64_t n = 0;
    for (int64_t i = e->cut_from; i < e->count; i++)
        n += wd__text_cache_tokens(e->cache, i) > tokens_max(e);
    return n;
}

void wd_prompt_embeds_close(wd_prompt_embeds *embeds)
{
    wd__text_cache_close(embeds->cache);
    *embeds = (wd_prompt_embeds){0};
}

void wd_prompt_embeds_key(char out[WD_PROMPTS_KEY_MAX], const wd_prompt_embeds *e, int64_t first,
                          int64_t count)
{
    int32_t ids[e->tokens];
    XXH64_hash_t key = 0;
    for (int64_t i = first; i < first + count; i++) {
        wd_text_cache_ids(ids, e->cache, i);
        for (int64_t k = tokens_max(e); i >= e->cut_from && k < e->tokens; k++) ids[k] = 0;
        key = XXH3_64bits_withSeed(ids, sizeof ids, key);
    }
    snprintf(out, WD_PROMPTS_KEY_MAX, "%016" PRIx64, (uint64_t)key);
}

void wd_prompt_embeds_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    const wd_prompt_embeds *e = context;
    const int64_t i = prompt < 0 ? e->count : prompt;
    if (i >= e->cut_from && i < e->count)
        wd__text_cache_fill_cut(out, e->cache, i, tokens_max(e), e->text_tokens, dtype);
    else
        wd_text_cache_fill(out, e->cache, i, e->text_tokens, dtype);
}
