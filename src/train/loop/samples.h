/* Sample sheets: the same prompts and the same noise through teacher and student, side by side. */
#ifndef WD_TRAIN_LOOP_SAMPLES_H
#define WD_TRAIN_LOOP_SAMPLES_H

#include "train/loop/stepper.h"

typedef struct wd_samples_options {
    const char *folder;        /* where step-00000200.png go */
    const char *const *prompt; /* [count] as the sheet shows them */
    int64_t count;
    int64_t text_first; /* their embeddings: the stepper's text from this prompt on */
    int64_t steps;      /* of the sampler; a student of few steps has its own number */
    double student_flow_shift;
    uint64_t seed;
    wd_queue *decoder; /* where pictures are decoded; NULL: the stepper's */
    /* Asked before each step of a sampler, and before decoding: whether to give the sheet up. NULL:
     * never. `together`: all ranks ask, and must hear the same. */
    bool (*stop)(void *context, bool together);
    void *stop_context;
} wd_samples_options;

typedef struct wd_samples wd_samples;

/* `stepper` is borrowed. Nothing is computed yet. */
wd_status wd__samples_open(wd_samples **out, const wd_samples_options *options, wd_stepper *stepper,
                           wd_err *err);
void wd__samples_close(wd_samples *samples); /* NULL is allowed */

/* The FLOPs of a sheet. */
typedef struct wd_samples_work {
    double student;  /* the student's passes */
    double decoding; /* decoding all pictures of one model */
} wd_samples_work;

/* The FLOPs of the sheet that was drawn last; on a dry device, too. */
wd_samples_work wd__samples_last_work(const wd_samples *samples);

/* Draws the student's pictures with its EMA weights (if it has any) and writes the sheet of `step`;
 * the teacher's are drawn the first time. A sheet that is given up is not written. The weights
 * shown are those of training again when it returns. A sheet that cannot be written is a warning,
 * once. With a stepper on a dry device nothing is written. All ranks; rank 0 writes. */
wd_status wd__samples_write(wd_samples *samples, int64_t step, wd_err *err);

/* Writes the path of the sheet that was written last into `out`; false: the last one was given up,
 * or could not be written. Rank 0. */
bool wd__samples_last_sheet(char out[WD_PATH_MAX], const wd_samples *samples);

#endif
