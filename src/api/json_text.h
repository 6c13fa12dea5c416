/* JSON as a text of ours. */
#ifndef WD_API_JSON_TEXT_H
#define WD_API_JSON_TEXT_H

#include "io/json.h"

/* Indented, with a line end behind it; *out is the caller's to wd_free. */
wd_status wd_json_text_of(char **out, const json_t *json, wd_err *err);

#endif
