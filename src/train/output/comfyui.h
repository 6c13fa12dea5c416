/* A student for ComfyUI: one file, and a workflow that draws with it.
 *
 * In a run's folder there may be comfyui/ (a safetensors file in bfloat16) and gguf/ (a GGUF file
 * in Q8_0), each with its workflow, student.json. */
#ifndef WD_TRAIN_OUTPUT_COMFYUI_H
#define WD_TRAIN_OUTPUT_COMFYUI_H

#include <stdbool.h>

#include "model/files/pipeline.h"
#include "train/output/export_options.h"

/* How a student that was written earlier is sampled, by its scheduler and its card. */
wd_export_options wd_student_sampling(const wd_pipeline *student);

/* Writes the workflow `path` for the transformer in `file`, safetensors or GGUF. `options`: those
 * of the student's export. */
wd_status wd_student_write_workflow(const char *path, const char *file, bool is_gguf,
                                    const wd_pipeline *student, const wd_export_options *options,
                                    wd_err *err);

/* The forms that a run writes besides the student's pipeline folder. */
#define WD_STUDENT_FORM_MAP(X)                                                                     \
    X(COMFYUI, "comfyui", "student.safetensors", BF16)                                             \
    X(GGUF, "gguf", "student-Q8_0.gguf", Q8_0)

typedef enum wd_student_form {
#define X(name, folder, file, dtype) WD_STUDENT_##name,
    WD_STUDENT_FORM_MAP(X)
#undef X
        WD_STUDENT_FORMS
} wd_student_form;

/* Reads "comfyui", "gguf" or both with a comma between them; *forms: has[form] says which. NULL:
 * none. Anything else is WD_INVALID_ARGUMENT. */
typedef struct wd_student_forms {
    bool has[WD_STUDENT_FORMS];
} wd_student_forms;
wd_status wd_student_forms_parse(wd_student_forms *out, const char *text, wd_err *err);

/* Checks before a run starts that they have a place in `folder`: where there is a link or a file
 * called comfyui or gguf, that is WD_INVALID_ARGUMENT, since nothing is written to where it leads.
 */
wd_status wd_student_check_forms(const char *folder, const wd_student_forms *forms, wd_err *err);

/* Writes the forms, from the student's pipeline folder `folder`, into <folder>/comfyui and so on,
 * in place of what was there. `options`: those of the student's export. */
wd_status wd_student_write_forms(const char *folder, const wd_student_forms *forms,
                                 const wd_export_options *options, wd_err *err);

/* *bytes = at most what the forms of a student of this configuration take. */
wd_status wd_student_forms_size(uint64_t *bytes, const wd_student_forms *forms,
                                const wd_dit_config *student, wd_err *err);

/* Removes the forms of an earlier student from its folder, before a newer one comes there: else
 * they would lie beside a student that they are not of. What else is in comfyui/ or gguf/ stays. */
wd_status wd__student_remove_forms(const char *folder, wd_err *err);

#endif
