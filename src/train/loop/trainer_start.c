/* The student at the start of a run: its first weights, whether they are finite, and how well they
 * agree with the teacher. */
#include "train/loop/start_agreement.h"
#include "train/loop/trainer_impl.h"
#include "train/network/init.h"

/* A student that is not finite at the start never will be. */
static wd_status check_finite(const wd_trainer *t, wd_err *err)
{
    const wd_stepper *m = t->stepper;
    const wd_pipeline *first = wd__stepper_first(wd__stepper_options_of(m));
    if (wd_optimizer_buffer_is_finite(wd_network_optimizer(wd__stepper_student(m)), WD_PARAMS_P,
                                      wd__stepper_queue(m)))
        return WD_OK;
    if (t->options->resume)
        return wd_fail(err, WD_NOT_FINITE, "%s: its weights are not finite: resume another one",
                       t->options->resume);
    return wd_fail(err, WD_NOT_FINITE,
                   "%s/%s: its weights, which the student starts from, are not finite: the "
                   "model is damaged",
                   first->path, wd_component_name(wd_student_expert(first)));
}

/* What copies weights into the student: a rank that is asked to stop meanwhile tells the others
 * before the first step. */
static wd_status note_left_off(wd_trainer *t, wd_status status, const wd_err *why, wd_err *err)
{
    t->left_off = status == WD_INTERRUPTED;
    if (status == WD_OK || t->left_off) return WD_OK;
    if (err) *err = *why;
    return status;
}

static wd_status begin_student(wd_trainer *t, wd_err *err)
{
    wd_err why = {0};
    if (t->stop) return WD_OK; /* all ranks have agreed on it */
    return note_left_off(t, wd_stepper_begin(t->stepper, &why), &why, err);
}

/* All ranks: measures the student as it is, unless one of them is to stop. */
static wd_status measure_start(wd_start_agreement *out, wd_trainer *t, wd_err *err)
{
    wd__trainer_agree(t);
    return t->stop ? WD_OK : wd__start_agreement_measure(out, t->stepper, err);
}

/* Measures what a copy of the teacher's blocks would have, where the teacher is there, and its copy
 * can have the student's sizes: in the student's own weights, which then become those of the run's
 * start. */
static wd_status measure_copied(wd_start_agreement *out, wd_trainer *t, wd_err *err)
{
    const wd_stepper_options *o = &t->options->stepper;
    wd_err why = {0};
    if (o->stored || wd_student_config_check(&o->student, &o->teacher->dit, NULL) != WD_OK)
        return WD_OK;
    const wd_status copied =
        wd_student_init(wd__stepper_params(t->stepper), o->teacher, wd_student_expert(o->teacher),
                        wd__stepper_queue(t->stepper), &why);
    WD_TRY(note_left_off(t, copied, &why, err));
    return measure_start(out, t, err);
}

/* The student gets its first weights, and its agreement with the teacher is logged. */
static wd_status begin_new(wd_trainer *t, wd_err *err)
{
    const wd_trainer_options *o = t->options;
    const bool measures = o->stepper.first; /* a copy of the teacher's blocks is the usual start */
    wd_start_agreement own = {0}, copied = {0};
    wd__trainer_watch_other(t);
    if (measures) WD_TRY(measure_copied(&copied, t, err));
    wd_student_say_blocks(&o->stepper.student, wd__stepper_first(&o->stepper), o->stepper.blocks);
    WD_TRY(begin_student(t, err));
    WD_TRY(check_finite(t, err));
    if (measures) WD_TRY(measure_start(&own, t, err));
    if (own.samples && wd__trainer_writes(t))
        wd__start_agreement_say(&own, &copied, o->stepper.stored);
    return WD_OK;
}

wd_status wd__trainer_start(wd_trainer *t, wd_err *err)
{
    return t->options->resume ? check_finite(t, err) : begin_new(t, err);
}
