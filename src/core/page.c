/* Growing texts: see core/page.h. */
#include "core/page.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/plain.h"

void wd_page_say(wd_page *p, const char *format, ...)
{
    va_list list, again;
    if (p->status != WD_OK) return;
    va_start(list, format);
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, list);
    size_t needed = p->used + (size_t)(n > 0 ? n : 0) + 1; /* n < 0: it cannot be formatted */
    if (needed > p->size) {
        void *block = p->text;
        p->status = wd_resize(&block, 2 * needed, 1, "a text", p->err);
        p->text = block;
        if (p->status == WD_OK) p->size = 2 * needed;
    }
    if (p->status == WD_OK) vsnprintf(p->text + p->used, p->size - p->used, format, again);
    if (p->status == WD_OK && n > 0) p->used += (size_t)n;
    va_end(again);
    va_end(list);
}

wd_status wd_page_take(char **out, wd_page *page)
{
    if (page->status == WD_OK) {
        if (page->text) wd_make_plain(page->text);
        *out = page->text;
    } else {
        wd_free(page->text);
    }
    page->text = NULL;
    return page->status;
}
