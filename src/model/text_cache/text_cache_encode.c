/* Encodes the prompts that a text cache lacks, alone or with other processes: see
 * model/text_cache/text_cache.h.
 *
 * They are encoded in batches, with prompts of equal length as neighbours; each batch becomes a new
 * file. If several processes encode, each encodes a part of every batch, with about the same number
 * of rows. */
#include "model/text_cache/text_cache_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/progress.h"
#include "model/text/umt5.h"

/* Rows of a batch: enough to amortise a pass over the encoder's weights, few enough that an
 * interruption loses little. */
enum { BATCH_ROWS = 4096 };

/* ---- missing prompts ---- */

static int by_length(const void *a, const void *b)
{
    const wd_text_prompt *x = *(const wd_text_prompt *const *)a;
    const wd_text_prompt *y = *(const wd_text_prompt *const *)b;
    return x->tokens != y->tokens ? (x->tokens > y->tokens) - (x->tokens < y->tokens)
                                  : wd__text_prompt_order(x, y);
}

/* Lists the different prompts without rows, sorted by length. The caller frees *list with wd_free.
 */
static wd_status list_missing(wd_text_prompt ***list, int64_t *count, const wd_text_cache *c,
                              wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)c->count, sizeof **list, "a list of prompts", err));
    *list = block;
    *count = 0;
    for (int64_t i = 0; i < c->count; i++) {
        wd_text_prompt *p = &c->prompt[i];
        if ((!p->row || p->lacking) && (i == 0 || !wd__text_hash_same(&p->hash, &p[-1].hash)))
            (*list)[(*count)++] = p;
    }
    qsort(*list, (size_t)*count, sizeof **list, by_length);
    return WD_OK;
}

/* ---- a batch's memory ---- */

/* The memory of a batch of prompts [count] with `rows` rows in total. */
typedef struct batch {
    wd_text_hash *hash;
    int64_t *first;
    int64_t *own_first; /* first rows of the prompts that this process encodes, from 0 */
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
    block = NULL; /* not cleared, so that a dry run does not touch it */
    WD_TRY(wd_resize(&block, (size_t)rows, row_bytes, "prompt embeddings", err));
    b->row = block;
    return WD_OK;
}

/* ---- several processes ---- */

static bool is_shared(const wd_text_cache *c)
{
    return c->share.parts > 1;
}

static void gather(const wd_text_cache *c, void *data, const size_t *at)
{
    c->share.gather(c->share.context, data, at);
}

/* Whether `own` is true in any process. */
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

/* The first prompt of part `p` of a batch whose rows begin at 0. */
static int64_t part_begin(const int64_t *first, int64_t count, int p, int parts)
{
    int64_t i = 0;
    while (i < count && first[i] * parts < first[count] * p) i++;
    return i;
}

/* Sends the rows that this process has encoded, and receives those of the others. */
static void gather_rows(const wd_text_cache *c, const batch *b, int64_t count, size_t row_bytes)
{
    const int parts = c->share.parts;
    size_t at[parts + 1];
    for (int p = 0; p <= parts; p++)
        at[p] = (size_t)b->first[part_begin(b->first, count, p, parts)] * row_bytes;
    gather(c, b->row, at);
}

