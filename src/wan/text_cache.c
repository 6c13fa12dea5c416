/* The text cache: see wan/text_cache.h.
 *
 * Prompts are sorted by the hash of their token ids; a file's prompts are looked up in that list.
 * What no file has is encoded in batches, the prompts of one length beside each other, each batch a
 * new file. Of several processes each encodes a part of a batch, of as many rows as the others'. */
#include "wan/text_cache.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "io/prompts.h"
#include "io/tokenizer.h"
#include "wan/text_file.h"
#include "wan/umt5.h"

/* Rows of a batch: enough that a sweep over the encoder's weights is well used, few enough that
 * an interruption loses little. */
enum { BATCH_ROWS = 4096 };

typedef struct prompt {
    wd_text_hash hash;
    int64_t first_id, tokens; /* its ids: ids[first_id] ... */
    bool lacking;             /* with others: one of them has no row */
    int64_t at;               /* its place in the caller's list */
    const char *row;          /* its embeddings, once they are there */
} prompt;

/* Where rows live: a mapped file, or memory. */
typedef struct source {
    wd_safetensors *set;
    char *memory;
} source;

struct wd_text_cache {
    prompt *prompt;  /* [count] by hash */
    int64_t *sorted; /* [count] place of the caller's prompt i in `prompt` */
    int32_t *ids;
    int64_t count, id_count, id_room;
    int64_t max_tokens, text_dim, computed;
    int64_t cut; /* prompts that have more tokens */
    int32_t pad_id;
    wd_dtype dtype;
    source *source;
    int64_t sources, source_room;
    size_t tokenizer_bytes;
    /* until all prompts have rows: */
    const char *folder; /* or NULL */
    const wd_pipeline *pipeline;
    wd_safetensors *weights;
    char key[WD_TEXT_KEY_MAX];
    wd_text_share share; /* parts 0: alone */
};

/* ---- prompts ---- */

