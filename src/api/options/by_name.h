/* Options by name: what wd_options_new makes, for programs that do not know the structs. */
#ifndef WD_API_OPTIONS_BY_NAME_H
#define WD_API_OPTIONS_BY_NAME_H

#include "wandistiller.h"

struct wd_options {
    wd_job job;
    void *fields;           /* the job's options struct */
    wd_option_source given; /* what wd_options_set has set, but for files */
    wd_config *config;      /* NULL: no file was given */
    char **text;            /* [texts] copies that fields borrow */
    size_t texts;
};

/* Gives a list (WD_OPTION_TEXTS) no texts, in place of those of earlier sources. */
void wd__option_give_none(wd_option_source *source, void *options, const wd_option *option);

#endif
