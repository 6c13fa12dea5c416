/* Fuzz target: any bytes as JSON, and every getter on every key of what parses. */
#include "fuzzing.h"

#include "io/json.h"

#define SEED(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const wd_fuzz_seed seeds[] = {
        SEED("{}"),
        SEED("{\"a\":1,\"b\":-2.5e3,\"c\":[1,2,3],\"d\":null,\"e\":true,\"f\":\"\\u00e9\\n\"}"),
        SEED("{\"big\":1000000000000000019884624838656,\"deep\":[[[[[[[[]]]]]]]]}"),
        SEED("{\"weight_map\":{\"a\":\"x.safetensors\"},\"metadata\":{\"total_size\":4}}"),
    };
    return wd_fuzz_begin(argc, argv, seeds, sizeof seeds / sizeof *seeds);
}

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
