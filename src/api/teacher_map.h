/* --teacher_device_map of a run: where the teacher's parts go. */
#ifndef WD_API_TEACHER_MAP_H
#define WD_API_TEACHER_MAP_H

#include "api/train_setup.h"
#include "distill/devices.h"
#include "teacher/placement.h"

typedef struct wd_teacher_map {
    bool given;
    wd_placement placement; /* of the experts, if given */
    int text_encoder, vae;  /* devices; without a map the processor */
} wd_teacher_map;

wd_status wd_teacher_map_open(wd_teacher_map *out, const wd_train_setup *setup,
                              const wd_devices *devices, wd_err *err);

#endif
