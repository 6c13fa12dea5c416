/* A text that grows line by line. The builder remembers its first failure, so that the caller
 * checks only wd_text_builder_take. */
#ifndef WD_CORE_TEXT_BUILDER_H
#define WD_CORE_TEXT_BUILDER_H

#include "core/error.h"

typedef struct wd_text_builder {
    char *text; /* the caller frees it with wd_free, also after a failure */
    size_t used, size;
    wd_status status;
    wd_err *err;
} wd_text_builder;

__attribute__((format(printf, 2, 3))) void wd_text_builder_say(wd_text_builder *builder,
                                                               const char *format, ...);

/* Moves the text to *out, made safe for terminals (core/terminal_safe.h). The caller frees *out
 * with wd_free. On failure it returns the builder's first error, and there is nothing to free. */
wd_status wd_text_builder_take(char **out, wd_text_builder *builder);

#endif
