/* Folder train/loop. The course of a run: steps, recipes and phases, memory, sample sheets and
 * metrics.
 *
 * The training loop: steps, metrics, checkpoints, samples, and an orderly end of the run, also
 * where it is stopped or fails. */
#ifndef WD_TRAIN_LOOP_TRAINER_H
#define WD_TRAIN_LOOP_TRAINER_H
#include "job/watch/watch.h"
#include "train/loop/devices.h"
#include "train/loop/samples.h"
#include "train/loop/stepper.h"
#include "train/output/export.h"

typedef struct wd_trainer_options {
    wd_stepper_options stepper;
    const char *output_dir; /* the student's pipeline folder; run files lie in it, too */
    /* Called by the rank that writes, each time before it writes into the output folder, and first
     * after the run's first step: makes the folder ready. out: its path, which is another one after
     * the folder was moved. NULL: output_dir is ready, and is not moved. */
    wd_status (*ready_output)(char out[WD_PATH_MAX], void *context, wd_err *err);
    /* Called by the rank that writes, after each step; `wrote`: a checkpoint or a sheet was written
     * after it. NULL: nobody is. */
    void (*follow)(void *context, bool wrote);
    /* Asked once per step, of the rank that writes: what was requested of the run since
     * (wd_request, or-ed). All ranks obey. NULL: nothing is. */
    unsigned (*requests)(void *context);
    void *output_context;      /* of all three */
    const wd_devices *devices; /* whose memory the metrics say; NULL: of none */
    int64_t steps;             /* 0: until the time is over */
    double seconds_max;        /* of training, earlier parts of a resumed run included; 0: none */
    int64_t stop_at_step;      /* ends there as if interrupted; 0: no */
    wd_lr_schedule lr;
    int64_t checkpoint_interval; /* steps; 0: none by steps */
    double checkpoint_s;         /* seconds of training; 0: none by time. One is written at the end
                                  * in any case */
    int keep_checkpoints;
    int64_t sample_interval;     /* steps; 0: only at the end */
    wd_samples_options samples;  /* count 0: none at all */
    int64_t validation_interval; /* steps between validations, of stepper.validation; 0: one at the
                                  * end alone */
    wd_export_options export;
    const char *resume;           /* a checkpoint's folder; NULL: a new run */
    const char *teacher_key;      /* says which weights the teacher has */
    const char *text_encoder_key; /* says which weights its text encoder has */
    const char *prompts_key;      /* says which prompts there are, in which order */
    const char *negative_prompt;
    const char *kernels;         /* what decides the bits of the device that the student trains on
                                  * (wd_traits); NULL: wd_device_kernels, the processor's */
    const char *text_kernels;    /* of the device that encodes the prompts; NULL: a processor, whose
                                  * embeddings are used whichever processor computed them */
    bool (*stop)(void *context); /* asked once per step: end now, cleanly; all ranks do if one's
                                  * says so */
    void *stop_context;
    wd_watch *watch;   /* is informed of every step; NULL: none */
    double step_s_max; /* the watch ends a job whose step takes longer */
    double first_s;    /* the first step of a phase may take so much longer: it makes the targets of
                        * the first samples */
} wd_trainer_options;

/* How a run ended, and what it did. */
typedef struct wd_trainer_result {
    int64_t steps, targets;
    double loss;    /* mean of the last hundred steps since it was resumed; NaN: there were none */
    double seconds; /* of training */
    int64_t saved_step; /* of the newest checkpoint, where the last ones found no space; else that
                         * of the last step; -1: there is none */
    bool interrupted;
    bool untouched;           /* interrupted before its first step: it has written nothing */
    char folder[WD_PATH_MAX]; /* where the output folder is now */
    wd_export_options export; /* with which the student is written, as its last phase asks */
} wd_trainer_result;

/* *out = what decides the samples, targets, student and arithmetic of a run, beside its stream of
 * samples: names and values, or names and objects of such; the caller's to json_decref. */
wd_status wd_trainer_facts(json_t **out, const wd_trainer_options *options, wd_err *err);

/* Writes what encoded the prompts of the run that wrote a checkpoint (its text_kernels) into `out`;
 * "": a processor, or an older checkpoint does not say. */
wd_status wd_trainer_resumed_text(char out[WD_KERNELS_TEXT], const char *checkpoint, wd_err *err);

/* What a run that is resumed must have in common with the one that options->resume is of, before
 * anything is opened: WD_MISMATCH where its samples, targets, student or arithmetic would be
 * others, a prompt is now longer than any was, or all are cut and padded to another length. What is
 * free to change, and why, says trainer_saved.c; what an older checkpoint does not say is not
 * compared. Takes the rows of text that it was begun with into options->stepper, for more or fewer
 * would give other bits, and its interval between validations, where options have none. */
wd_status wd_trainer_resume_options(wd_trainer_options *options, wd_err *err);

/* Trains on `queue` (borrowed) with the teacher where `teacher` says (borrowed). Whatever
 * ends it but an error, a checkpoint and the student's folder are written, unless it is interrupted
 * before it has taken a step: then nothing is written, and what an earlier run left stays. A step
 * that is not finite changes no weight; many in a row end the run with WD_NOT_FINITE, and so does
 * one at its end, or a teacher or a student that is not finite: then no checkpoint is written, and
 * the student's folder stays as it was. Metrics and sheets that cannot be written are a warning,
 * and so is a checkpoint for which there is no space: the next one is written when it is due. All
 * ranks: they stop after the same step, and rank 0 writes. */
wd_status wd_trainer_run(wd_trainer_result *out, const wd_trainer_options *options,
                         const wd_stepper_teacher *teacher, wd_queue *queue, wd_err *err);

#endif
