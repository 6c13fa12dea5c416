/* The memory plan of a run: every byte by what it is for, found by running a step dry.
 *
 * Nothing is loaded and nothing computed: headers and shapes are enough. Device memory is what a
 * dry device has counted, host memory what the meter of core/memory.h shows beside it; what the
 * program itself holds (libraries, their kernels, prompts) its caller adds, measured. */
#ifndef WD_DISTILL_PLAN_H
#define WD_DISTILL_PLAN_H

#include "distill/samples.h"

enum { WD_PLAN_ITEMS_MAX = 48 };

/* When an item is there. */
typedef enum wd_plan_phase {
    WD_PLAN_PROGRAM,  /* from now to the end */
    WD_PLAN_TOKENS,   /* while prompts are turned into tokens */
    WD_PLAN_TEXT,     /* while they are encoded */
    WD_PLAN_TRAINING, /* from the teacher's opening to the end */
    WD_PLAN_OPENING,  /* while weights are brought, converted and taken over */
    WD_PLAN_SAVING,   /* while a checkpoint or the student is written */
    WD_PLAN_SAMPLING, /* while pictures are drawn */
    WD_PLAN_PHASES
} wd_plan_phase;

typedef struct wd_plan_item {
    const char *name;
    wd_plan_phase phase;
    size_t bytes;
} wd_plan_item;

typedef struct wd_plan {
    wd_plan_item item[WD_PLAN_ITEMS_MAX];
    int items;
    size_t mapped_bytes; /* of checkpoint files that are read in place: not counted as ours */
    double teacher_flops_per_target, student_flops_per_sample;
} wd_plan;

/* "training", as run.json and the log have it. */
const char *wd_plan_phase_name(wd_plan_phase phase);

/* Adds to the item of that name and phase, or makes it. */
void wd_plan_add(wd_plan *plan, const char *name, wd_plan_phase phase, size_t bytes);

/* The most there is at any time. */
size_t wd_plan_peak(const wd_plan *plan);

/* Adds what a run with this machine and these samples (count 0: none) needs on `target` from its
 * opening on. `*out` may have items, or is zeroed. */
wd_status wd_plan_machine(wd_plan *out, const wd_machine_options *options,
                          const wd_samples_options *samples, wd_device *target, wd_err *err);

#endif
