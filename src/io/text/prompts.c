/* Files of prompts: see io/text/prompts.h.
 *
 * Data flow: a path names files; each file is cut into lines; a line gives one prompt (or none, if
 * it is blank), which is appended to one growing block; of a caption file all lines together give
 * one. Pointers into the block are made at the end. */
#include "io/text/prompts.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/unicode.h"
#include "io/file/file.h"
#include "io/json/json.h"

static const size_t file_bytes_max = (size_t)1 << 30;

typedef struct builder {
    char *bytes; /* the prompts, each with its '\0' */
    size_t used, capacity;
    int64_t count;
    size_t begin;              /* of the caption under way */
    int64_t lines;             /* of captions, without blank ones */
    const char *noun, *source; /* what was read: "prompt", ", one a line, from" */
    char path[WD_PATH_MAX];
} builder;

typedef struct line {
    const char *text; /* not terminated */
    size_t bytes;
    const char *path;
    int64_t number; /* from 1 */
} line;

typedef wd_status line_reader(builder *b, const line *l, wd_err *err);

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        utf8proc_int32_t point;
        i += (size_t)utf8proc_iterate((const uint8_t *)text + i, (int64_t)(bytes - i), &point);
        if (!wd_point_is_space(point)) return false;
    }
    return true;
}

/* Makes room for so many more bytes. */
static wd_status make_room(builder *b, size_t bytes, wd_err *err)
{
    void *grown = b->bytes;
    if (b->used + bytes <= b->capacity) return WD_OK;
    const size_t capacity = 2 * b->capacity + bytes + 4096;
    WD_TRY(wd_resize(&grown, capacity, 1, "prompts", err));
    b->bytes = grown;
    b->capacity = capacity;
    return WD_OK;
}

/* Appends a prompt, which must be UTF-8, unless it is blank. */
static wd_status add(builder *b, const char *text, size_t bytes, const line *l, wd_err *err)
{
    if (is_blank(text, bytes)) return WD_OK;
    if (bytes > WD_PROMPT_BYTES_MAX)
        return wd_fail(err, WD_UNSUPPORTED, "%s: line %lld: a prompt of %zu bytes, at most %d",
                       l->path, (long long)l->number, bytes, WD_PROMPT_BYTES_MAX);
    WD_TRY(make_room(b, bytes + 1, err));
    memcpy(b->bytes + b->used, text, bytes);
    b->bytes[b->used + bytes] = '\0';
    b->used += bytes + 1;
    b->count++;
    return WD_OK;
}

/* Appends a line to the caption under way, with a space between it and the line before. */
static wd_status read_caption_line(builder *b, const line *l, wd_err *err)
{
    const size_t before = b->used - b->begin;
    if (is_blank(l->text, l->bytes)) return WD_OK;
    if (l->bytes >= WD_PROMPT_BYTES_MAX - before)
        return wd_fail(err, WD_UNSUPPORTED, "%s: line %lld: a caption of more than %d bytes",
                       l->path, (long long)l->number, WD_PROMPT_BYTES_MAX - 1);
    WD_TRY(make_room(b, l->bytes + 2, err)); /* the space, and the end of the caption */
    if (before) b->bytes[b->used++] = ' ';
    memcpy(b->bytes + b->used, l->text, l->bytes);
    b->used += l->bytes;
    b->lines++;
    return WD_OK;
}

static void end_caption(builder *b)
{
    if (b->used > b->begin) {
        b->bytes[b->used++] = '\0';
        b->count++;
    }
    b->begin = b->used;
}

static wd_status read_plain(builder *b, const line *l, wd_err *err)
{
    return add(b, l->text, l->bytes, l, err);
}

/* Reads {"prompt": "..."}, or another key that data sets use for it. */
static wd_status read_json(builder *b, const line *l, wd_err *err)
{
    static const char *const keys[] = {"prompt", "caption", "text"};
    char where[WD_PATH_MAX + 32];
    const char *text = NULL;
    json_t *object;
    wd_status status = WD_OK;
    if (is_blank(l->text, l->bytes)) return WD_OK;
    snprintf(where, sizeof where, "%s: line %lld", l->path, (long long)l->number);
    WD_TRY(wd_json_parse(&object, l->text, l->bytes, where, err));
    for (int i = 0; i < 3 && !text; i++)
        WD_TRY_OUT(
            wd_json_text(&text, (wd_json_reader){object, where}, keys[i], WD_JSON_OPTIONAL, err));
    if (!text)
        status = wd_fail(err, WD_BAD_FORMAT,
                         "%s: expected the prompt under \"prompt\", \"caption\" or \"text\", found "
                         "none of them",
                         where);
    else
        status = add(b, text, strlen(text), l, err);
out:
    json_decref(object);
    return status;
}

static bool ends_with(const char *path, const char *ending)
{
    size_t a = strlen(path), b = strlen(ending);
    return a > b && !strcasecmp(path + a - b, ending);
}

bool wd_prompts_is_file(const char *text)
{
    return wd_path_exists(text) || ends_with(text, ".txt") || ends_with(text, ".jsonl");
}

/* Refuses a line with bytes that are no text in UTF-8. */
static wd_status check_line(const line *l, wd_err *err)
{
    int64_t at = wd_utf8_check(l->text, l->bytes);
    const char *nul = memchr(l->text, '\0', l->bytes);
    if (at < 0 && !nul) return WD_OK;
    if (at < 0) at = nul - l->text;
    return wd_fail(
        err, WD_BAD_FORMAT,
        "%s: line %lld: expected text in UTF-8, found byte 0x%02x at position %lld; save "
        "the file as UTF-8",
        l->path, (long long)l->number, (unsigned char)l->text[at], (long long)at + 1);
}

