/* The locale of numbers: see core/locale.h. */
#include "core/locale.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t wd_locale_c(void)
{
    pthread_once(&once, make);
    return uselocale(c_locale);
}

void wd_locale_restore(const locale_t *before)
{
    uselocale(*before);
}
