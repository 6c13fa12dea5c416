/* Texts: how they begin and end, appending to a buffer of fixed size, texts that grow, what a
 * terminal shows of them, and words for a shell. */
#ifndef WD_CORE_TEXT_H
#define WD_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/error.h"

static inline bool wd_begins_with(const char *text, const char *begin)
{
    return !strncmp(text, begin, strlen(begin));
}

static inline bool wd_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* ---- appending to a buffer of fixed size ---- */

/* Writes the formatted text at out[used] and returns the new length of the text, which is always
 * below `bytes` and ends with '\0'. Text that does not fit is left out. (snprintf instead returns
 * the length that the whole text would have, which as an offset would lead beyond the buffer.)
 * `bytes` must not be 0, and `used` must be below it. */
size_t wd_append_text(char *out, size_t bytes, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Writes "[3, 16, 1, 2, 2]" into `out`; returns `out`. */
const char *wd_dims_text(char *out, size_t out_bytes, const int64_t *dim, int ndim);

/* Writes a model's number of weights, "671 million" or "1.42 billion", into `out`; returns `out`.
 */
enum { WD_WEIGHTS_TEXT = 24 };
const char *wd_weights_text(char out[WD_WEIGHTS_TEXT], int64_t weights);

/* ---- texts that grow line by line ---- */

/* It remembers its first failure, so that the caller checks only wd_text_builder_take. */
typedef struct wd_text_builder {
    char *text; /* the caller frees it with wd_free, also after a failure */
    size_t used, size;
    wd_status status;
    wd_err *err;
} wd_text_builder;

__attribute__((format(printf, 2, 3))) void wd_text_builder_say(wd_text_builder *builder,
                                                               const char *format, ...);

/* Moves the text to *out, made safe for terminals (wd_make_terminal_safe). The caller frees *out
 * with wd_free. On failure it returns the builder's first error, and there is nothing to free. */
wd_status wd_text_builder_take(char **out, wd_text_builder *builder);

/* ---- what a terminal shows ---- */

/* Replaces in place by '?' all characters that a terminal obeys or does not show: control
 * characters except newline and tab, marks that change the direction of text, characters without a
 * width or shape, and bytes that are not UTF-8. Names and values in files may contain them; printed
 * unchanged they could rewrite earlier lines, set the window's title or show a wrong name.
 * core/error.c, core/log.c and core/text.c pass every message through this function. */
void wd_make_terminal_safe(char *text);

/* How many bytes of a text, at most `most`, come before its first control character: what a message
 * shows of it by "%.*s", so that it cannot add lines to the message. */
int wd_terminal_safe_bytes(const char *text, size_t bytes, int most);

/* The two arguments of "%.*s" for a text from a file. `text` is evaluated twice. */
#define WD_TERMINAL_SAFE(text, most) wd_terminal_safe_bytes(text, strlen(text), most), (text)

/* ---- words of commands that are printed for the user to paste into a shell ---- */

/* Bytes that suffice for the word of a text of `length` bytes, including the final '\0'. */
#define WD_SHELL_WORD_BYTES(length) (4 * (length) + 4)

/* Writes `text`, any bytes, into `out` as one word of a shell's command line, and returns `out`.
 * The word is the text itself if no character has a meaning for a shell, else the text in single
 * quotes. If a terminal would not show all characters, the word is $'...' with octal escapes, which
 * bash and zsh read. `out` must have WD_SHELL_WORD_BYTES; else it becomes "". */
const char *wd_shell_word(char *out, size_t out_bytes, const char *text);

#endif
