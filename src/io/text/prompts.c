/* Files of prompts: see io/text/prompts.h.
 *
 * Data flow: a path names files; each file is cut into lines, records of a table, or elements of an
 * array; each of them gives one prompt (or none, if it is blank), which is appended to one growing
 * block; of a caption file all lines together give one. Pointers into the block are made at the
 * end. */
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
#include "io/text/csv.h"

static const size_t file_bytes_max = (size_t)1 << 30;

/* Where the prompt is, if no column is given. */
static const char *const usual_columns[] = {"prompt", "caption", "text"};
enum { USUAL_COLUMNS = 3 };

typedef struct builder {
    const char *column; /* NULL: a usual one; borrowed */
    char *bytes;        /* the prompts, each with its '\0' */
    size_t used, capacity;
    int64_t count, blank;
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

/* Appends a prompt, which must be UTF-8, unless it is blank. */
static wd_status add(builder *b, const char *text, size_t bytes, const line *l, wd_err *err)
{
    if (is_blank(text, bytes)) {
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

/* ---- columns and keys ---- */

enum { NAMES_TEXT = 256 };

/* Appends a name to a list of names in `out` [NAMES_TEXT]; too many are left out. */
static void list_name(char *out, const char *name, size_t bytes)
{
    const size_t used = strlen(out);
    const int n = bytes > 64 ? 64 : (int)bytes;
    if (used + (size_t)n + 8 < NAMES_TEXT)
        snprintf(out + used, NAMES_TEXT - used, "%s\"%.*s\"", used ? ", " : "", n, name);
    else if (used + 5 < NAMES_TEXT && out[used - 1] == '"')
        snprintf(out + used, NAMES_TEXT - used, ", ...");
}

/* `what`: "column" or "key"; `names`: those that are there. */
static wd_status fail_to_find(const builder *b, const char *where, const char *what,
                              const char *names, wd_err *err)
{
    if (b->column)
        return wd_fail(err, WD_BAD_FORMAT, "%s: expected the %s \"%s\" (--prompt_column), found %s",
                       where, what, b->column, *names ? names : "none");
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected the prompt under the %s \"prompt\", \"caption\" or \"text\", "
                   "found %s: call it prompt, or give `train` --prompt_column NAME",
                   where, what, *names ? names : "none");
}

/* ---- JSON ---- */

static wd_status text_of_object(const char **out, const builder *b, const json_t *object,
                                const char *where, wd_err *err)
{
    const wd_json_reader r = {object, where};
    char names[NAMES_TEXT] = "";
    const char *key;
    json_t *value;
    *out = NULL;
    for (int i = 0; i < (b->column ? 1 : USUAL_COLUMNS); i++) {
        key = b->column ? b->column : usual_columns[i];
        if (!json_object_get(object, key)) continue;
        *out = ""; /* null is a blank prompt */
        return wd_json_text(out, r, key, WD_JSON_OPTIONAL, err);
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value) list_name(names, key, strlen(key));
    return fail_to_find(b, where, "key", names, err);
}

/* Reads {"prompt": "..."}, or "...", which stands in an array of its own: [{"prompt": "..."}]. */
static wd_status read_element(builder *b, const line *l, wd_err *err)
{
    char where[WD_PATH_MAX + 32];
    const char *text;
    json_t *array;
    wd_status status = WD_OK;
    snprintf(where, sizeof where, "%s: line %lld", l->path, (long long)l->number);
    WD_TRY(wd_json_parse(&array, l->text, l->bytes, where, err));
    const json_t *value = json_array_get(array, 0);
    if (json_array_size(array) != 1 || (!json_is_object(value) && !json_is_string(value))) {
        status = wd_fail(err, WD_BAD_FORMAT, "%s: expected an object or a text", where);
        goto out;
    }
    text = json_string_value(value);
    if (!text) WD_TRY_OUT(text_of_object(&text, b, value, where, err));
    status = add(b, text, strlen(text), l, err);
out:
    json_decref(array);
    return status;
}

/* Reads a line with one element. */
static wd_status read_json_line(builder *b, const line *l, wd_err *err)
{
    char *array;
    if (is_blank(l->text, l->bytes)) return WD_OK;
    WD_TRY(wd_alloc((void **)&array, l->bytes + 2, 1, "a line of JSON", err));
    array[0] = '[';
    memcpy(array + 1, l->text, l->bytes);
    array[l->bytes + 1] = ']';
    const wd_status status = read_element(b, &(line){array, l->bytes + 2, l->path, l->number}, err);
    wd_free(array);
    return status;
}

/* Returns the end of the element at `p`: the comma, or the bracket, that follows it; `end` if there
 * is none. Adds line breaks to *breaks. What is between is checked when it is parsed. */
static char *end_of_element(char *p, const char *end, int64_t *breaks)
{
    int64_t depth = 0;
    bool quoted = false;
    for (; p < end; p++) {
        *breaks += *p == '\n';
        if (quoted && *p == '\\' && p + 1 < end) {
            p++;
        } else if (*p == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            if (!depth && (*p == ',' || *p == ']')) return p;
            depth += (*p == '[' || *p == '{') - (*p == ']' || *p == '}');
        }
    }
    return p;
}

static bool is_json_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Reads an array, element by element, since a large file as a whole would take many times its size.
 * Each element is put into brackets, in the place of what separates it from its neighbours. */
static wd_status read_array(builder *b, char *text, size_t bytes, const char *path, wd_err *err)
{
    char *p = text, *const end = text + bytes;
    int64_t number = 1;
    bool last = false;
    for (; p < end && is_json_space(*p); p++) number += *p == '\n';
    if (p == end || *p != '[')
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected an array of texts or objects, found another value; a file "
                       "with an object a line is called .jsonl",
                       path);
    while (!last) {
        char *const begin = p;
        int64_t breaks = 0;
        p = end_of_element(begin + 1, end, &breaks);
        if (p == end)
            return wd_fail(err, WD_BAD_FORMAT, "%s: line %lld: the array does not end", path,
                           (long long)number);
        last = *p == ']';
        if (last && is_blank(begin + 1, (size_t)(p - begin - 1)) && *begin == '[' && !b->count)
            break; /* it is empty */
        *begin = '[';
        *p = ']';
        const line l = {begin, (size_t)(p - begin) + 1, path, number};
        WD_TRY(read_element(b, &l, err));
        number += breaks;
    }
    for (p++; p < end; p++)
        if (!is_json_space(*p))
            return wd_fail(err, WD_BAD_FORMAT, "%s: line %lld: text after the end of the array",
                           path, (long long)number);
    return WD_OK;
}

/* ---- tables ---- */

static bool is_named(const wd_csv_field *f, const char *name, bool any_case)
{
    if (f->bytes != strlen(name)) return false;
    return any_case ? !strncasecmp(f->text, name, f->bytes) : !memcmp(f->text, name, f->bytes);
}

/* Finds the column of the prompts in the record that names the columns. */
static wd_status find_column(int *out, const builder *b, const wd_csv *csv, wd_err *err)
{
    char names[NAMES_TEXT] = "", where[WD_PATH_MAX + 32];
    for (int i = 0; i < (b->column ? 1 : USUAL_COLUMNS); i++)
        for (*out = 0; *out < csv->fields; (*out)++)
            if (is_named(&csv->field[*out], b->column ? b->column : usual_columns[i], !b->column))
                return WD_OK;
    for (int i = 0; i < csv->fields; i++) list_name(names, csv->field[i].text, csv->field[i].bytes);
    snprintf(where, sizeof where, "%s: line %lld", csv->path, (long long)csv->record_line);
    return fail_to_find(b, where, "column", names, err);
}

static wd_status read_table(builder *b, char *text, size_t bytes, const char *path, char separator,
                            wd_err *err)
{
    wd_csv csv;
    int columns = 0, column = 0;
    wd__csv_begin(&csv, text, bytes, separator, path);
    for (;;) {
        WD_TRY(wd__csv_next(&csv, err));
        if (!csv.fields) return WD_OK;
        if (!columns) {
            columns = csv.fields;
            WD_TRY(find_column(&column, b, &csv, err));
            continue;
        }
        if (csv.fields != columns)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: line %lld: expected %d fields, as the first line has, found %d: "
                           "put a text with separators into quotes (\")",
                           path, (long long)csv.record_line, columns, csv.fields);
        const wd_csv_field *f = &csv.field[column];
        const line l = {f->text, f->bytes, path, csv.record_line};
        WD_TRY(check_line(&l, err));
        WD_TRY(add(b, f->text, f->bytes, &l, err));
    }
}

