/* The plan of a run: where the teacher goes, what everything takes, and whether it fits.
 *
 * Data flow: options, devices -> budgets, sizes, rates -> the strategy's plan (teacher/planner.h)
 * -> window, micro-batch, placement -> the memory plan by a dry run (distill/plan.h). */
#ifndef WD_API_TRAIN_PLAN_H
#define WD_API_TRAIN_PLAN_H

#include "api/teacher_map.h"
#include "distill/plan.h"
#include "teacher/planner.h"

/* Why there are sample sheets, or none: see api/sheets.h. */
typedef enum wd_sheets {
    WD_SHEETS_ASKED,     /* --save_samples says so; or nothing fits anyway */
    WD_SHEETS_CHEAP,     /* there are: they take little time */
    WD_SHEETS_DEAR,      /* there are none: they would take much time */
    WD_SHEETS_TOO_LARGE, /* there are none: the run would not fit into memory */
    WD_SHEETS_UNKNOWN,   /* there are none: nobody knows how long the run lasts */
    WD_SHEETS_UNPLANNED  /* of a preset, which has no VAE */
} wd_sheets;

typedef struct wd_train_plan {
    wd_devices *devices;   /* borrowed */
    wd_memory_plan text;   /* what encoding the prompts takes */
    wd_memory_plan beside; /* that, and all else but the teacher */
    wd_planner_input input;
    uint8_t *expert;                /* of the input */
    char weights_file[WD_PATH_MAX]; /* one of the teacher's; "": it has none */
    wd_planner *planner;
    wd_teacher_map map;
    size_t host_budget;
    size_t program_bytes; /* of host memory, what is not planned item by item: libraries, kernels,
                           * prompts, and some slack. 0: not counted */
    double step_samples;  /* of all ranks */
    wd_sheets sheets;
    double sheets_share;  /* of the time between two sheets that one takes, or would take */
    wd_strategy asked;    /* for, or by default */
    wd_strategy_plan chosen;
} wd_train_plan;

/* Opens a planner for the run and chooses its plan: *setup's machine gets window and micro-batch.
 * Where --save_samples is auto the plan is of a run with sample sheets. `text`: what encoding the
 * prompts takes. In place. Whether the chosen plan fits is for the caller to see. */
wd_status wd_train_plan_open(wd_train_plan *out, wd_train_setup *setup, wd_devices *devices,
                             const wd_teacher_map *map, const wd_memory_plan *text, wd_err *err);

/* Counts what the program itself has by now: planning has made the kernels of all plans. Chooses
 * again, with that much less host memory, and settles whether there are sample sheets
 * (api/sheets.h). All ranks call it. */
wd_status wd_train_plan_count_program(wd_train_plan *plan, wd_train_setup *setup, wd_err *err);

/* Opens a planner for the plan's input as it is now, and chooses. */
wd_status wd_train_plan_choose(wd_train_plan *plan, wd_err *err);

/* As the two above on the same machine, for a run with other options: what was measured for `like`
 * is not measured again. */
wd_status wd_train_plan_open_like(wd_train_plan *out, wd_train_setup *setup,
                                  const wd_train_plan *like, wd_err *err);
void wd_train_plan_close(wd_train_plan *plan); /* a zeroed one is fine */

/* "teacher: balanced over sim:0 ... sim:3, window 64, 4 at a time: 0.31 s per step, limited by the
 * student" */
void wd_train_plan_line(char *out, size_t out_bytes, const wd_train_plan *plan,
                        const wd_strategy_plan *of);

/* What is to be said where mapped weights are more than the page cache can keep; false: nothing. */
bool wd_train_plan_cache_line(char *out, size_t out_bytes, const wd_strategy_plan *of);

/* A new object: strategy, whether it fits, bytes, time, placement. */
json_t *wd_strategy_plan_json(const wd_train_plan *plan, const wd_strategy_plan *of);

/* "compute of sim:0": what limits a plan. */
const char *wd_train_plan_limit(char *out, size_t out_bytes, const wd_train_plan *plan,
                                const wd_strategy_plan *of);

/* "sim:0", or, where ranks share a teacher, "sim:0 of rank 3": a device of a placement. */
const char *wd_train_plan_device(char out[32], const wd_train_plan *plan,
                                 const wd_strategy_plan *of, int device);

/* Of all ranks, as predicted. */
double wd_train_plan_samples_per_s(const wd_train_plan *plan, const wd_strategy_plan *of);

/* The prompts are encoded in the same place whatever the strategy: the one that has no room for it
 * and for what the program takes, or NULL. */
const char *wd_train_plan_lacks_to_encode(const wd_train_plan *plan);

/* The most of a device in any rank. */
size_t wd_train_plan_peak(const wd_train_plan *plan, const wd_strategy_plan *of, int device);

#endif