static int by_hash(const void *a, const void *b)
{
    const prompt *x = a, *y = b;
    int order = memcmp(&x->hash, &y->hash, sizeof x->hash);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Cleans and tokenizes one prompt; its ids go behind the others. One token more than may be tells
 * that it is too long. */
static wd_status tokenize(wd_text_cache *c, prompt *p, const wd_tokenizer *tokenizer,
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
    p->hash = wd_text_hash_of(ids, p->tokens);
    return WD_OK;
}

static wd_status tokenize_all(wd_text_cache *c, const char *const *texts, wd_err *err)
{
    char folder[WD_PATH_MAX];
    wd_tokenizer *tokenizer = NULL;
    void *block;
    wd_status status;
    const size_t before = wd_host_memory_own(), peak_before = wd_host_memory_own_peak();
    WD_TRY(wd_alloc(&block, (size_t)c->count, sizeof *c->prompt, "a list of prompts", err));
    c->prompt = block;
    WD_TRY(wd_alloc(&block, (size_t)c->count, sizeof *c->sorted, "a list of prompts", err));
    c->sorted = block;
    WD_TRY(wd_pipeline_require(c->pipeline, WD_COMPONENT_TOKENIZER, err));
    WD_TRY(wd_pipeline_folder(folder, c->pipeline, WD_COMPONENT_TOKENIZER, err));
    WD_TRY(wd_tokenizer_open(&tokenizer, folder, err));
    for (int64_t i = 0; i < c->count; i++) {
        c->prompt[i].at = i;
        status = tokenize(c, &c->prompt[i], tokenizer, texts[i], err);
        if (status == WD_OK) continue;
        if (err) wd_fail_in(err, "prompt %" PRId64 " (\"%.60s\")", i, texts[i]);
        goto out;
    }
    qsort(c->prompt, (size_t)c->count, sizeof *c->prompt, by_hash);
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
    wd_host_memory_trim(); /* of a large vocabulary there are millions of small blocks */
    return status;
}

/* ---- sources ---- */

/* Room for one more, so that nothing fails once it is there. */
static wd_status reserve_source(wd_text_cache *c, wd_err *err)
{
    void *block = c->source;
    if (c->sources < c->source_room) return WD_OK;
    int64_t room = 2 * c->source_room + 8;
    WD_TRY(wd_resize(&block, (size_t)room, sizeof *c->source, "a list of cache files", err));
    c->source = block;
    c->source_room = room;
    return WD_OK;
}

static bool same(const wd_text_hash *a, const wd_text_hash *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* Gives our prompts the rows that they have there; returns how many of ours had none before. */
static int64_t take_rows(wd_text_cache *c, const wd_text_rows *r)
{
    int64_t taken = 0;
    for (int64_t i = 0; i < r->count; i++) {
        int64_t low = 0, high = c->count; /* the first of ours not below the hash */
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (memcmp(&c->prompt[middle].hash, &r->hash[i], sizeof r->hash[i]) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < c->count && same(&c->prompt[low].hash, &r->hash[i]); low++) {
            prompt *p = &c->prompt[low];
            if (p->row || r->first[i + 1] - r->first[i] != p->tokens) continue;
            p->row = r->row + (size_t)(r->first[i] * c->text_dim) * wd_dtype_bytes(c->dtype);
            taken++;
        }
    }
    return taken;
}

/* Maps a file of the cache and takes what it has; one that we need nothing of is let go. */
static wd_status take_file(wd_text_cache *c, const char *path, wd_err *err)
{
    wd_safetensors *set;
    wd_text_rows rows = {.dtype = c->dtype, .text_dim = c->text_dim};
    WD_TRY(reserve_source(c, err));
    WD_TRY(wd_text_file_open(&set, &rows, path, c->key, err));
    if (take_rows(c, &rows) > 0)
        c->source[c->sources++] = (source){.set = set};
    else
        wd_safetensors_close(set);
    return WD_OK;
}

/* Takes what the files of the folder have. One that cannot be used is passed over with a warning.
 */
static wd_status take_folder(wd_text_cache *c, wd_err *err)
{
    char path[WD_PATH_MAX];
    struct dirent *item;
    if (!wd_path_exists(c->folder)) return WD_OK;
    DIR *dir = opendir(c->folder);
    if (!dir) return wd_fail(err, WD_IO, "%s: cannot be read", c->folder);
    wd_status status = WD_OK;
    while ((item = readdir(dir))) {
        wd_err file_err = {0};
        if (!wd_text_file_is_named(item->d_name, c->key)) continue;
        status = wd_path_join(path, c->folder, item->d_name, err);
        if (status != WD_OK) break;
        status = take_file(c, path, &file_err);
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

/* ---- encoding ---- */

static int by_length(const void *a, const void *b)
{
    const prompt *x = *(const prompt *const *)a, *y = *(const prompt *const *)b;
    return x->tokens != y->tokens ? (x->tokens > y->tokens) - (x->tokens < y->tokens)
                                  : by_hash(x, y);
}

/* The different prompts without rows, by length; *list is the caller's to wd_free. */
static wd_status list_missing(prompt ***list, int64_t *count, const wd_text_cache *c, wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)c->count, sizeof **list, "a list of prompts", err));
    *list = block;
    *count = 0;
    for (int64_t i = 0; i < c->count; i++) {
        prompt *p = &c->prompt[i];
        if ((!p->row || p->lacking) && (i == 0 || !same(&p->hash, &p[-1].hash)))
            (*list)[(*count)++] = p;
    }
    qsort(*list, (size_t)*count, sizeof **list, by_length);
    return WD_OK;
}

/* One batch's arrays: prompts [count] with `rows` rows in all. */
typedef struct batch {
    wd_text_hash *hash;
    int64_t *first;
    int64_t *own_first; /* of the part that is encoded here, from 0 */
    int32_t *ids;
    char *row;
} batch;

static void free_batch(batch *b)
{
    wd_free(b->hash);
    wd_free(b->first);
    wd_free(b->own_first);
    wd_free(b->ids);
    wd_free(b->row);
}

static wd_status alloc_batch(batch *b, int64_t count, int64_t rows, size_t row_bytes, wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)count, sizeof *b->hash, "a batch of prompts", err));
    b->hash = block;
    WD_TRY(wd_alloc(&block, (size_t)count + 1, sizeof *b->first, "a batch of prompts", err));
    b->first = block;
    WD_TRY(wd_alloc(&block, (size_t)count + 1, sizeof *b->own_first, "a batch of prompts", err));
    b->own_first = block;
    WD_TRY(wd_alloc(&block, (size_t)rows, sizeof *b->ids, "a batch of prompts", err));
    b->ids = block;
    block = NULL; /* not cleared: a dry run does not touch it */
    WD_TRY(wd_resize(&block, (size_t)rows, row_bytes, "prompt embeddings", err));
    b->row = block;
    return WD_OK;
}

