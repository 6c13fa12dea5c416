/* A text that grows line by line. The first failure stays, so that only the end is checked. */
#ifndef WD_CORE_PAGE_H
#define WD_CORE_PAGE_H

#include "core/error.h"

typedef struct wd_page {
    char *text; /* the caller's to wd_free, also after a failure */
    size_t used, size;
    wd_status status;
    wd_err *err;
} wd_page;

__attribute__((format(printf, 2, 3))) void wd_page_say(wd_page *page, const char *format, ...);

/* Takes the text, without what a terminal would obey (core/plain.h): *out is the caller's to
 * wd_free; on failure nothing is. */
wd_status wd_page_take(char **out, wd_page *page);

#endif
