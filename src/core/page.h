/* A text that grows line by line. The page remembers its first failure, so that the caller checks
 * only wd_page_take. */
#ifndef WD_CORE_PAGE_H
#define WD_CORE_PAGE_H

#include "core/error.h"

typedef struct wd_page {
    char *text; /* the caller frees it with wd_free, also after a failure */
    size_t used, size;
    wd_status status;
    wd_err *err;
} wd_page;

__attribute__((format(printf, 2, 3))) void wd_page_say(wd_page *page, const char *format, ...);

/* Moves the text to *out, made safe for terminals (core/plain.h). The caller frees *out with
 * wd_free. On failure it returns the page's first error, and there is nothing to free. */
wd_status wd_page_take(char **out, wd_page *page);

#endif
