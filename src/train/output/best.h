/* What a validation found, and the student of the step at which it found the least error: a
 * pipeline folder of its own, <output>/best/, which sample, eval, convert and diffusers take as
 * they take the output folder. Beside the student it has validation.json, which says which step it
 * is of. */
#ifndef WD_TRAIN_OUTPUT_BEST_H
#define WD_TRAIN_OUTPUT_BEST_H

#include "train/output/export.h"

enum { WD_RESULT_LEVELS_MAX = 64, WD_RESULT_KEY_MAX = 17 };

/* The errors of a student at a step. They are relative: the norm of what its velocities, or chords,
 * differ by from their targets, over the norm of the targets. */
typedef struct wd_validation_result {
    int64_t step;
    char states[WD_RESULT_KEY_MAX]; /* says which states: errors on others cannot be compared */
    double error; /* mean of those of all noise levels; not finite where the student is not */
    int64_t levels;
    double sigma[WD_RESULT_LEVELS_MAX], by_level[WD_RESULT_LEVELS_MAX]; /* [levels] */
} wd_validation_result;

#define WD_BEST_FOLDER "best"

/* Checks before a run starts that `output` has no best/ that is not one of this program, which
 * would be replaced. */
wd_status wd_best_check(const char *output, wd_err *err);

/* Reads the result of the student in <output>/best, without its levels. WD_NOT_FOUND: there is
 * none. */
wd_status wd_best_read(wd_validation_result *out, const char *output, wd_err *err);

/* Writes the student, as wd_export_student does, and the result; then changes it for the earlier
 * one, so that best/ is always a whole one. Waits for the queue. */
wd_status wd_best_write(const char *output, const wd_params *params, const wd_pipeline *teacher,
                        const wd_export_options *options, const wd_validation_result *result,
                        wd_queue *queue, wd_err *err);

#endif
