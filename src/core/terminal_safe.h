/* Text that is safe to print on a terminal. */
#ifndef WD_CORE_TERMINAL_SAFE_H
#define WD_CORE_TERMINAL_SAFE_H

#include <stddef.h>

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

#endif