/* Reads the lines of a text, which end with LF, CR LF or CR. */
static wd_status read_lines(builder *b, line_reader *read, const char *text, size_t bytes,
                            const char *path, wd_err *err)
{
    line l = {.text = text, .path = path, .number = 1};
    const char *end = text + bytes;
    while (l.text < end) {
        const char *p = l.text;
        while (p < end && *p != '\n' && *p != '\r') p++;
        l.bytes = (size_t)(p - l.text);
        WD_TRY(check_line(&l, err));
        WD_TRY(read(b, &l, err));
        if (p + 1 < end && p[0] == '\r' && p[1] == '\n') p++;
        l.text = p < end ? p + 1 : end;
        l.number++;
    }
    return WD_OK;
}

static wd_status read_file(builder *b, line_reader *read, const char *path, wd_err *err)
{
    static const char *const tables[] = {".json", ".csv", ".tsv", ".parquet", ".arrow", ".gz"};
    char *text;
    size_t bytes;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (ends_with(path, tables[i]))
            return wd_fail(
                err, WD_UNSUPPORTED,
                "%s: prompts are read from a text file with one prompt a line, a .jsonl file "
                "with \"prompt\", \"caption\" or \"text\", or a folder of caption files; "
                "a %s file is none of them",
                path, tables[i]);
    WD_TRY(wd_file_read(&text, &bytes, path, file_bytes_max, err));
    size_t mark = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    wd_status status;
    if (bytes >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2)))
        status =
            wd_fail(err, WD_BAD_FORMAT, "%s: expected UTF-8, found UTF-16; save it as UTF-8", path);
    else
        status = read_lines(b, read, text + mark, bytes - mark, path, err);
    wd_free(text);
    return status;
}

/* Reads a file with several prompts. */
static wd_status read_list(builder *b, const char *path, wd_err *err)
{
    const bool is_json = ends_with(path, ".jsonl") || ends_with(path, ".ndjson");
    b->noun = "prompt";
    b->source = is_json ? ", one a JSON object, from" : ", one a line, from";
    WD_TRY(wd_path_join(b->path, "", path, err));
    return read_file(b, is_json ? read_json : read_plain, path, err);
}

static int is_caption_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_with(entry->d_name, ".txt");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static wd_status read_captions(builder *b, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX];
    struct dirent **entries;
    wd_status status = WD_OK;
    b->noun = "caption";
    b->source = " from the folder";
    WD_TRY(wd_path_join(b->path, "", folder, err));
    int count = scandir(folder, &entries, is_caption_file, by_name);
    if (count < 0) return wd_fail(err, WD_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (int i = 0; i < count && status == WD_OK; i++) {
        status = wd_path_join(path, folder, entries[i]->d_name, err);
        if (status == WD_OK) status = read_file(b, read_caption_line, path, err);
        end_caption(b);
    }
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
    if (status == WD_OK && count == 0)
        status =
            wd_fail(err, WD_NOT_FOUND,
                    "%s: expected prompts.txt, metadata.jsonl or caption files (*.txt) in this "
                    "folder, found none",
                    folder);
    return status;
}

static wd_status read_folder(builder *b, const char *folder, wd_err *err)
{
    static const char *const names[] = {"prompts.txt", "metadata.jsonl"};
    char path[WD_PATH_MAX];
    for (int i = 0; i < 2; i++) {
        WD_TRY(wd_path_join(path, folder, names[i], err));
        if (wd_path_exists(path)) return read_list(b, path, err);
    }
    return read_captions(b, folder, err);
}

/* Logs what was read, since a file of many prompts means another thing in a folder. */
static void say(const builder *b)
{
    wd_log(WD_LOG_INFO, "%lld %s%s%s %s", (long long)b->count, b->noun, b->count == 1 ? "" : "s",
           b->source, b->path);
    if (b->count == 1 && b->lines > 1)
        wd_log(
            WD_LOG_WARNING,
            "%s: its only caption file has %lld lines, which were taken as one prompt. If each of "
            "them is a prompt, give the file instead of the folder, or call it prompts.txt",
            b->path, (long long)b->lines);
}

wd_status wd_prompts_open(wd_prompts *out, const char *path, wd_err *err)
{
    builder b = {0};
    void *text = NULL;
    wd_status status;
    WD_TRY_OUT(wd_path_is_folder(path) ? read_folder(&b, path, err) : read_list(&b, path, err));
    if (b.count == 0) {
        status = wd_fail(err, WD_BAD_FORMAT, "%s: expected at least one prompt, found none", path);
        goto out;
    }
    WD_TRY_OUT(wd_alloc(&text, (size_t)b.count, sizeof(char *), "prompts", err));
    *out = (wd_prompts){.count = b.count, .text = text, .bytes = b.bytes};
    char *next = b.bytes;
    for (int64_t i = 0; i < b.count; i++, next += strlen(next) + 1) out->text[i] = next;
    say(&b);
    return WD_OK;
out:
    wd_free(b.bytes);
    return status;
}

void wd_prompts_close(wd_prompts *prompts)
{
    wd_free(prompts->text);
    wd_free(prompts->bytes);
    *prompts = (wd_prompts){0};
}
