/* JSON as text. */
#ifndef WD_API_OPTIONS_JSON_TEXT_H
#define WD_API_OPTIONS_JSON_TEXT_H

#include "io/json/json.h"

/* Formats JSON with indentation and a final newline. The caller frees *out with wd_free. */
wd_status wd_json_text_of(char **out, const json_t *json, wd_err *err);

#endif
