/* Default picture sizes, sampling steps and text lengths: see model/files/pipeline_card.h. Wan's
 * own files state none (their cards describe video); models made for one size state it in a
 * configuration or on their card. */
#include "model/files/pipeline_card.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/memory.h"

enum {
    PIXELS_MIN = 16,
    PIXELS_MAX = 1 << 14,
    STEPS_MAX = 1000,
    TEXT_TOKENS_MAX = 4096,
    CARD_BYTES_MAX = 1 << 20
};

/* ---- configurations ---- */

static bool usable(int64_t pixels)
{
    return pixels >= PIXELS_MIN && pixels <= PIXELS_MAX && pixels % PIXELS_MIN == 0;
}

wd_status wd__pipeline_size_read(int64_t *height, int64_t *width, wd_json_reader r, wd_err *err)
{
    static const char *const keys[] = {"sample_size", "image_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !*height; i++) {
        int64_t size[2] = {0, 0}, count = 0;
        const json_t *value = json_object_get(r.object, keys[i]);
        if (!value || json_is_null(value)) continue;
        if (json_is_array(value)) {
            WD_TRY(wd_json_ints(size, &count, 2, r, keys[i], WD_JSON_OPTIONAL, err));
            if (count == 1) size[1] = size[0];
        } else {
            WD_TRY(wd_json_int(size, r, keys[i], PIXELS_MIN, PIXELS_MAX, WD_JSON_OPTIONAL, err));
            size[1] = size[0];
        }
        if (!usable(size[0]) || !usable(size[1]))
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: \"%s\": expected height and width as multiples of %d up to %d",
                           r.where, keys[i], PIXELS_MIN, PIXELS_MAX);
        *height = size[0];
        *width = size[1];
    }
    return WD_OK;
}

const char wd_pipeline_sampling_key[] = "_wandistiller";

json_t *wd_pipeline_sampling_json(int64_t height, int64_t width, int64_t steps, int64_t text_tokens,
                                  int64_t trained_steps)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "height", (json_int_t)height, "width",
                     (json_int_t)width, "num_inference_steps", (json_int_t)steps,
                     "max_sequence_length", (json_int_t)text_tokens, "trained_steps",
                     (json_int_t)trained_steps);
}

wd_status wd__pipeline_sampling_read(wd_pipeline *p, wd_json_reader r, wd_err *err)
{
    char where[WD_PATH_MAX + 32];
    int64_t height = 0, width = 0;
    const json_t *entry = json_object_get(r.object, wd_pipeline_sampling_key);
    if (!entry || json_is_null(entry)) return WD_OK;
    if (!json_is_object(entry))
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"%s\": expected an object, found another value",
                       r.where, wd_pipeline_sampling_key);
    snprintf(where, sizeof where, "%s: \"%s\"", r.where, wd_pipeline_sampling_key);
    const wd_json_reader in = {entry, where};
    WD_TRY(wd_json_int(&height, in, "height", PIXELS_MIN, PIXELS_MAX, WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_int(&width, in, "width", PIXELS_MIN, PIXELS_MAX, WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_int(&p->default_steps, in, "num_inference_steps", 1, STEPS_MAX, WD_JSON_OPTIONAL,
                       err));
    WD_TRY(wd_json_int(&p->trained_text_tokens, in, "max_sequence_length", 1, TEXT_TOKENS_MAX,
                       WD_JSON_OPTIONAL, err));
    WD_TRY(
        wd_json_int(&p->trained_steps, in, "trained_steps", 0, INT64_MAX, WD_JSON_OPTIONAL, err));
    if (!height && !width) return WD_OK;
    if (!usable(height) || !usable(width))
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected \"height\" and \"width\" as multiples of %d up to %d", where,
                       PIXELS_MIN, PIXELS_MAX);
    p->default_height = height;
    p->default_width = width;
    return WD_OK;
}

/* ---- the model card ---- */

