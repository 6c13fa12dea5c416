/* Texts: see core/text.h. */
#include "core/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

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

const char *wd_dims_text(char *out, size_t out_bytes, const int64_t *dim, int ndim)
{
    size_t used = wd_append_text(out, out_bytes, 0, "[");
    for (int i = 0; i < ndim; i++)
        used = wd_append_text(out, out_bytes, used, "%s%" PRId64, i ? ", " : "", dim[i]);
    wd_append_text(out, out_bytes, used, "]");
    return out;
}

const char *wd_weights_text(char out[WD_WEIGHTS_TEXT], int64_t weights)
{
    const bool billions = weights >= 999500000; /* "%.3g" writes more millions as 1e+03 */
    snprintf(out, WD_WEIGHTS_TEXT, "%.3g %s", (double)weights * (billions ? 1e-9 : 1e-6),
             billions ? "billion" : "million");
    return out;
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

/* ---- what a terminal shows ---- */

typedef struct range {
    uint32_t first, last;
} range;

/* The code points that a terminal does not show as themselves. Newline and tab stay. */
static const range hidden[] = {
    {0x00, 0x1f},       /* controls: escape, carriage return, backspace, bell */
    {0x7f, 0x9f},       /* delete, and the controls of 8-bit terminals */
    {0xad, 0xad},       /* soft hyphen */
    {0x61c, 0x61c},     /* Arabic letter mark */
    {0x180e, 0x180e},   /* Mongolian vowel separator */
    {0x200b, 0x200b},   /* zero width space; the joiners after it shape letters and stay */
    {0x200e, 0x200f},   /* left-to-right and right-to-left marks */
    {0x2028, 0x202e},   /* separators of lines and paragraphs; embeddings and overrides */
    {0x2060, 0x206f},   /* word joiner, invisible operators, isolates, deprecated controls */
    {0xfeff, 0xfeff},   /* byte order mark */
    {0xfff9, 0xfffb},   /* annotations */
    {0xe0000, 0xe007f}, /* tags */
};

/* Sets *point to the code point at the start of `text` and returns its bytes; 0: not UTF-8. */
static int decode(uint32_t *point, const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char first = text[0];
    const int bytes = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (!bytes || first > 0xf4) return 0;
    *point = bytes == 1 ? first : first & (0x7fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0; /* so it does not read beyond the text's end */
        *point = *point << 6 | (text[i] & 0x3f);
    }
    const bool is_surrogate = *point >= 0xd800 && *point < 0xe000;
    return *point < least[bytes] || *point > 0x10ffff || is_surrogate ? 0 : bytes;
}

static bool is_shown(uint32_t point)
{
    if (point == '\n' || point == '\t') return true;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (point >= hidden[i].first && point <= hidden[i].last) return false;
    return true;
}

void wd_make_terminal_safe(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        uint32_t point = 0;
        const int bytes = decode(&point, (const unsigned char *)from);
        if (bytes && is_shown(point)) {
            for (int i = 0; i < bytes; i++) *to++ = from[i];
        } else {
            *to++ = '?';
        }
        from += bytes ? bytes : 1;
    }
    *to = '\0';
}

int wd_terminal_safe_bytes(const char *text, size_t bytes, int most)
{
    int n = 0;
    while (n < most && (size_t)n < bytes && (unsigned char)text[n] >= 0x20 && text[n] != 0x7f) n++;
    return n;
}

/* ---- words for a shell ---- */

/* zsh replaces a word that begins with '=' by the path of a program. */
static bool is_bare(const char *text)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_-./:=,@+%";
    return *text && *text != '=' && !text[strspn(text, bare)];
}

/* Whether a terminal shows all of `text` unchanged. `copy` has space for the text. */
static bool is_shown_whole(char *copy, const char *text)
{
    strcpy(copy, text);
    wd_make_terminal_safe(copy);
    return !strcmp(copy, text);
}

static void quote(char *out, size_t bytes, const char *text)
{
    size_t used = wd_append_text(out, bytes, 0, "'");
    for (; *text; text++)
        used = *text == '\'' ? wd_append_text(out, bytes, used, "'\\''")
                             : wd_append_text(out, bytes, used, "%c", *text);
    wd_append_text(out, bytes, used, "'");
}

static void escape(char *out, size_t bytes, const char *text)
{
    size_t used = wd_append_text(out, bytes, 0, "$'");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool escaped = c < 0x20 || c >= 0x7f || c == '\'' || c == '\\';
        used = escaped ? wd_append_text(out, bytes, used, "\\%03o", c)
                       : wd_append_text(out, bytes, used, "%c", c);
    }
    wd_append_text(out, bytes, used, "'");
}

const char *wd_shell_word(char *out, size_t out_bytes, const char *text)
{
    if (out_bytes < WD_SHELL_WORD_BYTES(strlen(text))) {
        if (out_bytes) *out = '\0';
        return out;
    }
    if (is_bare(text))
        strcpy(out, text);
    else if (is_shown_whole(out, text))
        quote(out, out_bytes, text);
    else
        escape(out, out_bytes, text);
    return out;
}