/* ---- with others ---- */

static bool is_shared(const wd_text_cache *c)
{
    return c->share.parts > 1;
}

static void gather(const wd_text_cache *c, void *data, const size_t *at)
{
    c->share.gather(c->share.context, data, at);
}

/* Whether it is so with any of them. */
static bool any_of_all(const wd_text_cache *c, bool own)
{
    const int parts = c->share.parts;
    bool all[parts], any = false;
    size_t at[parts + 1];
    for (int p = 0; p <= parts; p++) at[p] = (size_t)p * sizeof *all;
    all[c->share.part] = own;
    gather(c, all, at);
    for (int p = 0; p < parts; p++) any |= all[p];
    return any;
}

/* The first prompt of part `p`, of a batch that begins at row 0. */
static int64_t part_begin(const int64_t *first, int64_t count, int p, int parts)
{
    int64_t i = 0;
    while (i < count && first[i] * parts < first[count] * p) i++;
    return i;
}

/* Sends the rows that were encoded here, and gets those of the others. */
static void gather_rows(const wd_text_cache *c, const batch *b, int64_t count, size_t row_bytes)
{
    const int parts = c->share.parts;
    size_t at[parts + 1];
    for (int p = 0; p <= parts; p++)
        at[p] = (size_t)b->first[part_begin(b->first, count, p, parts)] * row_bytes;
    gather(c, b->row, at);
}

/* What the writers have written. */
static wd_status take_written(wd_text_cache *c, wd_err *err)
{
    any_of_all(c, false); /* once all is there */
    if (!c->share.writes) WD_TRY(take_folder(c, err));
    for (int64_t i = 0; i < c->count; i++)
        if (!c->prompt[i].row)
            return wd_fail(err, WD_IO,
                           "%s: prompt embeddings are missing there that another process of this "
                           "machine has written; give --cache_dir a folder that all see alike",
                           c->folder);
    return WD_OK;
}

wd_status wd_text_cache_share(wd_text_cache *c, const wd_text_share *share, wd_err *err)
{
    void *block;
    const size_t parts = (size_t)share->parts, count = (size_t)c->count;
    size_t at[parts + 1];
    assert(c->folder);
    c->share = *share;
    for (size_t p = 0; p <= parts; p++) at[p] = p * count;
    WD_TRY(wd_alloc(&block, parts, count, "a list of prompts", err));
    char *lacking = block;
    for (size_t i = 0; i < count; i++) lacking[at[share->part] + i] = !c->prompt[i].row;
    gather(c, lacking, at);
    for (size_t i = 0; i < parts * count; i++) c->prompt[i % count].lacking |= lacking[i];
    wd_free(block);
    return WD_OK;
}

/* ---- a batch ---- */

/* Rows of this process's part, or all. */
static wd_status encode_part(wd_text_cache *c, wd_umt5 *encoder, const batch *b, int64_t count,
                             size_t row_bytes, wd_err *err)
{
    int64_t begin = 0, end = count;
    if (is_shared(c)) {
        begin = part_begin(b->first, count, c->share.part, c->share.parts);
        end = part_begin(b->first, count, c->share.part + 1, c->share.parts);
    }
    const int64_t row = b->first[begin];
    for (int64_t i = begin; i <= end; i++) b->own_first[i - begin] = b->first[i] - row;
    if (begin == end) return WD_OK;
    return wd_umt5_encode_rows(encoder, b->row + (size_t)row * row_bytes, b->ids + row,
                               b->own_first, end - begin, err);
}

