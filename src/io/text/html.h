/* Decoding of character references in place: no decoded reference is longer than its name. */
#ifndef WD_IO_TEXT_HTML_H
#define WD_IO_TEXT_HTML_H

#include "core/unicode.h"

typedef struct wd_html_entity {
    const char *name;
    int32_t first, second; /* second: 0 if there is only one */
    bool bare;             /* is also decoded without a semicolon */
} wd_html_entity;

extern const wd_html_entity wd_html_entities[]; /* sorted by name */
extern const int wd_html_entity_count;

/* Decodes as Python's html.unescape does, by the rules of HTML 5: "&ampx" begins with "&amp", the
 * number of a C1 control means the character of Windows-1252, and a number that is no character is
 * removed or becomes U+FFFD. */
void wd__html_unescape(wd_points *text);

/* Decodes as ftfy's unescape_html does, repeated until nothing changes: only references of at most
 * 24 letters and digits that end in a semicolon, and names in capitals that HTML does not have
 * ("&EACUTE;"). */
void wd__html_unescape_whole(wd_points *text);

/* The character that the C1 control `point` means in Windows-1252. Other code points, and five
 * controls that have no meaning there, are returned unchanged. */
int32_t wd__windows_1252(int32_t point);

#endif
