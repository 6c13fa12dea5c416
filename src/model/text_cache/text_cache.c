/* The text cache: see model/text_cache/text_cache.h.
 *
 * Prompts are sorted by the hash of their token ids; the prompts of a file are looked up in this
 * list. text_cache_encode.c encodes the prompts that no file has. */
#include "model/text_cache/text_cache_impl.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/progress.h"
#include "io/text/prompts.h"
#include "io/text/tokenizer.h"

/* ---- prompts ---- */

int wd__text_prompt_order(const void *a, const void *b)
{
    const wd_text_prompt *x = a, *y = b;
    int order = memcmp(&x->hash, &y->hash, sizeof x->hash);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Cleans and tokenizes one prompt, and appends its ids. It requests one token more than is allowed,
 * to see whether the prompt is too long. */
static wd_status tokenize(wd_text_cache *c, wd_text_prompt *p, const wd_tokenizer *tokenizer,
                          const char *text, wd_err *err)
{
    char *clean;
    void *block = c->ids;
    if (c->id_room - c->id_count <= c->max_tokens) {
        int64_t room = 2 * c->id_room + c->max_tokens + 1;
        WD_TRY(wd_resize(&block, (size_t)room, sizeof *c->ids, "token ids", err));
        c->ids = block;
        c->id_room = room;
    }
    WD_TRY(wd_prompt_clean(&clean, text, err));
    p->first_id = c->id_count;
    int32_t *ids = c->ids + p->first_id;
    wd_status status =
        wd_tokenizer_encode(ids, &p->tokens, tokenizer, clean, c->max_tokens + 1, err);
    wd_free(clean);
    if (status != WD_OK) return status;
    if (p->tokens > c->max_tokens) {
        ids[c->max_tokens - 1] = ids[c->max_tokens]; /* </s> */
        p->tokens = c->max_tokens;
        c->cut++;
    }
    c->id_count += p->tokens;
    p->hash = wd__text_hash_of(ids, p->tokens);
    return WD_OK;
}

static wd_status tokenize_all(wd_text_cache *c, const char *const *texts, wd_err *err)
{
    wd_tokenizer *tokenizer = NULL;
    void *block;
    wd_status status;
    const size_t before = wd_host_memory_own(), peak_before = wd_host_memory_own_peak();
    WD_TRY(wd_alloc(&block, (size_t)c->count, sizeof *c->prompt, "a list of prompts", err));
    c->prompt = block;
    WD_TRY(wd_alloc(&block, (size_t)c->count, sizeof *c->sorted, "a list of prompts", err));
    c->sorted = block;
    WD_TRY(wd_pipeline_tokenizer_open(&tokenizer, c->pipeline, err));
    wd_progress_task progress = wd_progress_begin("tokenizing prompts", "prompt", 0, c->count);
    for (int64_t i = 0; i < c->count; i++) {
        c->prompt[i].at = i;
        status = tokenize(c, &c->prompt[i], tokenizer, texts[i], err);
        wd_progress_at(&progress, i + 1);
        if (status == WD_OK) continue;
        if (status == WD_INTERRUPTED)
            wd_fail(err, status, "stopped after %" PRId64 " of %" PRId64 " prompts were tokenized",
                    i, c->count);
        else if (err)
            wd_fail_in(err, "prompt %" PRId64 " (\"%.60s\")", i, texts[i]);
        goto out;
    }
    qsort(c->prompt, (size_t)c->count, sizeof *c->prompt, wd__text_prompt_order);
    for (int64_t i = 0; i < c->count; i++) c->sorted[c->prompt[i].at] = i;
    c->pad_id = wd_tokenizer_pad_id(tokenizer);
    if (c->cut)
        wd_log(WD_LOG_INFO,
               "%" PRId64 " prompt%s more than %" PRId64 " tokens: what is behind is left out",
               c->cut, c->cut == 1 ? " has" : "s have", c->max_tokens);
    const size_t after = wd_host_memory_own(), peak = wd_host_memory_own_peak();
    const size_t most = peak > peak_before && peak > after ? peak : after;
    c->tokenizer_bytes = most > before ? most - before : 0;
    status = WD_OK;
out:
    wd_tokenizer_close(tokenizer);
    wd_host_memory_trim(); /* a large vocabulary has millions of small blocks */
    return status;
}

/* ---- sources ---- */

wd_status wd__text_cache_reserve(wd_text_cache *c, wd_err *err)
{
    void *block = c->source;
    if (c->sources < c->source_room) return WD_OK;
    int64_t room = 2 * c->source_room + 8;
    WD_TRY(wd_resize(&block, (size_t)room, sizeof *c->source, "a list of cache files", err));
    c->source = block;
    c->source_room = room;
    return WD_OK;
}

/* Sets the rows of our prompts that `r` has; returns how many of them had none before. */
static int64_t take_rows(wd_text_cache *c, const wd_text_rows *r)
{
    int64_t taken = 0;
    for (int64_t i = 0; i < r->count; i++) {
        int64_t low = 0, high = c->count; /* finds our first prompt that is not below the hash */
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (memcmp(&c->prompt[middle].hash, &r->hash[i], sizeof r->hash[i]) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < c->count && wd__text_hash_same(&c->prompt[low].hash, &r->hash[i]); low++) {
            wd_text_prompt *p = &c->prompt[low];
            if (p->row || r->first[i + 1] - r->first[i] != p->tokens) continue;
            p->row = r->row + (size_t)(r->first[i] * c->text_dim) * wd_dtype_bytes(c->dtype);
            taken++;
        }
    }
    return taken;
}

void wd__text_cache_take_memory(wd_text_cache *c, const wd_text_rows *rows, char *memory)
{
    take_rows(c, rows);
    c->source[c->sources++] = (wd_text_source){.memory = memory};
}

wd_status wd__text_cache_take_file(wd_text_cache *c, const char *path, wd_err *err)
{
    wd_safetensors *set;
    wd_text_rows rows = {.dtype = c->dtype, .text_dim = c->text_dim};
    WD_TRY(wd__text_cache_reserve(c, err));
    WD_TRY(wd__text_file_open(&set, &rows, path, c->key, err));
    if (take_rows(c, &rows) > 0)
        c->source[c->sources++] = (wd_text_source){.set = set};
    else
        wd_safetensors_close(set);
    wd_free(rows.index);
    return WD_OK;
}

wd_status wd__text_cache_take_folder(wd_text_cache *c, wd_err *err)
{
    char path[WD_PATH_MAX];
    struct dirent *item;
    if (!wd_path_exists(c->folder)) return WD_OK;
    DIR *dir = opendir(c->folder);
    if (!dir) return wd_fail(err, WD_IO, "%s: cannot be read", c->folder);
    wd_status status = WD_OK;
    while ((item = readdir(dir))) {
        wd_err file_err = {0};
        if (!wd__text_file_is_named(item->d_name, c->key)) continue;
        status = wd_path_join(path, c->folder, item->d_name, err);
        if (status != WD_OK) break;
        status = wd__text_cache_take_file(c, path, &file_err);
        if (status == WD_OUT_OF_MEMORY) {
            if (err) *err = file_err;
            break;
        }
        if (status != WD_OK)
            wd_log(WD_LOG_WARNING, "text cache: %s; its prompts are encoded again",
                   file_err.message);
        status = WD_OK;
    }
    closedir(dir);
    return status;
}

/* ---- open and close ---- */

wd_status wd__text_cache_open(wd_text_cache **out, const wd_text_place *place,
                              const wd_pipeline *pipeline, const char *const *prompts,
                              int64_t count, int64_t max_tokens, wd_dtype encoder_dtype,
                              wd_err *err)
{
    void *block;
    wd_status status;
    const wd_text_place none = {0};
    assert(count > 0 && max_tokens > 0);
    if (!place) place = &none;
    WD_TRY(wd_alloc(&block, 1, sizeof(wd_text_cache), "a text cache", err));
    wd_text_cache *c = block;
    *c = (wd_text_cache){.count = count,
                         .max_tokens = max_tokens,
                         .text_dim = pipeline->umt5.d_model,
                         .dtype = encoder_dtype,
                         .folder = place->folder,
                         .pipeline = pipeline};
    WD_TRY_OUT(tokenize_all(c, prompts, err));
    WD_TRY_OUT(wd_pipeline_require(pipeline, WD_COMPONENT_TEXT_ENCODER, err));
    WD_TRY_OUT(wd_pipeline_open_weights(&c->weights, pipeline, WD_COMPONENT_TEXT_ENCODER, err));
    wd__text_key_of(c->key, &pipeline->umt5, c->weights, encoder_dtype, place->kernels);
    wd__text_key_of(c->encoder_key, &pipeline->umt5, c->weights, encoder_dtype, NULL);
    if (c->folder) WD_TRY_OUT(wd__text_cache_take_folder(c, err));
    *out = c;
    c = NULL;
out:
    wd__text_cache_close(c);
    return status;
}

void wd__text_cache_close(wd_text_cache *c)
{
    if (!c) return;
    for (int64_t i = 0; i < c->sources; i++) {
        wd_safetensors_close(c->source[i].set);
        wd_free(c->source[i].memory);
    }
    wd_safetensors_close(c->weights);
    wd_free(c->source);
    wd_free(c->prompt);
    wd_free(c->sorted);
    wd_free(c->ids);
    wd_free(c);
}

/* ---- queries ---- */

static const wd_text_prompt *prompt_at(const wd_text_cache *c, int64_t i)
{
    WD_REQUIRE(i >= 0 && i < c->count, "prompt %" PRId64 " of %" PRId64, i, c->count);
    return &c->prompt[c->sorted[i]];
}

size_t wd_text_cache_tokenizer_bytes(const wd_text_cache *c)
{
    return c->tokenizer_bytes;
}
const char *wd_text_cache_key(const wd_text_cache *c)
{
    return c->encoder_key;
}
int64_t wd__text_cache_computed(const wd_text_cache *c)
{
    return c->computed;
}
wd_dtype wd__text_cache_dtype(const wd_text_cache *c)
{
    return c->dtype;
}

const void *wd__text_cache_rows(const wd_text_cache *c, int64_t i, int64_t *count)
{
    *count = prompt_at(c, i)->tokens;
    return prompt_at(c, i)->row;
}

int64_t wd__text_cache_longest(const wd_text_cache *c)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < c->count; i++)
        if (c->prompt[i].tokens > longest) longest = c->prompt[i].tokens;
    return longest;
}

