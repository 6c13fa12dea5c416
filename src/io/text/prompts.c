/* Files of prompts: see io/text/prompts.h.
 *
 * Data flow: a path names files; each file is cut into lines, records of a table, or elements of an
 * array; each of them gives one prompt (or none, if it is blank), which is appended to one growing
 * block; of a caption file all lines together give one. Pointers into the block are made at the
 * end. */
#include "io/text/prompts.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/unicode.h"
#include "io/file/file.h"
#include "io/text/prompt_records.h"

static const size_t file_bytes_max = (size_t)1 << 30;

typedef wd_status line_reader(wd_prompt_builder *b, const wd_prompt_line *l, wd_err *err);

bool wd__prompt_is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        utf8proc_int32_t point;
        i += (size_t)utf8proc_iterate((const uint8_t *)text + i, (int64_t)(bytes - i), &point);
        if (!wd_point_is_space(point)) return false;
    }
    return true;
}

/* Makes room for so many more bytes. */
static wd_status make_room(wd_prompt_builder *b, size_t bytes, wd_err *err)
{
    void *grown = b->bytes;
    if (b->used + bytes <= b->capacity) return WD_OK;
    const size_t capacity = 2 * b->capacity + bytes + 4096;
    WD_TRY(wd_resize(&grown, capacity, 1, "prompts", err));
    b->bytes = grown;
    b->capacity = capacity;
    return WD_OK;
}

/* Refuses a line with bytes that are no text in UTF-8. */
wd_status wd__prompt_check_line(const wd_prompt_line *l, wd_err *err)
{
    int64_t at = wd_utf8_check(l->text, l->bytes);
    const char *nul = memchr(l->text, '\0', l->bytes);
    if (at < 0 && !nul) return WD_OK;
    if (at < 0)
        return wd_fail(err, WD_BAD_FORMAT, "%s: line %lld: expected text, found a zero byte (NUL)",
                       l->path, (long long)l->number);
    return wd_fail(
        err, WD_BAD_FORMAT,
        "%s: line %lld: expected text in UTF-8, found byte 0x%02x at position %lld; save "
        "the file as UTF-8",
        l->path, (long long)l->number, (unsigned char)l->text[at], (long long)at + 1);
}

