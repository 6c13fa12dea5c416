/* The student as a complete diffusers pipeline folder.
 *
 * <output>/model_index.json      WanPipeline, one transformer, no boundary_ratio
 *         /transformer/          the student: config.json, safetensors (sharded above 5 GB, with index)
 *         /scheduler/            the teacher's, with the training's flow shift
 *         /vae/ text_encoder/ tokenizer/   the teacher's files
 *         /README.md             a model card: how to sample, what it was made of
 *
 * The folder is written beside its place and renamed into it, exchanging it with an older one: at no
 * moment is there half a student. */
#ifndef WD_STUDENT_EXPORT_H
#define WD_STUDENT_EXPORT_H

#include "student/params.h"
#include "wan/pipeline.h"

/* How the teacher's component files get into the folder. COPY makes it independent of the teacher.
 * LINK: hard links, which stay good when the teacher is moved or deleted, and cost no space; files
 * on another file system are copied where they are small (below 64 MiB, all of a component), else linked
 * symbolically by absolute path (and the card says so). */
typedef enum wd_export_components { WD_EXPORT_LINK, WD_EXPORT_COPY } wd_export_components;

typedef struct wd_export_options {
    wd_dtype dtype;               /* of the transformer's file; islands stay F32 */
    wd_params_buffer buffer;      /* WD_PARAMS_EMA or WD_PARAMS_P */
    wd_export_components components;
    uint64_t shard_bytes_max;
    double flow_shift;            /* of the scheduler */
    int64_t sampling_steps;       /* from here on for the card */
    int64_t height, width;        /* pixels */
    int64_t text_tokens;
    double guidance_scale[2];     /* folded in: [0] of the only or the high-noise expert */
    int64_t trained_steps;
    const char *teacher_name;     /* as the user gave it */
    const char *prompt;           /* of the card's example */
} wd_export_options;

/* F32, EMA, LINK, 5 GB, shift 3, 20 steps, 512x512, 512 tokens. */
wd_export_options wd_export_defaults(void);

/* Writes `output` (its parent is made if missing). Waits for the queue. An existing `output` that is
 * not a pipeline folder is refused, not replaced. */
wd_status wd_export_student(const char *output, const wd_params *params,
                            const wd_pipeline *teacher, const wd_export_options *options,
                            wd_queue *queue, wd_err *err);

#endif