/* Takes the rows of a batch: from a new file, or as they are. */
static wd_status keep_batch(wd_text_cache *c, batch *b, int64_t count, wd_err *err)
{
    char path[WD_PATH_MAX];
    const wd_text_rows r = {b->hash, b->first, b->row, count, c->text_dim, c->dtype};
    c->computed += count;
    if (!c->folder) {
        take_rows(c, &r);
        c->source[c->sources++] = (source){.memory = b->row};
        b->row = NULL;
        return WD_OK;
    }
    if (is_shared(c) && !c->share.writes) return WD_OK;
    WD_TRY(wd_text_file_write(path, c->folder, c->key, &r, err));
    return take_file(c, path, err);
}

/* Encodes `count` prompts of `rows` tokens in all. A dry encoder's are nothing. */
static wd_status encode_batch(wd_text_cache *c, wd_umt5 *encoder, bool dry, prompt *const *list,
                              int64_t count, int64_t rows, wd_err *err)
{
    batch b = {0};
    wd_status status;
    size_t row_bytes = (size_t)c->text_dim * wd_dtype_bytes(c->dtype);
    WD_TRY_OUT(reserve_source(c, err));
    WD_TRY_OUT(alloc_batch(&b, count, rows, row_bytes, err));
    for (int64_t i = 0; i < count; i++) {
        b.hash[i] = list[i]->hash;
        b.first[i + 1] = b.first[i] + list[i]->tokens;
        memcpy(b.ids + b.first[i], c->ids + list[i]->first_id,
               (size_t)list[i]->tokens * sizeof *b.ids);
    }
    WD_TRY_OUT(encode_part(c, encoder, &b, count, row_bytes, err));
    if (dry) goto out;
    if (is_shared(c)) gather_rows(c, &b, count, row_bytes);
    WD_TRY_OUT(keep_batch(c, &b, count, err));
out:
    free_batch(&b);
    return status;
}

/* Of several processes all end where one is asked to. */
static bool is_stopped(const wd_text_cache *c, bool dry)
{
    const bool own = wd_stop_requested();
    return is_shared(c) && !dry ? any_of_all(c, own) : own;
}

static wd_status encode_list(wd_text_cache *c, prompt *const *list, int64_t count, wd_queue *queue,
                             wd_err *err)
{
    const bool dry = wd_device_is_dry(wd_queue_device(queue));
    wd_umt5 *encoder = NULL;
    wd_status status;
    if (!dry) {
        wd_log(WD_LOG_INFO,
               "text encoder: %" PRId64 " of %" PRId64
               " texts to encode in %s, the negative prompt counted",
               count, c->count, wd_dtype_option_name(c->dtype));
        if (c->folder && (!is_shared(c) || c->share.writes)) WD_TRY(wd_folder_make(c->folder, err));
    }
    WD_TRY_OUT(wd_umt5_open(&encoder, &c->pipeline->umt5, c->weights, c->dtype, queue, err));
    for (int64_t begin = 0, end; begin < count; begin = end) {
        int64_t rows = list[begin]->tokens;
        if (is_stopped(c, dry)) {
            status = wd_fail(err, WD_INTERRUPTED,
                             "stopped after %" PRId64 " of %" PRId64 " prompts were encoded", begin,
                             count);
            goto out;
        }
        for (end = begin + 1; end < count && rows + list[end]->tokens <= BATCH_ROWS; end++)
            rows += list[end]->tokens;
        WD_TRY_OUT(encode_batch(c, encoder, dry, list + begin, end - begin, rows, err));
        if (!dry)
            wd_log(WD_LOG_DEBUG, "text encoder: %" PRId64 " of %" PRId64 " prompts", end, count);
    }
out:
    wd_umt5_close(encoder);
    return status;
}

wd_status wd_text_cache_encode(wd_text_cache *c, wd_queue *queue, wd_err *err)
{
    prompt **list = NULL;
    int64_t count = 0;
    wd_status status;
    WD_TRY_OUT(list_missing(&list, &count, c, err));
    if (count) WD_TRY_OUT(encode_list(c, list, count, queue, err));
    if (wd_device_is_dry(wd_queue_device(queue))) goto out;
    if (is_shared(c)) WD_TRY_OUT(take_written(c, err));
    wd_safetensors_close(c->weights);
    c->weights = NULL;
out:
    wd_free(list);
    return status;
}

