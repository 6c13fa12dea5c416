/* Options as JSON, and JSON as text. What reads a file of options, wd_config_open and its like, is
 * in wandistiller.h. */
#ifndef WD_API_OPTIONS_CONFIG_H
#define WD_API_OPTIONS_CONFIG_H

#include "io/json/json.h"
#include "wandistiller.h"

/* Makes an object with the options of `train` by name, which --config can read; the caller owns it.
 * Options that are not given are null. Options with the same value in `but` are left out; but NULL:
 * none are. */
json_t *wd_train_options_json(const wd_train_options *options, const wd_train_options *but);

/* Formats JSON with indentation and a final newline. The caller frees *out with wd_free. */
wd_status wd_json_text_of(char **out, const json_t *json, wd_err *err);

#endif
