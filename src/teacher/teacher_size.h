/* The size of a teacher, stage by stage, from which placements are made. Pure: the tensor table and
 * dtypes are enough, so that a published model is planned without its files. */
#ifndef WD_TEACHER_TEACHER_SIZE_H
#define WD_TEACHER_TEACHER_SIZE_H

#include "core/error.h"
#include "io/safetensors.h"
#include "teacher/placement.h"
#include "wan/overlay.h"
#include "wan/dit_table.h"

/* The dtypes of an expert's tensors on disk: those in the headers of its files, or where `weights`
 * is NULL, `dtype` for all tensors but those that are always fp32. */
typedef struct wd_teacher_files {
    const wd_safetensors *weights;
    wd_dtype dtype;
    wd_dtype quantised; /* where `weights` is NULL: that of matrices of blocks, with a scale for
                         * each row (wan/overlay.h); WD_F32: they have `dtype`, too */
} wd_teacher_files;

/* `files` [experts]; `storage`: the dtype that the teacher is kept in. FLOPs stay 0. */
wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err);

#endif
