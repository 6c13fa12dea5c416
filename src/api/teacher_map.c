/* See api/teacher_map.h. */
#include "api/teacher_map.h"

#include "io/json.h"
#include "teacher/device_map.h"

/* Text encoder and VAE are mapped, in host memory and on disk alike: the processor reads them
 * there. */
static int device_of(wd_place place, const wd_devices *devices)
{
    return place.home == WD_HOME_DEVICE ? place.device : devices->processor;
}

wd_status wd_teacher_map_open(wd_teacher_map *out, const wd_train_setup *setup,
                              const wd_devices *devices, wd_err *err)
{
    const char *name[WD_PLACED_DEVICES_MAX], *path = setup->options.teacher_device_map;
    wd_map_devices values = {name, 0, 0};
    wd_device_map map;
    json_t *json;
    *out = (wd_teacher_map){.text_encoder = devices->processor, .vae = devices->processor};
    if (!path) return WD_OK;
    for (int i = 0; i < devices->count; i++) /* "cpu" is host memory */
        if (i != devices->processor || devices->count == 1) name[values.count++] = devices->name[i];
    WD_TRY(wd_json_load(&json, path, err));
    const wd_status status =
        wd_device_map_read(&map, json, path, wd_teacher_experts(&setup->teacher),
                           wd_dit_stages(&setup->teacher.dit), &values, err);
    json_decref(json);
    if (status != WD_OK) return status;
    *out = (wd_teacher_map){.given = true,
                            .placement = map.placement,
                            .text_encoder = device_of(map.text_encoder, devices),
                            .vae = device_of(map.vae, devices)};
    return WD_OK;
}