/* Appends a prompt, which must be UTF-8, unless it is blank. */
wd_status wd__prompts_add(wd_prompt_builder *b, const char *text, size_t bytes,
                          const wd_prompt_line *l, wd_err *err)
{
    if (wd__prompt_is_blank(text, bytes)) {
        b->blank++;
        return WD_OK;
    }
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
static wd_status read_caption_line(wd_prompt_builder *b, const wd_prompt_line *l, wd_err *err)
{
    const size_t before = b->used - b->begin;
    if (wd__prompt_is_blank(l->text, l->bytes)) return WD_OK;
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

static void end_caption(wd_prompt_builder *b)
{
    if (b->used > b->begin) {
        b->bytes[b->used++] = '\0';
        b->count++;
    }
    b->begin = b->used;
}

static wd_status read_plain(wd_prompt_builder *b, const wd_prompt_line *l, wd_err *err)
{
    return wd__prompts_add(b, l->text, l->bytes, l, err);
}

/* ---- files ---- */

static bool ends_with(const char *path, const char *ending)
{
    size_t a = strlen(path), b = strlen(ending);
    return a > b && !strcasecmp(path + a - b, ending);
}

bool wd_prompts_is_file(const char *text)
{
    static const char *const endings[] = {".txt", ".jsonl", ".ndjson", ".json", ".csv", ".tsv"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(text, endings[i])) return true;
    return wd_path_exists(text);
}

/* Reads the lines of a text, which end with LF, CR LF or CR. */
static wd_status read_lines(wd_prompt_builder *b, line_reader *read, const char *text, size_t bytes,
                            const char *path, wd_err *err)
{
    wd_prompt_line l = {.text = text, .path = path, .number = 1};
    const char *end = text + bytes;
    while (l.text < end) {
        const char *p = l.text;
        while (p < end && *p != '\n' && *p != '\r') p++;
        l.bytes = (size_t)(p - l.text);
        WD_TRY(wd__prompt_check_line(&l, err));
        WD_TRY(read(b, &l, err));
        if (p + 1 < end && p[0] == '\r' && p[1] == '\n') p++;
        l.text = p < end ? p + 1 : end;
        l.number++;
    }
    return WD_OK;
}

/* What a file is, by its name. */
typedef struct file_kind {
    const char *ending;
    const char *source; /* for the log */
    enum { PROMPT_LINES, OBJECT_LINES, ARRAY, TABLE, CAPTION } kind;
    char separator; /* TABLE */
} file_kind;

static const file_kind caption = {"", "", CAPTION, 0};

static const file_kind *kind_of(const char *path)
{
    static const file_kind kinds[] = {{".jsonl", ", one a JSON line, from", OBJECT_LINES, 0},
                                      {".ndjson", ", one a JSON line, from", OBJECT_LINES, 0},
                                      {".json", ", from the array in", ARRAY, 0},
                                      {".csv", ", from the table", TABLE, ','},
                                      {".tsv", ", from the table", TABLE, '\t'},
                                      {"", ", one a line, from", PROMPT_LINES, 0}};
    const file_kind *found = kinds;
    while (*found->ending && !ends_with(path, found->ending)) found++;
    return found;
}

bool wd_prompts_have_columns(const char *path)
{
    return kind_of(path)->kind != PROMPT_LINES;
}

static wd_status read_text(wd_prompt_builder *b, char *text, size_t bytes, const file_kind *file,
                           const char *path, wd_err *err)
{
    switch (file->kind) {
    case TABLE:
        return wd__prompts_read_table(b, text, bytes, path, file->separator, err);
    case ARRAY:
        return wd__prompts_read_array(b, text, bytes, path, err);
    case OBJECT_LINES:
        return read_lines(b, wd__prompts_read_json_line, text, bytes, path, err);
    case CAPTION:
        return read_lines(b, read_caption_line, text, bytes, path, err);
    default:
        return read_lines(b, read_plain, text, bytes, path, err);
    }
}

static wd_status read_file(wd_prompt_builder *b, const file_kind *file, const char *path,
                           wd_err *err)
{
    static const char *const packed[] = {".parquet", ".arrow", ".gz", ".zip", ".xlsx"};
    char *text;
    size_t bytes;
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (ends_with(path, packed[i]))
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: prompts are read from a text file with one prompt a line, a .csv, "
                           ".tsv, .json or .jsonl file, or a folder of caption files; a %s file is "
                           "none of them (docs/models.md says how to convert it)",
                           path, packed[i]);
    WD_TRY(wd_file_read(&text, &bytes, path, file_bytes_max, err));
    size_t mark = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    wd_status status;
    if (bytes >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2)))
        status =
            wd_fail(err, WD_BAD_FORMAT, "%s: expected UTF-8, found UTF-16; save it as UTF-8", path);
    else
        status = read_text(b, text + mark, bytes - mark, file, path, err);
    wd_free(text);
    return status;
}

static wd_status fail_without_columns(const wd_prompt_builder *b, const char *path, const char *has,
                                      wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--prompt_column %s: %s has %s, and no columns: leave the option out, or name a "
                   ".csv, .tsv, .json or .jsonl file",
                   b->column, path, has);
}

/* Reads a file with several prompts. */
static wd_status read_list(wd_prompt_builder *b, const char *path, wd_err *err)
{
    const file_kind *file = kind_of(path);
    b->noun = "prompt";
    b->source = file->source;
    if (b->column && file->kind == PROMPT_LINES)
        return fail_without_columns(b, path, "one prompt a line", err);
    WD_TRY(wd_path_join(b->path, "", path, err));
    return read_file(b, file, path, err);
}

static int is_caption_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_with(entry->d_name, ".txt");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static wd_status read_captions(wd_prompt_builder *b, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX];
    struct dirent **entries;
    wd_status status = WD_OK;
    b->noun = "caption";
    b->source = " from the folder";
    WD_TRY(wd_path_join(b->path, "", folder, err));
    int count = scandir(folder, &entries, is_caption_file, by_name);
    if (count < 0) return wd_fail(err, WD_IO, "%s: cannot be read: %s", folder, strerror(errno));
    if (count > 0 && b->column)
        status = fail_without_columns(b, folder, "a caption in each file", err);
    for (int i = 0; i < count && status == WD_OK; i++) {
        status = wd_path_join(path, folder, entries[i]->d_name, err);
        if (status == WD_OK) status = read_file(b, &caption, path, err);
        end_caption(b);
    }
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
    if (status != WD_OK || count > 0) return status;
    WD_TRY(wd_path_join(path, folder, "metadata.csv", err));
    if (wd_path_exists(path)) return read_list(b, path, err);
    return wd_fail(
        err, WD_NOT_FOUND,
        "%s: expected prompts.txt, metadata.jsonl, metadata.csv or caption files (*.txt) "
        "in this folder, found none",
        folder);
}

