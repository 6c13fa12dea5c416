/* Writes a page of HTML to a file, piece by piece, so that a large page needs little memory.
 *
 * Texts from outside are escaped, and characters that are not shown, or are not UTF-8, become '?',
 * so no text can end an element or an attribute. A page has a bound on its bytes. The writer
 * remembers its first failure; wd__html_close returns it. */
#ifndef WD_REPORT_HTML_H
#define WD_REPORT_HTML_H

#include "io/file/file.h"

enum { WD_HTML_BYTES_MAX = 32 << 20, WD_HTML_BUFFER = 16 << 10 };

typedef struct wd_html {
    int fd;
    char path[WD_PATH_MAX], temporary[WD_PATH_MAX];
    size_t used, bytes; /* in the buffer, and in all */
    wd_status status;
    wd_err *err;
    char buffer[WD_HTML_BUFFER];
} wd_html;

/* Begins a page that will replace `path`. `err` must live until the page is closed. */
wd_status wd__html_open(wd_html *html, const char *path, wd_err *err);

/* Puts the page in the place of `path`, or, after a failure, removes it. */
wd_status wd__html_close(wd_html *html);

/* Writes as it is: this program's own text, and numbers. */
void wd__html_put(wd_html *html, const char *text);
void wd__html_say(wd_html *html, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes a text from outside, as content or as a quoted value. A text longer than 4096 bytes is
 * cut and ends with "...". */
void wd__html_text(wd_html *html, const char *text);

/* Writes the path to a file as the value of an attribute: all that is not a letter, a digit or one
 * of "/._-~" becomes %XX, so it is never an address with a scheme. */
void wd__html_path(wd_html *html, const char *path);

/* Writes `bytes` bytes of an open file in base64, from `offset` on. A file that is shorter by now
 * is a failure of the page. */
void wd__html_base64(wd_html *html, int fd, int64_t offset, size_t bytes);

#endif
