/* Options as JSON: see api/config.c. */
#ifndef WD_API_OPTIONS_JSON_H
#define WD_API_OPTIONS_JSON_H

#include "io/json.h"

/* All options of a job by name: a new object. What is not given is null. It can be read back with
 * --config. */
json_t *wd_options_json(wd_job job, const void *options);

#endif
