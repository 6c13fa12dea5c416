/* The locale in which the library reads and writes numbers: "C", with a decimal point, also in a
 * program that has chosen a locale with a decimal comma (setlocale). */
#ifndef WD_CORE_LOCALE_H
#define WD_CORE_LOCALE_H

#include <locale.h>

/* Gives the calling thread the locale "C"; returns the thread's locale before. Other threads keep
 * theirs. */
locale_t wd_locale_c(void);

/* Gives the thread its locale before. */
void wd_locale_restore(const locale_t *before);

/* Stands first in every public function that reads or writes numbers: the thread has the locale "C"
 * until the function returns. */
#define WD_C_LOCALE                                                                                \
    __attribute__((cleanup(wd_locale_restore), unused)) const locale_t wd_locale_before =          \
        wd_locale_c()

#endif
