/* The --teacher_device_map: see api/plan/teacher_map.h. */
#include "api/plan/teacher_map.h"

#include <stdio.h>
#include <string.h>

#include "api/plan/train_cluster.h"
#include "core/memory.h"
#include "io/json/json.h"
#include "api/setup/device_map.h"

/* The devices that a map may name: those of all ranks, numbered in one sequence. The processor has
 * a number only if there is no other device; otherwise "cpu" means host memory. */
typedef struct named {
    char text[WD_CLUSTER_DEVICES_MAX][16];
    const char *name[WD_CLUSTER_DEVICES_MAX];
    int count, own; /* devices of all ranks, devices of each rank */
} named;

static void name_devices(named *out, const wd_devices *devices, int ranks)
{
    out->own = devices->count > 1 ? devices->count - 1 : 1;
    out->count = ranks * out->own;
    for (int i = 0; i < out->count; i++) {
        const char *name = devices->name[i % out->own];
        const int kind = (int)strcspn(name, ":");
        if (ranks == 1)
            snprintf(out->text[i], sizeof out->text[i], "%s", name);
        else
            snprintf(out->text[i], sizeof out->text[i], "%.*s:%d", kind, name, i);
        out->name[i] = out->text[i];
    }
}

/* Replaces the numbers of the map by those of placements. */
static void renumber(wd_placement *p, const named *devices, int per_rank)
{
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            int *device = &p->place[e][s].device;
            *device = *device / devices->own * per_rank + *device % devices->own;
        }
}

/* The device of text encoder or VAE. With "cpu" and with "disk" the processor reads them from the
 * mapped files. Every rank has its own. */
static int device_of(wd_stage_placement place, const wd_devices *devices, const named *names)
{
    return place.home == WD_HOME_DEVICE ? place.device % names->own : devices->processor;
}

static wd_status read_map(wd_teacher_map *out, const char *path, const wd_train_setup *setup,
                          const wd_devices *devices, const named *names, wd_err *err)
{
    wd_device_map map;
    json_t *json;
    const wd_map_devices values = {names->name, names->count, 0};
    WD_TRY(wd_json_load(&json, path, err));
    const wd_status status =
        wd_device_map_read(&map, json, path, wd_teacher_experts(&setup->teacher),
                           wd_dit_stages(&setup->teacher.dit), &values, err);
    json_decref(json);
    if (status != WD_OK) return status;
    renumber(&map.placement, names, devices->count);
    *out = (wd_teacher_map){.given = true,
                            .placement = map.placement,
                            .text_encoder = device_of(map.text_encoder, devices, names),
                            .vae = device_of(map.vae, devices, names)};
    return WD_OK;
}

wd_teacher_map wd__teacher_map_none(int text_encoder)
{
    return (wd_teacher_map){.text_encoder = text_encoder, .usual_text_encoder = text_encoder};
}

wd_status wd_teacher_map_open(wd_teacher_map *out, const wd_train_setup *setup,
                              const wd_devices *devices, wd_err *err)
{
    named *names;
    const char *path = setup->options.teacher_device_map;
    const int ranks = wd_train_ranks(setup);
    *out = wd__teacher_map_none(devices->processor);
    if (!path) return WD_OK;
    if (ranks * devices->count > WD_CLUSTER_DEVICES_MAX)
        return wd_fail(err, WD_UNSUPPORTED, "%s: %d ranks have too many devices for a map", path,
                       ranks);
    WD_TRY(wd_alloc((void **)&names, 1, sizeof *names, "names of devices", err));
    name_devices(names, devices, ranks);
    const wd_status status = read_map(out, path, setup, devices, names, err);
    wd_free(names);
    return status;
}
