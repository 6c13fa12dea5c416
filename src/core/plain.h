/* Text that is safe to print on a terminal. */
#ifndef WD_CORE_PLAIN_H
#define WD_CORE_PLAIN_H

/* Replaces, in place, by '?' what a terminal obeys or hides where it should show it: control
 * characters except newline and tab, marks that change the direction of text, characters without a
 * width or shape, and bytes that are not UTF-8. Names and values of files may have them: printed as
 * they are they could rewrite earlier lines, set the window's title or show another name than
 * there is. Messages pass through this where they leave (core/error.c, core/log.c, core/page.c). */
void wd_make_plain(char *text);

#endif
