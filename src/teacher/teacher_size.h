/* The size of a teacher, stage by stage: what placements are made from. Pure: tensor table and
 * dtypes are enough, so that a published model is planned without its files. */
#ifndef WD_TEACHER_TEACHER_SIZE_H
#define WD_TEACHER_TEACHER_SIZE_H

#include "core/error.h"
#include "io/safetensors.h"
#include "teacher/placement.h"
#include "wan/dit_table.h"

/* Where an expert's dtypes on disk are read from: the headers of its files, or for all tensors but
 * fp32 islands `dtype`, where weights is NULL. */
typedef struct wd_teacher_files {
    const wd_safetensors *weights;
    wd_dtype dtype;
} wd_teacher_files;

/* `files`: one for each expert; `storage`: the dtype the teacher is kept in. FLOPs are left 0. */
wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err);

#endif
