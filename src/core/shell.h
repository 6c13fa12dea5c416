/* Words of commands that are printed for the user to paste into a shell. */
#ifndef WD_CORE_SHELL_H
#define WD_CORE_SHELL_H

#include <stddef.h>

/* Bytes that suffice for the word of a text of `length` bytes, the '\0' at its end included. */
#define WD_SHELL_WORD_BYTES(length) (4 * (length) + 4)

/* Writes `text`, any bytes, into `out` as one word of a shell's command line and returns `out`: as
 * it is where no character of it means anything to a shell, else in single quotes. Where characters
 * of it are not shown on a terminal (core/plain.h) it is $'...' with octal escapes, which bash and
 * zsh read, so that the word can be printed. `out` must have the bytes above; else it is "". */
const char *wd_shell_word(char *out, size_t out_bytes, const char *text);

#endif
