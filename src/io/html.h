/* Character references in text, decoded in place (none becomes longer than it was). */
#ifndef WD_IO_HTML_H
#define WD_IO_HTML_H

#include "io/unicode.h"

typedef struct wd_html_entity {
    const char *name;
    int32_t first, second; /* second: 0 if there is only one */
    bool bare;             /* counts without a semicolon, too */
} wd_html_entity;

extern const wd_html_entity wd_html_entities[]; /* sorted by name */
extern const int wd_html_entity_count;

/* As Python's html.unescape: HTML 5's rules, where "&ampx" begins with "&amp", a number that is a
 * C1 control means its Windows-1252 character, and one that is no character vanishes or is U+FFFD.
 */
void wd_html_unescape(wd_points *text);

/* As ftfy's unescape_html, to its fixpoint: only references of at most 24 letters and digits that
 * end in a semicolon, and names in capitals that HTML does not have ("&EACUTE;"). */
void wd_html_unescape_whole(wd_points *text);

/* What the C1 control `point` means in Windows-1252; any other code point, and the five controls
 * that mean nothing there, as they are. */
int32_t wd_windows_1252(int32_t point);

#endif