/* Finds the next "<number>x<number>" of a text that ends with '\0' or a newline. */
static bool find_size(int64_t *height, int64_t *width, const char *text)
{
    for (const char *p = text; *p && *p != '\n'; p++) {
        char *end, *last;
        if (!isdigit((unsigned char)*p) || (p > text && isalnum((unsigned char)p[-1]))) continue;
        long long w = strtoll(p, &end, 10);
        if (*end != 'x' || !isdigit((unsigned char)end[1])) continue;
        long long h = strtoll(end + 1, &last, 10);
        if (*last == 'x' || !usable(w) || !usable(h))
            continue; /* 17x512x512 is the size of a video */
        *width = w;
        *height = h;
        return true;
    }
    return false;
}

/* The first number, at most `most`, that has the words `before` in front of it and `after` behind
 * it, in a text that ends with '\0' or a newline; 0: there is none. */
static int64_t find_number(const char *text, const char *before, const char *after, int64_t most)
{
    const size_t skipped = strlen(before);
    for (const char *p = text; *p && *p != '\n'; p++) {
        char *end;
        if (!isdigit((unsigned char)*p) || (p > text && isalnum((unsigned char)p[-1]))) continue;
        if ((size_t)(p - text) < skipped || memcmp(p - skipped, before, skipped)) continue;
        const long long number = strtoll(p, &end, 10);
        if (!strncmp(end, after, strlen(after)) && number > 0 && number <= most) return number;
    }
    return 0;
}

/* What a line says behind the word "sample". */
static void read_line(wd_pipeline *p, const char *line)
{
    if (!p->default_height) find_size(&p->default_height, &p->default_width, line);
    if (!p->default_steps) p->default_steps = find_number(line, "", " step", STEPS_MAX);
    if (!p->trained_text_tokens)
        p->trained_text_tokens = find_number(line, "prompts of up to ", " tokens", TEXT_TOKENS_MAX);
}

/* The word "sample" in a line, as a word of its own: returns what follows it. NULL: it is not
 * there.
 */
static const char *behind_sample(const char *line, const char *end)
{
    static const char word[] = "sample";
    const size_t length = sizeof word - 1;
    for (const char *p = line; p + length <= end; p++) {
        if (strncasecmp(p, word, length)) continue;
        const bool begins = p == line || !(isalnum((unsigned char)p[-1]) || strchr("_-", p[-1]));
        const bool ends = !(isalnum((unsigned char)p[length]) || p[length] == '_');
        if (begins && ends) return p + length;
    }
    return NULL;
}

/* Reads the sentences of a card: not its headings, its code and its front matter. */
static void read_sentences(wd_pipeline *pipeline, const char *card)
{
    bool in_code = false,
         in_front = !strncmp(card, "---", 3) && card[3 + strspn(card + 3, "\r")] == '\n';
    for (const char *line = card, *next; *line; line = next) {
        const char *end = line + strcspn(line, "\n");
        next = *end ? end + 1 : end;
        const bool is_fence = !strncmp(line, "```", 3);
        if (is_fence) in_code = !in_code;
        if (!in_front && !in_code && !is_fence && *line != '#') {
            const char *behind = behind_sample(line, end);
            if (behind) read_line(pipeline, behind);
        }
        if (line > card && !strncmp(line, "---", 3)) in_front = false;
    }
}

wd_status wd__pipeline_card_read(wd_pipeline *pipeline, wd_err *err)
{
    char path[WD_PATH_MAX], *card;
    size_t bytes;
    WD_TRY(wd_path_join(path, pipeline->path, "README.md", err));
    wd_status status = wd_file_read(&card, &bytes, path, CARD_BYTES_MAX, NULL);
    if (status == WD_OUT_OF_MEMORY) return wd_fail(err, status, "%s: no memory to read it", path);
    if (status != WD_OK) return WD_OK; /* a model need not have a readable card */
    read_sentences(pipeline, card);
    wd_free(card);
    return WD_OK;
}
