/* Messages for the user of the library: see wd_log_to in wandistiller.h. */
#ifndef WD_CORE_LOG_H
#define WD_CORE_LOG_H

#include "wandistiller.h"

void wd_log(wd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
