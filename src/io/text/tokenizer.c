/* The pipeline's tokenizer: see io/text/tokenizer.h.
 *
 * Data flow: the text is cut at the special tokens in it, and what is between them into parts of
 * bounded length; SentencePiece encodes one part after another (it normalises, splits at white
 * space and segments) until there are as many tokens as asked for; </s> is appended.
 *
 * transformers keeps the same vocabulary in tokenizer.json, and segments with its own code. The ids
 * agree except for unknown characters of real UMT5 tokenizers: transformers 5 gives 2 (there <s>),
 * whatever tokenizer.json says; SentencePiece gives <unk>, 3, with which the encoder was trained.
 */
#include "io/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/stop.h"
#include "core/text.h"
#include "io/file/file.h"
#include "io/json/json.h"
#include "io/text/spiece.h"

enum {
    MODEL_BYTES_MAX = 64 << 20, /* UMT5's model has 5 MB */
    SPECIAL_MAX = 4096,         /* UMT5 has 303 */
    SPECIAL_BYTES_MAX = 128,    /* of the text of one */
    EXTRA_IDS_DEFAULT = 100     /* of T5Tokenizer */
};

typedef struct special {
    char text[SPECIAL_BYTES_MAX];
    size_t bytes;
    int32_t id;
} special;

struct wd_tokenizer {
    wd_spiece *spiece;
    special *specials; /* [special_count], sorted by text once all are known */
    int64_t special_count;
    bool begins_special[256]; /* whether a special token begins with this byte */
    int32_t eos, pad;
};

static wd_status add_special(wd_tokenizer *t, const char *text, int64_t id, const char *where,
                             wd_err *err)
{
    size_t bytes = strlen(text);
    if (bytes == 0 || bytes >= SPECIAL_BYTES_MAX || id < 0 || id > INT32_MAX - 1)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: special token \"%.*s\" with id %lld: expected 1 to %d bytes and an id "
                       "of 31 bits",
                       where, WD_TERMINAL_SAFE(text, 40), (long long)id, SPECIAL_BYTES_MAX - 1);
    for (int64_t i = 0; i < t->special_count; i++)
        if (!strcmp(t->specials[i].text, text)) return WD_OK;
    if (t->special_count == SPECIAL_MAX)
        return wd_fail(err, WD_UNSUPPORTED, "%s: more than %d special tokens", where, SPECIAL_MAX);
    special *s = &t->specials[t->special_count++];
    memcpy(s->text, text, bytes + 1);
    s->bytes = bytes;
    s->id = (int32_t)id;
    t->begins_special[(unsigned char)text[0]] = true;
    return WD_OK;
}

static int32_t find_special(const wd_tokenizer *t, const char *text)
{
    for (int64_t i = 0; i < t->special_count; i++)
        if (!strcmp(t->specials[i].text, text)) return t->specials[i].id;
    return wd__spiece_find(t->spiece, text);
}

/* The text of a token, which is given as a string, or as an object with the text under "content".
 */
static const char *token_text(const json_t *token)
{
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

/* Reads {"0": {"content": "<pad>", ...}, ...}: every special token with its id. */
static wd_status read_decoder(wd_tokenizer *t, json_t *decoder, const char *where, wd_err *err)
{
    const char *key;
    json_t *token;
    json_object_foreach(decoder, key, token)
    {
        char *end;
        long long id = strtoll(key, &end, 10);
        const char *text = token_text(token);
        if (*end || end == key || !text)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: \"added_tokens_decoder\": expected ids with tokens, found \"%.*s\"",
                           where, WD_TERMINAL_SAFE(key, 40));
        WD_TRY(add_special(t, text, id, where, err));
    }
    return WD_OK;
}

/* Adds "<extra_id_k>" for k below `count`, with ids after the vocabulary, the last k first. */
static wd_status add_extra_ids(wd_tokenizer *t, int64_t count, const char *where, wd_err *err)
{
    char text[32];
    for (int64_t k = 0; k < count; k++) {
        snprintf(text, sizeof text, "<extra_id_%d>", (int)k);
        int32_t id = wd__spiece_find(t->spiece, text);
        if (id < 0) id = wd__spiece_count(t->spiece) + (int32_t)(count - 1 - k);
        WD_TRY(add_special(t, text, id, where, err));
    }
    return WD_OK;
}

