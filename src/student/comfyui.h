/* A student for ComfyUI: one file, and a workflow that draws with it.
 *
 * In a run's folder there may be comfyui/ (a safetensors file in bfloat16) and gguf/ (a GGUF file
 * in Q8_0), each with its workflow, student.json. */
#ifndef WD_STUDENT_COMFYUI_H
#define WD_STUDENT_COMFYUI_H

#include "student/export_options.h"
#include "wan/pipeline.h"

/* How a student that was written earlier is sampled, by its scheduler and its card. */
wd_export_options wd_student_sampling(const wd_pipeline *student);

/* Writes the workflow `path` for the transformer in `file`, safetensors or GGUF. `options`: those
 * of the student's export. */
wd_status wd_student_write_workflow(const char *path, const char *file, bool is_gguf,
                                    const wd_pipeline *student, const wd_export_options *options,
                                    wd_err *err);

/* Writes <folder>/comfyui/student.safetensors and student.json, from the student's pipeline folder
 * `folder`, in place of what was there. `options`: those of the student's export. */
wd_status wd_student_for_comfyui(const char *folder, const wd_export_options *options, wd_err *err);

#endif
