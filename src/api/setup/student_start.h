/* The student's sizes, and what it starts from: the teacher's blocks, or the model that
 * --init_student names. */
#ifndef WD_API_SETUP_STUDENT_START_H
#define WD_API_SETUP_STUDENT_START_H

#include "api/setup/train_setup.h"

/* Reads options.student_config into setup->student, and opens the model that options.init_student
 * names as setup->first: a folder, a Hub id, or a file with a transformer. If `plans`, the name of
 * a preset is one, too. Only its transformer is needed. WD_MISMATCH: the student would not fit the
 * teacher's latents or text; the error names all that differs. The teacher is open. */
wd_status wd__student_open(wd_train_setup *setup, bool plans, wd_err *err);

#endif
