/* JSON as text: see api/options/json_text.h. */
#include "api/options/json_text.h"

#include "core/memory.h"

wd_status wd_json_text_of(char **out, const json_t *json, wd_err *err)
{
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(9) | JSON_ENSURE_ASCII;
    const size_t bytes = json_dumpb(json, NULL, 0, flags);
    if (!bytes) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for JSON");
    WD_TRY(wd_alloc((void **)out, bytes + 2, 1, "JSON text", err));
    json_dumpb(json, *out, bytes, flags);
    (*out)[bytes] = '\n';
    return WD_OK;
}
