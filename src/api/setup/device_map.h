/* The device map of `custom`, as users of accelerate and diffusers write it.
 *
 *     {"text_encoder": "cpu", "vae": 0, "transformer": {"blocks.0-19": 0, "": 1}, ...}
 *
 * Keys are components (text_encoder, transformer, transformer_2, vae) and modules in them
 * (patch_embedding, condition_embedder, rope; blocks.N, blocks.N-M, blocks, also layer.N; norm_out,
 * proj_out, scale_shift_table), dotted or nested; "" is everything of its level. A module without
 * component is that of every transformer. Values: "cpu" (host memory, streamed to the first
 * device), "disk" (the files, streamed), a device's index (1 or "1"), or its name. */
#ifndef WD_API_SETUP_DEVICE_MAP_H
#define WD_API_SETUP_DEVICE_MAP_H

#include <jansson.h>

#include "core/error.h"
#include "teacher/plan/placement.h"

typedef struct wd_device_map {
    wd_placement placement;
    wd_stage_placement text_encoder, vae;
} wd_device_map;

/* The devices that values may name: [count] names in order; `streamed`: the one that computes what
 * has its home in host memory or on disk. */
typedef struct wd_map_devices {
    const char *const *name;
    int count, streamed;
} wd_map_devices;

/* `where` names the map in errors. A part that no key covers, one that two cover, an unknown key
 * and an unknown value are WD_INVALID_ARGUMENT, with all of them listed. */
wd_status wd_device_map_read(wd_device_map *out, const json_t *map, const char *where, int experts,
                             int stages, const wd_map_devices *devices, wd_err *err);

#endif