int64_t wd__text_cache_tokens(const wd_text_cache *c, int64_t i)
{
    return prompt_at(c, i)->tokens;
}

void wd__text_cache_fill_cut(void *out, const wd_text_cache *c, int64_t i, int64_t tokens_max,
                             int64_t rows, wd_dtype dtype)
{
    const wd_text_prompt *p = prompt_at(c, i);
    const int64_t tokens = p->tokens < tokens_max ? p->tokens : tokens_max;
    int64_t values = tokens * c->text_dim;
    size_t bytes = (size_t)values * wd_dtype_bytes(dtype);
    size_t all = (size_t)(rows * c->text_dim) * wd_dtype_bytes(dtype);
    const float *wide = (const float *)(const void *)p->row;
    const uint16_t *narrow = (const uint16_t *)(const void *)p->row;
    assert(dtype == WD_F32 || dtype == WD_BF16);
    WD_REQUIRE(tokens <= rows, "%" PRId64 " tokens are put into %" PRId64 " rows", tokens, rows);
    if (dtype == c->dtype)
        memcpy(out, p->row, bytes);
    else if (dtype == WD_F32)
        for (int64_t k = 0; k < values; k++) ((float *)out)[k] = wd_bf16_to_f32(narrow[k]);
    else
        for (int64_t k = 0; k < values; k++) ((uint16_t *)out)[k] = wd_f32_to_bf16(wide[k]);
    memset((char *)out + bytes, 0, all - bytes);
}

void wd_text_cache_fill(void *out, const wd_text_cache *c, int64_t i, int64_t rows, wd_dtype dtype)
{
    wd__text_cache_fill_cut(out, c, i, INT64_MAX, rows, dtype);
}

void wd_text_cache_ids(int32_t *out, const wd_text_cache *c, int64_t i)
{
    const wd_text_prompt *p = prompt_at(c, i);
    memcpy(out, c->ids + p->first_id, (size_t)p->tokens * sizeof *out);
    for (int64_t k = p->tokens; k < c->max_tokens; k++) out[k] = c->pad_id;
}