static wd_status read_folder(wd_prompt_builder *b, const char *folder, wd_err *err)
{
    static const char *const names[] = {"prompts.txt", "metadata.jsonl"};
    char path[WD_PATH_MAX];
    for (int i = 0; i < 2; i++) {
        WD_TRY(wd_path_join(path, folder, names[i], err));
        if (wd_path_exists(path)) return read_list(b, path, err);
    }
    return read_captions(b, folder, err);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Counts the prompts that are equal to an earlier one. */
static wd_status count_repeated(int64_t *out, const wd_prompts *prompts, wd_err *err)
{
    char **sorted;
    const size_t count = (size_t)prompts->count;
    *out = 0;
    WD_TRY(wd_alloc((void **)&sorted, count, sizeof *sorted, "prompts", err));
    memcpy(sorted, prompts->text, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_text);
    for (size_t i = 1; i < count; i++) *out += !strcmp(sorted[i - 1], sorted[i]);
    wd_free(sorted);
    return WD_OK;
}

/* Logs what was read, since a file of many prompts means another thing in a folder. */
static void say(const wd_prompt_builder *b, int64_t equal)
{
    char repeated[64] = "", blank[64] = "", column[80] = "";
    if (*b->found) snprintf(column, sizeof column, " under \"%s\"", b->found);
    if (equal)
        snprintf(repeated, sizeof repeated, "; %lld of them repeat%s another", (long long)equal,
                 equal == 1 ? "s" : "");
    if (b->blank)
        snprintf(blank, sizeof blank, "; %lld empty one%s left out", (long long)b->blank,
                 b->blank == 1 ? " was" : "s were");
    wd_log(WD_LOG_INFO, "%lld %s%s%s%s %s%s%s", (long long)b->count, b->noun,
           b->count == 1 ? "" : "s", column, b->source, b->path, repeated, blank);
    if (b->count == 1 && b->lines > 1)
        wd_log(
            WD_LOG_WARNING,
            "%s: its only caption file has %lld lines, which were taken as one prompt. If each of "
            "them is a prompt, give the file instead of the folder, or call it prompts.txt",
            b->path, (long long)b->lines);
}

wd_status wd_prompts_open(wd_prompts *out, const char *path, const char *column, wd_err *err)
{
    wd_prompt_builder b = {.column = column};
    wd_prompts prompts = {0};
    int64_t repeated;
    wd_status status;
    WD_TRY_OUT(wd_path_is_folder(path) ? read_folder(&b, path, err) : read_list(&b, path, err));
    if (b.count == 0) {
        status = wd_fail(err, WD_BAD_FORMAT, "%s: expected at least one prompt, found none", path);
        goto out;
    }
    WD_TRY_OUT(wd_alloc((void **)&prompts.text, (size_t)b.count, sizeof(char *), "prompts", err));
    prompts.count = b.count;
    prompts.bytes = b.bytes;
    char *next = b.bytes;
    for (int64_t i = 0; i < b.count; i++, next += strlen(next) + 1) prompts.text[i] = next;
    WD_TRY_OUT(count_repeated(&repeated, &prompts, err));
    say(&b, repeated);
    *out = prompts;
    return WD_OK;
out:
    wd_free(prompts.text);
    wd_free(b.bytes);
    return status;
}

void wd_prompts_close(wd_prompts *prompts)
{
    wd_free(prompts->text);
    wd_free(prompts->bytes);
    *prompts = (wd_prompts){0};
}

wd_status wd_prompts_write(const char *path, const char *const *prompts, int64_t count, wd_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    bool failed = !file;
    for (int64_t i = 0; !failed && i < count; i++) {
        json_t *line = json_pack("{s:s}", "prompt", prompts[i]);
        failed = !line || json_dumpf(line, file, JSON_COMPACT) || fputc('\n', file) == EOF;
        json_decref(line);
    }
    if (file && fclose(file)) failed = true;
    const wd_status status = failed
                                 ? wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path)
                                 : wd_file_write(path, text, bytes, err);
    free(text); /* of the C library */
    return status;
}
