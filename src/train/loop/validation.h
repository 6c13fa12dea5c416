/* Validation: the student's error on states of prompts that it does not train on, measured on the
 * way with the weights that the written student has.
 *
 * Data flow: fixed states (train/targets/validation_states.h), from a file or of the teacher ->
 * passes of the student over batches of them -> differences from the targets, added up by noise
 * level. One rank has the states and computes; the others only help to make them. So the figures
 * are the same for any number of ranks, and nothing that training reads is changed. */
#ifndef WD_TRAIN_LOOP_VALIDATION_H
#define WD_TRAIN_LOOP_VALIDATION_H

#include "train/loop/stepper.h"
#include "train/output/best.h"
#include "train/targets/validation_states.h"

struct wd_validation_options {
    int64_t prompts;    /* 0: none at all */
    int64_t text_first; /* their embeddings: the stepper's text from this prompt on */
    bool keeps_best;
    const char *folder;      /* in which files of states are kept; NULL: nowhere */
    const char *prompts_key; /* says which prompts they are; for a trainer */
    /* Asked between the teacher's sweeps and the student's passes: whether to give up. NULL: never.
     * `together`: all ranks ask, and must hear the same. */
    bool (*stop)(void *context, bool together);
    void *stop_context;
};

typedef struct wd_validation wd_validation;

/* Which states a stepper with these options, whose `validation` is not NULL, is validated on. */
wd_validation_states_options wd_validation_states_options_of(const wd_stepper_options *stepper);

/* Memory for the states of the stepper's phase; `stepper` is borrowed. */
wd_status wd__validation_open(wd_validation **out, const wd_validation_options *options,
                              wd_stepper *stepper, wd_err *err);
void wd__validation_close(wd_validation *validation); /* NULL is allowed */

/* Reads the states from the file at `path`, or, where there is none, has the teacher make them, and
 * writes it. WD_NOT_FOUND: there is neither a file nor a teacher. WD_INTERRUPTED: `stop` said so.
 * `path` NULL: there is no file. All ranks; rank 0 reads and writes. */
wd_status wd__validation_prepare(wd_validation *validation, const char *path, const char *key,
                                 wd_err *err);

/* Measures the student with its EMA weights, if it has any. The weights shown are those of training
 * again when it returns. *measured is false where it was given up, and on other ranks than rank 0,
 * whose *out is not set. All ranks. */
wd_status wd__validation_measure(wd_validation_result *out, bool *measured,
                                 wd_validation *validation, wd_err *err);

/* FLOPs of the last measurement; on a dry device, too. */
double wd__validation_flops(const wd_validation *validation);

/* What a plan says of it. */
const wd_validation_states *wd__validation_states_of(const wd_validation *validation);

#endif
