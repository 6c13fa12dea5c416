/* The size of a teacher, stage by stage, from which placements are made. Pure: the tensor table and
 * dtypes are enough, so that a published model is planned without its files. */
#ifndef WD_TEACHER_TEACHER_SIZE_H
#define WD_TEACHER_TEACHER_SIZE_H

#include "core/error.h"
#include "teacher/placement.h"
#include "teacher/stage_layout.h"

/* `files` [experts]; `storage`: the dtype that the teacher is kept in. FLOPs stay 0. */
wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err);

#endif
