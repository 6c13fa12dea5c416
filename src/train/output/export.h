/* Folder train/output. What is written: checkpoints, the student in all its forms, its card.
 *
 * The student as a complete diffusers pipeline folder.
 *
 * <output>/
 *     transformer/   the student: config.json, safetensors (sharded above 5 GB, with an index)
 *     scheduler/     the teacher's, with the training's flow shift; of chords: UniPC of order 1,
 *                    which makes Euler's steps (model/sampling/schedule.h)
 *     vae/ text_encoder/ tokenizer/   the teacher's files (train/output/components.h)
 *     README.md      a model card: how to sample, what it was made of
 *     model_index.json   WanPipeline, one transformer, no boundary_ratio; how to sample, for
 *                    programs (model/files/pipeline_card.h)
 *
 * Each of these is prepared in <output>/.tmp-student, then renamed into its place, changing places
 * with an older one; model_index.json comes last. So there is never half a component, and what else
 * lies in the folder (a run's checkpoints, metrics, samples) stays; only comfyui/ and gguf/ of an
 * older student go (train/output/comfyui.h). */
#ifndef WD_TRAIN_OUTPUT_EXPORT_H
#define WD_TRAIN_OUTPUT_EXPORT_H

#include "model/files/pipeline.h"
#include "train/output/export_options.h"

/* Writes into `output` (made if missing). Waits for the queue. `params` that ranks
 * share: the buffer was collected (wd_params_collect) before. Refused: the teacher's own folder,
 * and one whose transformer was not written by this function. */
wd_status wd_export_student(const char *output, const wd_params *params, const wd_pipeline *teacher,
                            const wd_export_options *options, wd_queue *queue, wd_err *err);

/* Checks before a run starts: refuses an `output` that is the teacher's folder, or has a
 * transformer that is no student of this program, and a teacher of which a part is missing or
 * damaged that the student's folder gets. */
wd_status wd_export_check(const char *output, const wd_pipeline *teacher, wd_err *err);

/* *bytes = the size of the files of weights that a student of this configuration is written to. */
wd_status wd_export_weights_size(uint64_t *bytes, const wd_dit_config *config,
                                 const wd_export_options *options, wd_err *err);

/* The student's other files, without those of wd_components_take, are no longer than this. */
enum { WD_EXPORT_REST_BYTES = 1 << 20 };

/* Whether the pipeline in `folder` is a student that wd_export_student wrote: it is sampled with
 * guidance 1. Fails only for want of memory. */
wd_status wd_export_is_student(bool *out, const char *folder, wd_err *err);

/* Warns where such a student, called `name`, is to be guided all the same. */
void wd_export_warn_of_guidance(const char *name, double guidance_scale);

/* ---- the card: card.c ---- */

/* Writes <folder>/README.md. */
wd_status wd__student_write_card(const char *folder, const wd_params *params,
                                 const wd_export_options *options, wd_err *err);

#endif
