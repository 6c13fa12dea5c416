/* Words for a shell: see core/shell.h. */
#include "core/shell.h"

#include <stdbool.h>
#include <string.h>

#include "core/terminal_safe.h"
#include "core/text.h"

/* zsh replaces a word that begins with '=' by the path of a program. */
static bool is_bare(const char *text)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_-./:=,@+%";
    return *text && *text != '=' && !text[strspn(text, bare)];
}

/* Whether a terminal shows all of `text` unchanged. `copy` has space for the text. */
static bool is_shown(char *copy, const char *text)
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
    else if (is_shown(out, text))
        quote(out, out_bytes, text);
    else
        escape(out, out_bytes, text);
    return out;
}
