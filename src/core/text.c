/* Texts: see core/text.h. */
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/require.h"
#include "core/terminal_safe.h"

size_t wd_append_text(char *out, size_t bytes, size_t used, const char *format, ...)
{
    WD_REQUIRE(used < bytes, "a text of %zu bytes is appended to in a buffer of %zu", used, bytes);
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(out + used, bytes - used, format, list);
    va_end(list);
    if (n < 0) out[used] = '\0';
    if (n <= 0) return used;
    return (size_t)n < bytes - used ? used + (size_t)n : bytes - 1;
}

/* ---- texts that grow line by line ---- */

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
