/* Options as JSON: see api/config.c. */
#ifndef WD_API_OPTIONS_JSON_H
#define WD_API_OPTIONS_JSON_H

#include "io/json.h"

/* The options of `train` by name: a new object that --config can read back. What is not given is
 * null. Those that have the same value in `but` are left out; NULL: none is. */
json_t *wd_train_options_json(const wd_train_options *options, const wd_train_options *but);

#endif
