/* Prompts in records: see io/text/prompt_records.h. */
#include "io/text/prompt_records.h"

#include <string.h>
#include <strings.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/json/json.h"

/* Where the prompt is, if no column is given. */
static const char *const usual_columns[] = {"prompt", "caption", "text"};
enum { USUAL_COLUMNS = 3 };

/* ---- columns and keys ---- */

enum { NAMES_TEXT = 256 };

/* Copies a name to `out` [64], with a question mark for each character that would break a line. */
static void copy_name(char out[64], const char *name, size_t bytes)
{
    size_t n = 0;
    for (; n < bytes && n < 63; n++) out[n] = (unsigned char)name[n] < ' ' ? '?' : name[n];
    out[n] = '\0';
}

/* Appends a name to a list of names in `out` [NAMES_TEXT]; too many are left out. */
static void list_name(char *out, const char *text, size_t bytes)
{
    char name[64];
    const size_t used = strlen(out);
    copy_name(name, text, bytes);
    const int n = (int)strlen(name);
    if (used + (size_t)n + 8 < NAMES_TEXT)
        snprintf(out + used, NAMES_TEXT - used, "%s\"%.*s\"", used ? ", " : "", n, name);
    else if (used + 5 < NAMES_TEXT && out[used - 1] == '"')
        snprintf(out + used, NAMES_TEXT - used, ", ...");
}

/* `what`: "column" or "key"; `names`: those that are there. */
static wd_status fail_to_find(const wd_prompt_builder *b, const char *where, const char *what,
                              const char *names, wd_err *err)
{
    if (b->column)
        return wd_fail(err, WD_BAD_FORMAT, "%s: expected the %s \"%s\" (--prompt_column), found %s",
                       where, what, b->column, *names ? names : "none");
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected the prompt under the %s \"prompt\", \"caption\" or \"text\", "
                   "found %s: call it prompt (`train` has --prompt_column NAME, too)",
                   where, what, *names ? names : "none");
}

/* ---- JSON ---- */

/* The key of the prompt: the one that is asked for, else the first usual one whose value is not
 * null; NULL: there is none. Upper and lower case are the same for usual ones. */
static const char *find_key(const wd_prompt_builder *b, const json_t *object)
{
    const char *key, *null = NULL;
    json_t *value;
    if (b->column) return json_object_get(object, b->column) ? b->column : NULL;
    for (int i = 0; i < USUAL_COLUMNS; i++)
        json_object_foreach((json_t *)(uintptr_t)object, key, value)
        {
            if (strcasecmp(key, usual_columns[i])) continue;
            if (!json_is_null(value)) return key;
            null = key;
        }
    return null;
}

static wd_status text_of_object(const char **out, wd_prompt_builder *b, const json_t *object,
                                const char *where, wd_err *err)
{
    char names[NAMES_TEXT] = "";
    const char *key = find_key(b, object);
    json_t *value;
    if (key) {
        if (!*b->found) copy_name(b->found, key, strlen(key));
        *out = ""; /* null is a blank prompt */
        return wd_json_text(out, (wd_json_reader){object, where}, key, WD_JSON_OPTIONAL, err);
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value) list_name(names, key, strlen(key));
    return fail_to_find(b, where, "key", names, err);
}

/* Reads {"prompt": "..."}, or "...", which stands in an array of its own: [{"prompt": "..."}]. */
static wd_status read_element(wd_prompt_builder *b, const wd_prompt_line *l, wd_err *err)
{
    char where[WD_PATH_MAX + 96];
    const char *text;
    json_t *array;
    wd_status status = WD_OK;
    if (l->element)
        snprintf(where, sizeof where, "%s: element %lld, which begins in line %lld", l->path,
                 (long long)l->element, (long long)l->number);
    else
        snprintf(where, sizeof where, "%s: line %lld", l->path, (long long)l->number);
    WD_TRY(wd_json_parse(&array, l->text, l->bytes, where, err));
    const json_t *value = json_array_get(array, 0);
    if (json_array_size(array) != 1 || (!json_is_object(value) && !json_is_string(value))) {
        char found[64] = "nothing";
        if (value) wd_json_show(found, sizeof found, value);
        status =
            wd_fail(err, WD_BAD_FORMAT, "%s: expected an object or a text, found %s", where, found);
        goto out;
    }
    text = json_string_value(value);
    if (!text) WD_TRY_OUT(text_of_object(&text, b, value, where, err));
    status = wd__prompts_add(b, text, strlen(text), l, err);
out:
    json_decref(array);
    return status;
}

