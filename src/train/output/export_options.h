/* Options of an exported student: what its folder and its card say, how its weights are written. */
#ifndef WD_TRAIN_OUTPUT_EXPORT_OPTIONS_H
#define WD_TRAIN_OUTPUT_EXPORT_OPTIONS_H

#include "train/network/params.h"
#include "train/output/components.h"

typedef struct wd_export_options {
    wd_dtype dtype;          /* of the transformer: F32, F16 or BF16; islands stay F32 */
    wd_params_buffer buffer; /* WD_PARAMS_EMA or WD_PARAMS_P */
    wd_export_components components;
    uint64_t shard_bytes_max;
    double flow_shift;     /* of the scheduler */
    int64_t student_steps; /* > 0: it learnt chords (train/targets/chord.h), and the scheduler makes
                            * Euler's steps, of which sampling_steps is the number */
    int64_t sampling_steps; /* from here on for the card and the entry in model_index.json */
    int64_t height, width;  /* pixels */
    int64_t text_tokens;
    double guidance_scale[2]; /* folded in: [0] of the only or the high-noise expert */
    int64_t trained_steps;
    int64_t best_step; /* of the student with the least validation error so far, which is in best/;
                        * 0: none is kept */
    double best_error; /* its error */
    const char *teacher_name;      /* as the user gave it */
    const char *text_encoder_file; /* from which the teacher's was read, for the workflow; NULL: a
                                    * folder, or a file without a tokenizer */
    const char *prompt; /* of the example in card and workflow. The folder is published, so it is
                         * none of the training prompts */
} wd_export_options;

/* F32, EMA, LINK, 5 GB, shift 3, 20 steps, 512x512, 512 tokens, guidance 5. */
wd_export_options wd_export_defaults(void);

#endif