/* Sets *id to the id of the token under `key`, such as "eos_token". */
static wd_status read_role(int32_t *id, wd_tokenizer *t, const json_t *config, const char *key,
                           const char *fallback, const char *where, wd_err *err)
{
    const json_t *token = json_object_get(config, key);
    const char *text = token && !json_is_null(token) ? token_text(token) : fallback;
    if (!text)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: \"%s\": expected a token, found neither a text nor "
                       "an object with \"content\"",
                       where, key);
    *id = find_special(t, text);
    if (*id < 0)
        return wd_fail(err, WD_MISMATCH,
                       "%s: \"%s\" is \"%.*s\", which is not in the vocabulary of spiece.model",
                       where, key, WD_TERMINAL_SAFE(text, 80));
    return add_special(t, text, *id, where, err);
}

/* Reads tokenizer_config.json; `config` is NULL if there is no such file. */
static wd_status read_config(wd_tokenizer *t, json_t *config, const char *where, wd_err *err)
{
    double extra_ids = EXTRA_IDS_DEFAULT;
    int32_t unknown;
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    if (config)
        WD_TRY(wd_json_float(&extra_ids, (wd_json_reader){config, where}, "extra_ids",
                             WD_JSON_OPTIONAL, err));
    if (extra_ids < 0 || extra_ids > SPECIAL_MAX / 2)
        return wd_fail(err, WD_BAD_FORMAT, "%s: expected \"extra_ids\" from 0 to %d, found %g",
                       where, SPECIAL_MAX / 2, extra_ids);
    if (json_is_object(decoder))
        WD_TRY(read_decoder(t, decoder, where, err));
    else
        WD_TRY(add_extra_ids(t, (int64_t)extra_ids, where, err));
    WD_TRY(read_role(&t->eos, t, config, "eos_token", "</s>", where, err));
    WD_TRY(read_role(&t->pad, t, config, "pad_token", "<pad>", where, err));
    return read_role(&unknown, t, config, "unk_token", "<unk>", where, err);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const special *)a)->text, ((const special *)b)->text);
}

static wd_status refuse_missing(const char *folder, wd_err *err)
{
    char other[WD_PATH_MAX];
    WD_TRY(wd_path_join(other, folder, "tokenizer.json", err));
    if (wd_path_exists(other))
        return wd_fail(
            err, WD_UNSUPPORTED,
            "%s: has tokenizer.json but no spiece.model, which is what this program reads; "
            "get spiece.model of the same checkpoint (for Wan: google/umt5-xxl) and put it "
            "there",
            folder);
    return wd_fail(err, WD_NOT_FOUND, "%s: expected spiece.model in this folder, found none",
                   folder);
}

/* `config` is NULL where there is none; `where` names it, or else the model. */
static wd_status open_model(wd_tokenizer **out, const void *model, size_t bytes, const char *path,
                            json_t *config, const char *where, wd_err *err)
{
    void *block = NULL;
    wd_tokenizer *t = NULL;
    wd_status status;
    WD_TRY_OUT(wd_alloc(&block, 1, sizeof *t, "the tokenizer", err));
    t = block;
    WD_TRY_OUT(wd_alloc(&block, SPECIAL_MAX, sizeof *t->specials, "special tokens", err));
    t->specials = block;
    WD_TRY_OUT(wd__spiece_check(model, bytes, path, err));
    WD_TRY_OUT(wd__spiece_open(&t->spiece, model, bytes, path, err));
    WD_TRY_OUT(read_config(t, config, where, err));
    qsort(t->specials, (size_t)t->special_count, sizeof *t->specials, by_text);
    *out = t;
    t = NULL;
out:
    wd_tokenizer_close(t);
    return status;
}

