/* How well a student agrees with the teacher before its first step: measured where a run starts
 * from another model than the teacher (--init_student), beside what a copy of the teacher's blocks
 * would have. */
#ifndef WD_TRAIN_LOOP_START_AGREEMENT_H
#define WD_TRAIN_LOOP_START_AGREEMENT_H

#include "train/loop/stepper.h"

typedef struct wd_start_agreement {
    int64_t samples; /* 0: not measured */
    double cosine;   /* of outputs and targets, mean over the samples */
    double error;    /* norm of their differences over the targets' norm, all samples together */
} wd_start_agreement;

/* Measures it on the samples of the run's first micro-batch, whose targets the first step needs
 * anyway, with the student's weights as they are. It runs a forward and a backward pass in the
 * memory of training, and leaves no trace: gradients are zeroed when the first step begins. All
 * ranks call it, of which the first measures; no step has been made. */
wd_status wd__start_agreement_measure(wd_start_agreement *out, wd_stepper *stepper, wd_err *err);

/* Logs both: `own` of the run's start, and `copied` of a copy of the teacher's blocks.
 * `no_teacher`: there is none to copy, since its targets are stored. */
void wd__start_agreement_say(const wd_start_agreement *own, const wd_start_agreement *copied,
                             bool no_teacher);

#endif
