/* The student as a complete diffusers pipeline folder.
 *
 * <output>/
 *     transformer/   the student: config.json, safetensors (sharded above 5 GB, with an index)
 *     scheduler/     the teacher's, with the training's flow shift; of chords: Euler's steps
 *     vae/ text_encoder/ tokenizer/   the teacher's files (student/components.h)
 *     README.md      a model card: how to sample, what it was made of
 *     model_index.json   WanPipeline, one transformer, no boundary_ratio
 *
 * Each of these is prepared in <output>/.tmp-student, then renamed into its place, changing places
 * with an older one; model_index.json comes last. So there is never half a component, and what else
 * lies in the folder (a run's checkpoints, metrics, samples) stays. */
#ifndef WD_STUDENT_EXPORT_H
#define WD_STUDENT_EXPORT_H

#include "student/components.h"
#include "student/params.h"
#include "wan/pipeline.h"

typedef struct wd_export_options {
    wd_dtype dtype;          /* of the transformer: F32, F16 or BF16; islands stay F32 */
    wd_params_buffer buffer; /* WD_PARAMS_EMA or WD_PARAMS_P */
    wd_export_components components;
    uint64_t shard_bytes_max;
    double flow_shift;      /* of the scheduler */
    int64_t student_steps;  /* > 0: it learnt chords (distill/chord.h), and the scheduler makes
                             * Euler's steps, of which sampling_steps is the number */
    int64_t sampling_steps; /* from here on for the card */
    int64_t height, width;  /* pixels */
    int64_t text_tokens;
    double guidance_scale[2]; /* folded in: [0] of the only or the high-noise expert */
    int64_t trained_steps;
    const char *teacher_name; /* as the user gave it */
    const char *prompt;       /* of the card's example */
} wd_export_options;

/* F32, EMA, LINK, 5 GB, shift 3, 20 steps, 512x512, 512 tokens, guidance 5. */
wd_export_options wd_export_defaults(void);

/* Writes into `output` (made if missing). Waits for the queue. `params` that ranks
 * share: the buffer was collected (wd_params_collect) before. Refused: the teacher's own folder,
 * and one whose transformer was not written by this function. */
wd_status wd_export_student(const char *output, const wd_params *params, const wd_pipeline *teacher,
                            const wd_export_options *options, wd_queue *queue, wd_err *err);

/* What a run checks before it starts: refuses an `output` that is the teacher's folder or has a
 * transformer that is not a student of ours, and a teacher of which a part is missing or damaged
 * that the student's folder gets. */
wd_status wd_export_check(const char *output, const wd_pipeline *teacher, wd_err *err);

/* Whether the pipeline in `folder` is a student that wd_export_student wrote: it is sampled with
 * guidance 1. Fails only for want of memory. */
wd_status wd_export_is_student(bool *out, const char *folder, wd_err *err);

/* Warns where such a student, called `name`, is to be guided all the same. */
void wd_export_warn_of_guidance(const char *name, double guidance_scale);

#endif
