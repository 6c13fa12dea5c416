/* Comma- and tab-separated values: see io/text/csv.h. */
#include "io/text/csv.h"

void wd__csv_begin(wd_csv *csv, char *text, size_t bytes, char separator, const char *path)
{
    *csv = (wd_csv){
        .path = path, .separator = separator, .next = text, .end = text + bytes, .line = 1};
}

static bool ends_line(char c)
{
    return c == '\n' || c == '\r';
}

/* Steps over the LF, CR LF or CR at *p. */
static char *step_over_break(wd_csv *csv, char *p)
{
    csv->line++;
    return p + (p + 1 < csv->end && p[0] == '\r' && p[1] == '\n' ? 2 : 1);
}

/* Reads a field in quotes, of which *p is the first character behind the opening one. Sets *p to
 * the character behind the closing one. */
static wd_status read_quoted(wd_csv_field *out, char **p, wd_csv *csv, wd_err *err)
{
    const int64_t line = csv->line;
    char *from = *p, *to = *p;
    for (; from < csv->end; from++) {
        if (*from == '"' && !(from + 1 < csv->end && from[1] == '"')) {
            *out = (wd_csv_field){*p, (size_t)(to - *p)};
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

static wd_status read_field(wd_csv_field *out, char **p, wd_csv *csv, wd_err *err)
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
    *out = (wd_csv_field){begin, (size_t)(*p - begin)};
    return WD_OK;
}

wd_status wd__csv_next(wd_csv *csv, wd_err *err)
{
    char *p = csv->next;
    csv->fields = 0;
    while (p < csv->end && ends_line(*p)) p = step_over_break(csv, p);
    csv->record_line = csv->line;
    bool more = p < csv->end;
    while (more) {
        if (csv->fields == WD_CSV_FIELDS_MAX)
            return wd_fail(err, WD_UNSUPPORTED, "%s: line %lld: more than %d fields", csv->path,
                           (long long)csv->record_line, WD_CSV_FIELDS_MAX);
        WD_TRY(read_field(&csv->field[csv->fields++], &p, csv, err));
        more = p < csv->end && *p == csv->separator;
        if (more) p++;
    }
    csv->next = p < csv->end ? step_over_break(csv, p) : p;
    return WD_OK;
}
