/* Words of commands that are printed for the user to paste into a shell. */
#ifndef WD_CORE_SHELL_H
#define WD_CORE_SHELL_H

#include <stddef.h>

/* Bytes that suffice for the word of a text of `length` bytes, including the final '\0'. */
#define WD_SHELL_WORD_BYTES(length) (4 * (length) + 4)

/* Writes `text`, any bytes, into `out` as one word of a shell's command line, and returns `out`.
 * The word is the text itself if no character has a meaning for a shell, else the text in single
 * quotes. If a terminal would not show all characters (core/terminal_safe.h), the word is $'...'
 * with octal escapes, which bash and zsh read. `out` must have WD_SHELL_WORD_BYTES; else it becomes
 * "". */
const char *wd_shell_word(char *out, size_t out_bytes, const char *text);

#endif