/* ---- files ---- */

static bool ends_with(const char *path, const char *ending)
{
    size_t a = strlen(path), b = strlen(ending);
    return a > b && !strcasecmp(path + a - b, ending);
}

bool wd_prompts_is_file(const char *text)
{
    static const char *const endings[] = {".txt", ".jsonl", ".json", ".csv", ".tsv"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(text, endings[i])) return true;
    return wd_path_exists(text);
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
    static const file_kind kinds[] = {{".jsonl", ", one a JSON object, from", OBJECT_LINES, 0},
                                      {".ndjson", ", one a JSON object, from", OBJECT_LINES, 0},
                                      {".json", ", from the array in", ARRAY, 0},
                                      {".csv", ", from the table", TABLE, ','},
                                      {".tsv", ", from the table", TABLE, '\t'},
                                      {"", ", one a line, from", PROMPT_LINES, 0}};
    const file_kind *found = kinds;
    while (*found->ending && !ends_with(path, found->ending)) found++;
    return found;
}

static wd_status read_text(builder *b, char *text, size_t bytes, const file_kind *file,
                           const char *path, wd_err *err)
{
    switch (file->kind) {
    case TABLE:
        return read_table(b, text, bytes, path, file->separator, err);
    case ARRAY:
        return read_array(b, text, bytes, path, err);
    case OBJECT_LINES:
        return read_lines(b, read_json_line, text, bytes, path, err);
    case CAPTION:
        return read_lines(b, read_caption_line, text, bytes, path, err);
    default:
        return read_lines(b, read_plain, text, bytes, path, err);
    }
}

