/* Tables of comma- or tab-separated values (RFC 4180), record by record. A record is a line, but a
 * field in double quotes may have line breaks, separators, and quotes that are written twice. */
#ifndef WD_IO_TEXT_CSV_H
#define WD_IO_TEXT_CSV_H

#include "core/error.h"

enum { WD_CSV_FIELDS_MAX = 1024 };

typedef struct wd_csv_field {
    char *text; /* not terminated */
    size_t bytes;
} wd_csv_field;

typedef struct wd_csv {
    const char *path; /* for errors; borrowed */
    char separator;   /* ',' or '\t' */
    char *next, *end; /* what is left of the text, whose quoted fields are unquoted in place */
    int64_t line;     /* of *next, from 1 */
    /* the record */
    wd_csv_field field[WD_CSV_FIELDS_MAX];
    int fields;          /* 0: there are no more */
    int64_t record_line; /* its first */
} wd_csv;

/* Begins to read `text` [bytes], which is overwritten and must live as long as the fields. */
void wd__csv_begin(wd_csv *csv, char *text, size_t bytes, char separator, const char *path);

/* Reads the next record; lines without any character are skipped. WD_BAD_FORMAT: a quote that does
 * not end, text behind one, or too many fields. */
wd_status wd__csv_next(wd_csv *csv, wd_err *err);

#endif
