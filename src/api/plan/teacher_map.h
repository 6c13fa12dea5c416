/* The --teacher_device_map of a run: the placement of the teacher's parts. */
#ifndef WD_API_PLAN_TEACHER_MAP_H
#define WD_API_PLAN_TEACHER_MAP_H

#include "api/setup/train_setup.h"
#include "teacher/plan/placement.h"
#include "train/loop/devices.h"

typedef struct wd_teacher_map {
    bool given;
    wd_placement placement; /* of the experts; only if given */
    int text_encoder, vae;  /* device numbers; without a map wd_encoding_plan chooses the first, and
                             * `vae` is the student's: see wd_train_plan_decoder */
    int usual_text_encoder; /* where it is without a map */
} wd_teacher_map;

/* What there is without a map, where the prompts are encoded on device number `text_encoder`. */
wd_teacher_map wd__teacher_map_none(int text_encoder);

wd_status wd_teacher_map_open(wd_teacher_map *out, const wd_train_setup *setup,
                              const wd_devices *devices, wd_err *err);

#endif