wd_status wd_tokenizer_open(wd_tokenizer **out, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX], where[WD_PATH_MAX];
    char *model = NULL;
    size_t bytes;
    json_t *config = NULL;
    wd_status status;
    WD_TRY(wd_path_join(path, folder, "spiece.model", err));
    WD_TRY(wd_path_join(where, folder, "tokenizer_config.json", err));
    if (!wd_path_exists(path)) return refuse_missing(folder, err);
    WD_TRY_OUT(wd_file_read(&model, &bytes, path, MODEL_BYTES_MAX, err));
    if (wd_path_exists(where)) WD_TRY_OUT(wd_json_load(&config, where, err));
    WD_TRY_OUT(open_model(out, model, bytes, path, config, where, err));
out:
    json_decref(config);
    wd_free(model);
    return status;
}

wd_status wd_tokenizer_open_model(wd_tokenizer **out, const void *model, size_t bytes,
                                  const char *name, wd_err *err)
{
    return open_model(out, model, bytes, name, NULL, name, err);
}

void wd_tokenizer_close(wd_tokenizer *t)
{
    if (!t) return;
    wd__spiece_close(t->spiece);
    wd_free(t->specials);
    wd_free(t);
}

/* The first of the special tokens [low, high), which are equal up to byte `at`, whose byte at `at`
 * is not below `byte`; `high` if there is none. */
static int64_t first_from(const wd_tokenizer *t, int64_t low, int64_t high, size_t at, int byte)
{
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((unsigned char)t->specials[middle].text[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest special token with which `text` begins, or NULL. It narrows the range of matching
 * tokens byte by byte, so its time hardly depends on their number. */
static const special *special_at(const wd_tokenizer *t, const char *text)
{
    const special *longest = NULL;
    if (!t->begins_special[(unsigned char)*text]) return NULL;
    int64_t low = 0, high = t->special_count;
    for (size_t at = 0; low < high && text[at]; at++) {
        const int byte = (unsigned char)text[at];
        low = first_from(t, low, high, at, byte);
        high = first_from(t, low, high, at, byte + 1);
        if (low < high && t->specials[low].bytes == at + 1) longest = &t->specials[low];
    }
    return longest;
}

size_t wd__tokenizer_part(const char *text, size_t bytes)
{
    size_t end = WD_TOKENIZER_PART_BYTES;
    if (bytes <= end) return bytes;
    while (end && text[end] != ' ') end--;
    if (end) return end;
    end = WD_TOKENIZER_PART_BYTES; /* one word, which is cut between two characters */
    while (((unsigned char)text[end] & 0xc0) == 0x80) end--;
    return end ? end : WD_TOKENIZER_PART_BYTES;
}

/* Encodes a text without special tokens, at most up to `room` ids in all; *used counts them. */
static wd_status encode_text(int32_t *ids, int64_t *used, int64_t room, const wd_tokenizer *t,
                             const char *text, size_t bytes, wd_err *err)
{
    bool in_word = false;
    while (bytes && *used < room) {
        int64_t n = 0;
        const size_t part = wd__tokenizer_part(text, bytes);
        const int32_t before = in_word && *used ? ids[*used - 1] : -1;
        if (wd_stop_requested()) return wd_fail(err, WD_INTERRUPTED, "stopped on request");
        WD_TRY(
            wd__spiece_encode(ids + *used, &n, room - *used, t->spiece, text, part, before, err));
        *used = n < room - *used ? *used + n : room;
        text += part;
        bytes -= part;
        in_word = bytes && *text != ' ';
    }
    return WD_OK;
}

wd_status wd_tokenizer_encode(int32_t *ids, int64_t *count, const wd_tokenizer *t, const char *text,
                              int64_t max_length, wd_err *err)
{
    WD_REQUIRE(max_length >= 1, "room for %lld tokens", (long long)max_length);
    int64_t used = 0, room = max_length - 1; /* one id is for </s> */
    while (*text && used < room) {
        const special *found = NULL;
        const char *end = text;
        while (*end && !(found = special_at(t, end))) end++;
        WD_TRY(encode_text(ids, &used, room, t, text, (size_t)(end - text), err));
        if (found && used < room) ids[used++] = found->id;
        text = found ? end + found->bytes : end;
    }
    ids[used++] = t->eos;
    *count = used;
    return WD_OK;
}

int32_t wd_tokenizer_pad_id(const wd_tokenizer *t)
{
    return t->pad;
}