/* ---- open and close ---- */

wd_status wd_text_cache_open(wd_text_cache **out, const char *folder, const wd_pipeline *pipeline,
                             const char *const *prompts, int64_t count, int64_t max_tokens,
                             wd_dtype encoder_dtype, wd_err *err)
{
    void *block;
    wd_status status;
    assert(count > 0 && max_tokens > 0);
    WD_TRY(wd_alloc(&block, 1, sizeof(wd_text_cache), "a text cache", err));
    wd_text_cache *c = block;
    *c = (wd_text_cache){.count = count,
                         .max_tokens = max_tokens,
                         .text_dim = pipeline->umt5.d_model,
                         .dtype = encoder_dtype,
                         .folder = folder,
                         .pipeline = pipeline};
    WD_TRY_OUT(tokenize_all(c, prompts, err));
    WD_TRY_OUT(wd_pipeline_require(pipeline, WD_COMPONENT_TEXT_ENCODER, err));
    WD_TRY_OUT(wd_pipeline_open_weights(&c->weights, pipeline, WD_COMPONENT_TEXT_ENCODER, err));
    wd_text_key_of(c->key, &pipeline->umt5, c->weights, encoder_dtype);
    if (folder) WD_TRY_OUT(take_folder(c, err));
    *out = c;
    c = NULL;
out:
    wd_text_cache_close(c);
    return status;
}

void wd_text_cache_close(wd_text_cache *c)
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

/* ---- asking ---- */

static const prompt *prompt_at(const wd_text_cache *c, int64_t i)
{
    assert(i >= 0 && i < c->count);
    return &c->prompt[c->sorted[i]];
}

size_t wd_text_cache_tokenizer_bytes(const wd_text_cache *c)
{
    return c->tokenizer_bytes;
}
int64_t wd_text_cache_computed(const wd_text_cache *c)
{
    return c->computed;
}
wd_dtype wd_text_cache_dtype(const wd_text_cache *c)
{
    return c->dtype;
}

const void *wd_text_cache_rows(const wd_text_cache *c, int64_t i, int64_t *count)
{
    *count = prompt_at(c, i)->tokens;
    return prompt_at(c, i)->row;
}

int64_t wd_text_cache_longest(const wd_text_cache *c)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < c->count; i++)
        if (c->prompt[i].tokens > longest) longest = c->prompt[i].tokens;
    return longest;
}

void wd_text_cache_fill(void *out, const wd_text_cache *c, int64_t i, int64_t rows, wd_dtype dtype)
{
    const prompt *p = prompt_at(c, i);
    int64_t values = p->tokens * c->text_dim;
    size_t bytes = (size_t)values * wd_dtype_bytes(dtype);
    size_t all = (size_t)(rows * c->text_dim) * wd_dtype_bytes(dtype);
    const float *wide = (const float *)(const void *)p->row;
    const uint16_t *narrow = (const uint16_t *)(const void *)p->row;
    assert(dtype == WD_F32 || dtype == WD_BF16);
    assert(p->tokens <= rows);
    if (dtype == c->dtype)
        memcpy(out, p->row, bytes);
    else if (dtype == WD_F32)
        for (int64_t k = 0; k < values; k++) ((float *)out)[k] = wd_bf16_to_f32(narrow[k]);
    else
        for (int64_t k = 0; k < values; k++) ((uint16_t *)out)[k] = wd_f32_to_bf16(wide[k]);
    memset((char *)out + bytes, 0, all - bytes);
}

void wd_text_cache_ids(int32_t *out, const wd_text_cache *c, int64_t i)
{
    const prompt *p = prompt_at(c, i);
    memcpy(out, c->ids + p->first_id, (size_t)p->tokens * sizeof *out);
    for (int64_t k = p->tokens; k < c->max_tokens; k++) out[k] = c->pad_id;
}