/* Maps the files that the writing processes have written. */
static wd_status take_written(wd_text_cache *c, wd_err *err)
{
    any_of_all(c, false); /* a barrier: all files are written */
    if (!c->share.writes) WD_TRY(wd__text_cache_take_folder(c, err));
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

/* Encodes this process's part of a batch, or all of it. */
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

/* Keeps the rows of a batch: writes and maps a new file, or keeps the memory. */
static wd_status keep_batch(wd_text_cache *c, batch *b, int64_t count, wd_err *err)
{
    char path[WD_PATH_MAX];
    const wd_text_rows r = {.hash = b->hash,
                            .first = b->first,
                            .row = b->row,
                            .count = count,
                            .text_dim = c->text_dim,
                            .dtype = c->dtype};
    c->computed += count;
    if (!c->folder) {
        wd__text_cache_take_memory(c, &r, b->row);
        b->row = NULL;
        return WD_OK;
    }
    if (is_shared(c) && !c->share.writes) return WD_OK;
    WD_TRY(wd__text_file_write(path, c->folder, c->key, &r, err));
    return wd__text_cache_take_file(c, path, err);
}

/* Encodes `count` prompts of `rows` tokens in total. A dry run keeps no rows. */
static wd_status encode_batch(wd_text_cache *c, wd_umt5 *encoder, bool dry,
                              wd_text_prompt *const *list, int64_t count, int64_t rows, wd_err *err)
{
    batch b = {0};
    wd_status status;
    size_t row_bytes = (size_t)c->text_dim * wd_dtype_bytes(c->dtype);
    WD_TRY_OUT(wd__text_cache_reserve(c, err));
    WD_TRY_OUT(alloc_batch(&b, count, rows, row_bytes, err));
    for (int64_t i = 0; i < count; i++) {
        b.hash[i] = list[i]->hash;
        b.first[i + 1] = b.first[i] + list[i]->tokens;
        memcpy(b.ids + b.first[i], c->ids + list[i]->first_id,
               (size_t)list[i]->tokens * sizeof *b.ids);
    }
    status = encode_part(c, encoder, &b, count, row_bytes, err);
    if (status == WD_OK && dry) goto out;
    if (is_shared(c) && (status == WD_OK || status == WD_INTERRUPTED)) {
        /* one that is stopped has sent what is not whole: then no process keeps it */
        gather_rows(c, &b, count, row_bytes);
        if (any_of_all(c, status == WD_INTERRUPTED))
            status = WD_INTERRUPTED; /* for which the caller has a message */
    }
    if (status == WD_OK) status = keep_batch(c, &b, count, err);
out:
    free_batch(&b);
    return status;
}

/* Whether to stop; if one of several processes is asked to stop, all do. */
static bool is_stopped(const wd_text_cache *c, bool dry)
{
    const bool own = wd_stop_requested();
    return is_shared(c) && !dry ? any_of_all(c, own) : own;
}

static wd_status encode_list(wd_text_cache *c, wd_text_prompt *const *list, int64_t count,
                             wd_queue *queue, wd_err *err)
{
    const bool dry = wd_device_is_dry(wd_queue_device(queue));
    wd_umt5 *encoder = NULL;
    wd_status status;
    wd_progress_task progress = {0};
    if (!dry) {
        wd_log(WD_LOG_INFO,
               "text encoder: %" PRId64 " of %" PRId64
               " texts to encode in %s on %s, the negative prompt counted",
               count, c->count, wd_dtype_option_name(c->dtype),
               wd_device_name(wd_queue_device(queue)));
        if (c->folder && (!is_shared(c) || c->share.writes))
            WD_TRY(wd__text_folder_prepare(c->folder, err));
        progress = wd_progress_begin("encoding prompts", "prompt", 0, count);
    }
    WD_TRY_OUT(wd_umt5_open(&encoder, &c->pipeline->umt5, c->weights, c->dtype, queue, err));
    for (int64_t begin = 0, end; begin < count; begin = end) {
        int64_t rows = list[begin]->tokens;
        if (is_stopped(c, dry)) status = WD_INTERRUPTED;
        for (end = begin + 1; end < count && rows + list[end]->tokens <= BATCH_ROWS; end++)
            rows += list[end]->tokens;
        if (status == WD_OK)
            status = encode_batch(c, encoder, dry, list + begin, end - begin, rows, err);
        if (status == WD_INTERRUPTED && dry)
            wd_fail(err, status, "stopped before prompts were encoded");
        else if (status == WD_INTERRUPTED)
            wd_fail(err, status, "stopped after %" PRId64 " of %" PRId64 " prompts were encoded",
                    begin, count);
        if (status != WD_OK) goto out;
        wd_progress_at(&progress, end);
    }
out:
    wd_umt5_close(encoder);
    return status;
}

/* Encodes prompts on a dry queue: one of `longest` tokens, then as many of `tokens` as a batch has
 * room for. */
static wd_status rehearse_batch(wd_umt5 *encoder, int32_t *ids, int64_t *first, int64_t longest,
                                int64_t tokens, size_t row_bytes, wd_err *err)
{
    void *rows = NULL;
    int64_t count = 1;
    first[1] = longest;
    while (first[count] + tokens <= BATCH_ROWS) {
        first[count + 1] = first[count] + tokens;
        count++;
    }
    WD_TRY(wd_resize(&rows, (size_t)first[count], row_bytes, "prompt embeddings", err));
    const wd_status status = wd_umt5_encode_rows(encoder, rows, ids, first, count, err);
    wd_free(rows);
    return status;
}

/* Two batches have the most of everything: one of the longest prompts, and one that fills all its
 * rows behind a longest prompt. */
wd_status wd_text_cache_rehearse(const wd_pipeline *pipeline, int64_t max_tokens, wd_dtype dtype,
                                 wd_queue *dry, wd_err *err)
{
    wd_status status;
    wd_safetensors *weights = NULL;
    wd_umt5 *encoder = NULL;
    int32_t *ids = NULL; /* all 0, which every vocabulary has */
    int64_t *first = NULL;
    const size_t rows = (size_t)(max_tokens > BATCH_ROWS ? max_tokens : BATCH_ROWS);
    const size_t row_bytes = (size_t)pipeline->umt5.d_model * wd_dtype_bytes(dtype);
    WD_TRY_OUT(wd_alloc((void **)&ids, rows, sizeof *ids, "a batch of prompts", err));
    WD_TRY_OUT(wd_alloc((void **)&first, rows + 1, sizeof *first, "a batch of prompts", err));
    WD_TRY_OUT(wd_pipeline_open_weights(&weights, pipeline, WD_COMPONENT_TEXT_ENCODER, err));
    WD_TRY_OUT(wd_umt5_open(&encoder, &pipeline->umt5, weights, dtype, dry, err));
    WD_TRY_OUT(rehearse_batch(encoder, ids, first, max_tokens, max_tokens, row_bytes, err));
    WD_TRY_OUT(rehearse_batch(encoder, ids, first, max_tokens, 1, row_bytes, err));
out:
    wd_umt5_close(encoder);
    wd_safetensors_close(weights);
    wd_free(first);
    wd_free(ids);
    return status;
}

wd_status wd_text_cache_encode(wd_text_cache *c, wd_queue *queue, wd_err *err)
{
    wd_text_prompt **list = NULL;
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

uint64_t wd_text_cache_bytes_to_write(const wd_text_cache *c)
{
    enum { FILE_BYTES = 1024 }; /* header, checksum and one more row number: less than this */
    const uint64_t row_bytes = (uint64_t)c->text_dim * wd_dtype_bytes(c->dtype);
    uint64_t bytes = 0, rows = 0;
    for (int64_t i = 0; c->folder && i < c->count; i++) {
        const wd_text_prompt *p = &c->prompt[i];
        if ((p->row && !p->lacking) || (i && wd__text_hash_same(&p->hash, &p[-1].hash))) continue;
        rows += (uint64_t)p->tokens;
        bytes += (uint64_t)p->tokens * row_bytes + sizeof(int64_t) + sizeof p->hash;
    }
    /* a batch that is not the last has more than half of the rows that it has room for, unless one
     * prompt alone has more */
    return rows ? bytes + (2 * rows / BATCH_ROWS + 2) * FILE_BYTES : 0;
}
