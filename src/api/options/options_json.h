/* Options as JSON: see api/options/config.c. */
#ifndef WD_API_OPTIONS_OPTIONS_JSON_H
#define WD_API_OPTIONS_OPTIONS_JSON_H

#include "io/json/json.h"
#include "wandistiller.h"

/* Makes an object with the options of `train` by name, which --config can read; the caller owns it.
 * Options that are not given are null. Options with the same value in `but` are left out; but NULL:
 * none are. */
json_t *wd_train_options_json(const wd_train_options *options, const wd_train_options *but);

#endif
