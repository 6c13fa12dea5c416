/* Growing texts: see core/text_builder.h. */
#include "core/text_builder.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/terminal_safe.h"

void wd_text_builder_say(wd_text_builder *p, const char *format, ...)
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

wd_status wd_text_builder_take(char **out, wd_text_builder *builder)
{
    if (builder->status == WD_OK) {
        if (builder->text) wd_make_terminal_safe(builder->text);
        *out = builder->text;
    } else {
        wd_free(builder->text);
    }
    builder->text = NULL;
    return builder->status;
}