/* Reads a line with one element. */
wd_status wd__prompts_read_json_line(wd_prompt_builder *b, const wd_prompt_line *l, wd_err *err)
{
    char *array;
    if (wd__prompt_is_blank(l->text, l->bytes)) return WD_OK;
    WD_TRY(wd_alloc((void **)&array, l->bytes + 2, 1, "a line of JSON", err));
    array[0] = '[';
    memcpy(array + 1, l->text, l->bytes);
    array[l->bytes + 1] = ']';
    const wd_status status =
        read_element(b, &(wd_prompt_line){array, l->bytes + 2, l->path, l->number, 0}, err);
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

/* Adds line breaks to *breaks. */
static char *step_over_space(char *p, const char *end, int64_t *breaks)
{
    for (; p < end && is_json_space(*p); p++) *breaks += *p == '\n';
    return p;
}

/* Reads an array, element by element, since a large file as a whole would take many times its size.
 * Each element is put into brackets, in the place of what separates it from its neighbours. */
wd_status wd__prompts_read_array(wd_prompt_builder *b, char *text, size_t bytes, const char *path,
                                 wd_err *err)
{
    char *p = text, *const end = text + bytes;
    int64_t number = 1, element = 0;
    bool last = false;
    p = step_over_space(p, end, &number);
    if (p == end || *p != '[')
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected an array of texts or objects, found another value; a file "
                       "with an object a line is called .jsonl",
                       path);
    while (!last) {
        char *const begin = step_over_space(p + 1, end, &number) - 1;
        int64_t breaks = 0;
        p = end_of_element(begin + 1, end, &breaks);
        if (p == end)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: the array does not end: its element %lld begins in line %lld", path,
                           (long long)element + 1, (long long)number);
        last = *p == ']';
        if (last && !element && p == begin + 1) break; /* it is empty */
        *begin = '[';
        *p = ']';
        const wd_prompt_line l = {begin, (size_t)(p - begin) + 1, path, number, ++element};
        WD_TRY(read_element(b, &l, err));
        number += breaks;
    }
    p = step_over_space(p + 1, end, &number);
    if (p == end) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT, "%s: line %lld: text after the end of the array", path,
                   (long long)number);
}

/* ---- comma- and tab-separated values (RFC 4180) ----
 *
 * A record is a line, but a field in double quotes may have line breaks, separators, and quotes
 * that are written twice. */

enum { FIELDS_MAX = 1024 };

typedef struct csv_field {
    char *text; /* not terminated */
    size_t bytes;
} csv_field;

typedef struct csv_reader {
    const char *path; /* for errors; borrowed */
    char separator;   /* ',' or '\t' */
    char *next, *end; /* what is left of the text, whose quoted fields are unquoted in place */
    int64_t line;     /* of *next, from 1 */
    /* the record */
    csv_field field[FIELDS_MAX];
    int fields;          /* 0: there are no more */
    int64_t record_line; /* its first */
} csv_reader;

/* Begins to read `text` [bytes], which is overwritten and must live as long as the fields. */
static void csv_begin(csv_reader *csv, char *text, size_t bytes, char separator, const char *path)
{
    *csv = (csv_reader){
        .path = path, .separator = separator, .next = text, .end = text + bytes, .line = 1};
}

static bool ends_line(char c)
{
    return c == '\n' || c == '\r';
}

/* Steps over the LF, CR LF or CR at *p. */
static char *step_over_break(csv_reader *csv, char *p)
{
    csv->line++;
    return p + (p + 1 < csv->end && p[0] == '\r' && p[1] == '\n' ? 2 : 1);
}

/* Reads a field in quotes, of which *p is the first character behind the opening one. Sets *p to
 * the character behind the closing one. */
static wd_status read_quoted(csv_field *out, char **p, csv_reader *csv, wd_err *err)
{
    const int64_t line = csv->line;
    char *from = *p, *to = *p;
    for (; from < csv->end; from++) {
        if (*from == '"' && !(from + 1 < csv->end && from[1] == '"')) {
            *out = (csv_field){*p, (size_t)(to - *p)};
            *p = from + 1;
            return WD_OK;
        }
        if (*from == '"') from++; /* of two quotes one is kept */
        if (*from == '\n' || (*from == '\r' && !(from + 1 < csv->end && from[1] == '\n')))
            csv->line++;
        *to++ = *from;
    }
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: line %lld: a quote (\") begins here and does not end: write it twice where "
                   "it belongs to the text, and put the text in quotes",
                   csv->path, (long long)line);
}

