/* The trainer's own fields, and what its files call of one another.
 *
 * trainer.c         the run: its steps, their results, its phases and its end
 * trainer_start.c   the student before the first step
 * trainer_saved.c   what is saved of the run, and whether it may go on from that
 * validation.c      validation in the course of the run, and its best student */
#ifndef WD_TRAIN_LOOP_TRAINER_IMPL_H
#define WD_TRAIN_LOOP_TRAINER_IMPL_H

#include "core/clock.h"
#include "core/progress.h"
#include "train/loop/metrics.h"
#include "train/loop/stepper.h"
#include "train/loop/trainer.h"
#include "train/output/best.h"
#include "train/output/request.h"

enum { WD_TRAINER_LOSSES = 100 }; /* a run's loss is the mean of so many */

/* What each rank sends to all others before a step. */
typedef struct wd_step_vote {
    double elapsed_s;
    int64_t stop;
    int64_t requests; /* of rank 0: what it has heard (wd_request) */
    int64_t says_so;  /* of rank 0: see wd__trainer_hear */
} wd_step_vote;

typedef struct wd_validation wd_validation;

typedef struct wd_trainer {
    const wd_trainer_options *options;
    wd_stepper *stepper;
    wd_metrics *metrics;
    wd_samples *samples;
    char folder[WD_PATH_MAX], checkpoints[WD_PATH_MAX]; /* where the output folder is now */
    int64_t first_step;                                 /* steps that were done when it began */
    int64_t step;                                       /* optimiser steps launched */
    wd_phase_begin phase;                               /* that is under way */
    int64_t losses;        /* that are finite, of this part of the run */
    double seconds_before; /* of earlier parts of the run */
    double begun;          /* clock */
    wd_progress_task progress;
    double elapsed_s;            /* time of training, agreed among all ranks before this step */
    bool stop;                   /* whether the run ends before this step; agreed likewise */
    wd_step_vote *votes;         /* [ranks] */
    double saved_s;              /* elapsed at the last checkpoint */
    int64_t saved_step;          /* of the last checkpoint that this run wrote; -1: it wrote none */
    int64_t first_verified_step; /* checkpoints of this step and later are known to be whole */
    int64_t proven_step; /* of the newest checkpoint that a finite loss followed; -1: of none */
    bool save;           /* the time for one has come, as all ranks have agreed */
    unsigned heard;      /* requests (wd_request) that this rank has taken, and not told yet */
    unsigned requests;   /* what the next step is followed by, as all ranks have agreed */
    bool owed;           /* one was due, and the last step was dropped */
    bool left_off;       /* a stop was requested before the student had its first weights */
    bool ends;           /* the last files of the run are being written */
    bool metrics_warned; /* that they cannot be written */
    double lr[4];        /* of steps whose results are still on their way, by step modulo 4 */
    int not_finite;      /* steps in a row */
    double loss[WD_TRAINER_LOSSES];
    int64_t written_step;              /* of the last row of the metrics */
    wd_validation *validation;         /* NULL: none */
    char states_key[WD_STORE_KEY_MAX]; /* of its states */
    int64_t validated_step;            /* after which the student was validated last; 0: never */
    wd_validation_result validated;    /* of rank 0; step 0: there was none */
    int64_t best_step;                 /* whose student is in best/; 0: none */
    double best_error;                 /* NaN: there is none */
    double rated;                      /* clock: when steps_per_s was last measured */
    int64_t rated_step;                /* and after which step */
    double steps_per_s;                /* 0: not measured yet */
    size_t memory_bytes;               /* of host memory, measured at the same times */
} wd_trainer;

static inline double wd__trainer_elapsed_s(const wd_trainer *t)
{
    return t->seconds_before + wd_clock_s() - t->begun;
}

/* What clocks and signals say, the same on all ranks until the next call. */
void wd__trainer_agree(wd_trainer *t);

/* The watch allows longer for what is no step, from now on. */
void wd__trainer_watch_other(const wd_trainer *t);

/* Gives the student of a new run its first weights, and checks that those of any run are finite.
 * All ranks. */
wd_status wd__trainer_start(wd_trainer *t, wd_err *err);

/* While samples are drawn or the student is validated, for a wd_trainer: see wd_samples_options. */
bool wd__trainer_gives_up(void *context, bool together);

/* Returns the `value` of rank 0 on all ranks, which all call it. */
bool wd__trainer_hear(wd_trainer *trainer, bool value);

/* Whether this rank writes files and lines. */
static inline bool wd__trainer_writes(const wd_trainer *t)
{
    const wd_comm *comm = t->options->stepper.comm;
    return !comm || comm->rank == 0;
}

/* Takes results until `leave` are still on their way: writes their metrics, and ends the run where
 * training has diverged. */
wd_status wd__trainer_take_results(wd_trainer *t, int leave, wd_err *err);

/* ---- validation.c ---- */

/* Opens that of the phase under way, and makes its states; nothing where none is asked for. A stop
 * that is requested meanwhile ends the run before its next step. All ranks. */
wd_status wd__trainer_open_validation(wd_trainer *t, wd_err *err);
void wd__trainer_close_validation(wd_trainer *t);

/* Measures the student after the step that was launched last, unless it was measured there, and
 * keeps it if it is the best one. Its figures are in the row of that step. The output folder is
 * ready. All ranks. */
wd_status wd__trainer_validate(wd_trainer *t, wd_err *err);

/* ---- trainer_saved.c ---- */

/* Writes a checkpoint: all ranks take part, and one of them writes. No checkpoint is written while
 * steps are dropped, because the values that make a step not finite may be among those that would
 * be saved; one is written after the next step that is taken. If there is no space for a
 * checkpoint, it is left out, and the next one is written when it is due; at the end of the run
 * older ones are removed for it first. */
wd_status wd__trainer_write_checkpoint(wd_trainer *t, wd_err *err);

/* Finds the phase in which the run goes on, and then goes on where its checkpoint ends. */
wd_status wd__trainer_find_phase(wd_trainer *t, wd_err *err);
wd_status wd__trainer_resume(wd_trainer *t, wd_err *err);

/* The step of the newest checkpoint that this run wrote or went on from; -1: there is none. */
int64_t wd__trainer_newest_checkpoint(const wd_trainer *t);

/* Whether the checkpoint of the last step is there: this run has written it, or a run that had
 * nothing left to do was resumed from it in its own folder. The same on all ranks. */
bool wd__trainer_is_saved(const wd_trainer *t);

/* Removes the checkpoints that are more than those to keep. */
wd_status wd__trainer_prune(const wd_trainer *t, wd_err *err);

/* How the student of the phase under way is written. */
wd_export_options wd__trainer_export_of(const wd_trainer *t);

/* Writes the student's folder. All ranks take part; one of them writes. If there is no space, at
 * the end of the run older checkpoints are removed for it. */
wd_status wd__trainer_write_student(wd_trainer *t, wd_err *err);

#endif