static wd_status read_file(builder *b, const file_kind *file, const char *path, wd_err *err)
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

/* Reads a file with several prompts. */
static wd_status read_list(builder *b, const char *path, wd_err *err)
{
    const file_kind *file = kind_of(path);
    b->noun = "prompt";
    b->source = file->source;
    if (b->column && file->kind == PROMPT_LINES)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--prompt_column %s: %s has one prompt a line, and no columns: leave the "
                       "option out, or name a .csv, .tsv, .json or .jsonl file",
                       b->column, path);
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
        if (status == WD_OK) status = read_file(b, &caption, path, err);
        end_caption(b);
    }
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
    if (status == WD_OK && count == 0)
        status = wd_fail(
            err, WD_NOT_FOUND,
            "%s: expected prompts.txt, metadata.jsonl, metadata.csv or caption files (*.txt) "
            "in this folder, found none",
            folder);
    return status;
}

static wd_status read_folder(builder *b, const char *folder, wd_err *err)
{
    static const char *const names[] = {"prompts.txt", "metadata.jsonl", "metadata.csv"};
    char path[WD_PATH_MAX];
    for (int i = 0; i < 3; i++) {
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
static void say(const builder *b, int64_t equal)
{
    char repeated[64] = "", blank[64] = "";
    if (equal)
        snprintf(repeated, sizeof repeated, "; %lld of them repeat another", (long long)equal);
    if (b->blank)
        snprintf(blank, sizeof blank, "; %lld empty one%s left out", (long long)b->blank,
                 b->blank == 1 ? " was" : "s were");
    wd_log(WD_LOG_INFO, "%lld %s%s%s %s%s%s", (long long)b->count, b->noun,
           b->count == 1 ? "" : "s", b->source, b->path, repeated, blank);
    if (b->count == 1 && b->lines > 1)
        wd_log(
            WD_LOG_WARNING,
            "%s: its only caption file has %lld lines, which were taken as one prompt. If each of "
            "them is a prompt, give the file instead of the folder, or call it prompts.txt",
            b->path, (long long)b->lines);
}

wd_status wd_prompts_open(wd_prompts *out, const char *path, const char *column, wd_err *err)
{
    builder b = {.column = column};
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
