/* The largest students that fit a machine, which `plan --largest_student` prints and a refusal of
 * the default student names. */
#ifndef WD_API_PLAN_LARGEST_STUDENT_H
#define WD_API_PLAN_LARGEST_STUDENT_H

#include "api/plan/plan_print.h"

enum { WD_LARGEST_SHAPES = 4, WD_LARGEST_TEXT = 96 };

/* The largest student of one shape, and the fastest way to train it. */
typedef struct wd_largest_student {
    const char *shape; /* "the teacher's width" */
    wd_dit_config dit;
    bool checkpointing;
    int64_t batch, accumulation; /* their product is that of the options */
    wd_state_place place;
    wd_strategy strategy;
    double step_seconds, million_days; /* of a step; of a million samples of all ranks */
    char limit[WD_LARGEST_TEXT];       /* what limits the speed, as in a plan */
    char why[WD_LARGEST_TEXT];         /* what stops the next larger one */
} wd_largest_student;

typedef struct wd_largest_students {
    wd_largest_student student[WD_LARGEST_SHAPES]; /* the one with most weights first */
    int count;
    char lacks[WD_LARGEST_TEXT]; /* if there are none: what the smallest that was tried lacks */
    wd_dit_config smallest;      /* that one */
} wd_largest_students;

/* Finds the largest student of each of these shapes that fits with the options of the run that
 * `plan` plans, whatever its own student: the default width, Wan2.1-1.3B's sizes with at most its
 * blocks, and the teacher's width, each with as many blocks as fit; and all blocks with as much
 * width as fits. Shapes that are equal, or wider than the teacher, are left out, and so are those
 * of which not even the smallest fits. "Fits" is as in a plan: one block (or head) more does not.
 *
 * The optimiser's state is where --optimizer_device says; gradient checkpointing, and smaller
 * micro-batches with as many samples a step, are tried, too, of which the fastest way is taken that
 * fits; the one with fewer changes if it is about as fast. Where devices are left to auto, `cpu`
 * does not count: a step would take many times as long. `setup` is the run's, after its plan was
 * chosen; with several running ranks it must not be called. */
wd_status wd__largest_students_find(wd_largest_students *out, const wd_train_plan *plan,
                                    const wd_train_setup *setup, wd_err *err);

/* Formats them as text or JSON, as `plan` prints it. The caller frees *out with wd_free.
 * WD_DOES_NOT_FIT: there are none. */
wd_status wd__largest_students_print(char **out, const wd_largest_students *found,
                                     const wd_train_plan *plan, const wd_train_setup *setup,
                                     const char *teacher, bool as_json, wd_err *err);

/* Logs the largest student that fits where the default student does not, with its config, and which
 * command lists others; only that command where several ranks run. Nothing is logged if the options
 * or a checkpoint name a student, or none fits. */
void wd__largest_student_log(const wd_train_plan *plan, const wd_train_setup *setup);

#endif