static wd_status read_field(csv_field *out, char **p, csv_reader *csv, wd_err *err)
{
    char *begin = *p;
    if (begin < csv->end && *begin == '"') {
        (*p)++;
        WD_TRY(read_quoted(out, p, csv, err));
        if (*p == csv->end || **p == csv->separator || ends_line(**p)) return WD_OK;
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: line %lld: expected a separator or the end of the line behind the "
                       "closing quote (\") of a field, found text",
                       csv->path, (long long)csv->line);
    }
    while (*p < csv->end && **p != csv->separator && !ends_line(**p)) (*p)++;
    *out = (csv_field){begin, (size_t)(*p - begin)};
    return WD_OK;
}

/* Reads the next record; lines without any character are skipped. WD_BAD_FORMAT: a quote that does
 * not end, text behind one, or too many fields. */
static wd_status csv_next(csv_reader *csv, wd_err *err)
{
    char *p = csv->next;
    csv->fields = 0;
    while (p < csv->end && ends_line(*p)) p = step_over_break(csv, p);
    csv->record_line = csv->line;
    bool more = p < csv->end;
    while (more) {
        if (csv->fields == FIELDS_MAX)
            return wd_fail(err, WD_UNSUPPORTED, "%s: line %lld: more than %d fields", csv->path,
                           (long long)csv->record_line, FIELDS_MAX);
        WD_TRY(read_field(&csv->field[csv->fields++], &p, csv, err));
        more = p < csv->end && *p == csv->separator;
        if (more) p++;
    }
    csv->next = p < csv->end ? step_over_break(csv, p) : p;
    return WD_OK;
}

/* ---- tables ---- */

static bool is_named(const csv_field *f, const char *name, bool any_case)
{
    if (f->bytes != strlen(name)) return false;
    return any_case ? !strncasecmp(f->text, name, f->bytes) : !memcmp(f->text, name, f->bytes);
}

/* Finds the column of the prompts in the record that names the columns. */
static wd_status find_column(int *out, wd_prompt_builder *b, const csv_reader *csv, wd_err *err)
{
    char names[NAMES_TEXT] = "", where[WD_PATH_MAX + 32];
    for (int i = 0; i < (b->column ? 1 : USUAL_COLUMNS); i++)
        for (*out = 0; *out < csv->fields; (*out)++)
            if (is_named(&csv->field[*out], b->column ? b->column : usual_columns[i], !b->column)) {
                copy_name(b->found, csv->field[*out].text, csv->field[*out].bytes);
                return WD_OK;
            }
    for (int i = 0; i < csv->fields; i++) list_name(names, csv->field[i].text, csv->field[i].bytes);
    snprintf(where, sizeof where, "%s: line %lld", csv->path, (long long)csv->record_line);
    if (csv->fields == 1 && memchr(csv->field[0].text, ';', csv->field[0].bytes))
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected columns with commas between them, found semicolons: save the "
                       "table with commas",
                       where);
    return fail_to_find(b, where, "column", names, err);
}

/* Refuses a record that has not as many fields as the first one. */
static wd_status check_fields(const csv_reader *csv, int columns, wd_err *err)
{
    if (csv->fields == columns) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: line %lld: expected %d field%s, as the first line has, "
                   "found %d%s",
                   csv->path, (long long)csv->record_line, columns, columns == 1 ? "" : "s",
                   csv->fields,
                   csv->fields > columns ? ": put a text with separators into quotes (\")" : "");
}

static bool is_blank_record(const csv_reader *csv)
{
    return csv->fields == 1 && wd__prompt_is_blank(csv->field[0].text, csv->field[0].bytes);
}

wd_status wd__prompts_read_table(wd_prompt_builder *b, char *text, size_t bytes, const char *path,
                                 char separator, wd_err *err)
{
    csv_reader csv;
    int columns = 0, column = 0;
    bool warned = separator != '\t';
    csv_begin(&csv, text, bytes, separator, path);
    for (;;) {
        WD_TRY(csv_next(&csv, err));
        if (!csv.fields) return WD_OK;
        if (!columns) {
            columns = csv.fields;
            WD_TRY(find_column(&column, b, &csv, err));
            continue;
        }
        if (columns > 1 && is_blank_record(&csv)) continue;
        WD_TRY(check_fields(&csv, columns, err));
        const csv_field *f = &csv.field[column];
        const wd_prompt_line l = {f->text, f->bytes, path, csv.record_line, 0};
        WD_TRY(wd__prompt_check_line(&l, err));
        WD_TRY(wd__prompts_add(b, f->text, f->bytes, &l, err));
        if (!warned && csv.line > csv.record_line + 1) {
            wd_log(WD_LOG_WARNING,
                   "%s: line %lld: a field that begins with a quote (\") ends in another line; "
                   "quotes that belong to a text are written twice, in a field in quotes",
                   path, (long long)csv.record_line);
            warned = true;
        }
    }
}
