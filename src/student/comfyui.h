/* A student for ComfyUI: one file in bfloat16, and a workflow that draws with it. */
#ifndef WD_STUDENT_COMFYUI_H
#define WD_STUDENT_COMFYUI_H

#include "student/export_options.h"

/* Writes <folder>/comfyui/student.safetensors and student.json, from the student's pipeline folder
 * `folder`, in place of what was there. `options`: those of the student's export. */
wd_status wd_student_for_comfyui(const char *folder, const wd_export_options *options, wd_err *err);

#endif
