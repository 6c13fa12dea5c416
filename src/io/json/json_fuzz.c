/* Fuzz target: any bytes as JSON, and every getter on every key of what parses. */
#include "fuzzing.h"

#include "io/json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_t *json, *value;
    const char *key, *text;
    wd_err err;
    if (wd_json_parse(&json, (const char *)data, bytes, "input", &err) != WD_OK) return 0;
    const wd_json_reader r = {json, "input"};
    json_object_foreach(json, key, value)
    {
        int64_t integer = 0, integers[4], count = 0;
        double real, reals[4];
        bool flag;
        wd_json_int(&integer, r, key, -10, 10, WD_JSON_OPTIONAL, &err);
        if (integer < -10 || integer > 10) abort();
        wd_json_float(&real, r, key, WD_JSON_REQUIRED, &err);
        wd_json_bool(&flag, r, key, WD_JSON_REQUIRED, &err);
        wd_json_text(&text, r, key, WD_JSON_REQUIRED, &err);
        wd_json_ints(integers, &count, 4, r, key, WD_JSON_REQUIRED, &err);
        wd_json_floats(reals, &count, 4, r, key, WD_JSON_REQUIRED, &err);
        if (count > 4) abort();
    }
    json_decref(json);
    return 0;
}
