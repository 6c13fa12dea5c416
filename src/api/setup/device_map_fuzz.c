/* Fuzz target: any JSON as a device map. What is accepted places every stage somewhere that there
 * is. */
#include "fuzzing.h"

#include "io/json/json.h"
#include "api/setup/device_map.h"

enum { STAGES = 8, DEVICES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[DEVICES] = {"sim:0", "sim:1", "cpu"};
    const wd_map_devices devices = {names, DEVICES, 0};
    json_t *json;
    wd_err err;
    wd_device_map map;
    if (wd_json_parse(&json, (const char *)data, bytes, "input", &err) != WD_OK) return 0;
    for (int experts = 1; experts <= 2; experts++) {
        if (wd_device_map_read(&map, json, "input", experts, STAGES, &devices, &err) != WD_OK)
            continue;
        for (int e = 0; e < experts; e++)
            for (int s = 0; s < STAGES; s++)
                if (map.placement.place[e][s].device < 0 ||
                    map.placement.place[e][s].device >= DEVICES)
                    abort();
    }
    json_decref(json);
    return 0;
}
