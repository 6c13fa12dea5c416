/* How texts begin and end. */
#ifndef WD_CORE_TEXT_H
#define WD_CORE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool wd_begins_with(const char *text, const char *begin)
{
    return !strncmp(text, begin, strlen(begin));
}

static inline bool wd_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

#endif
