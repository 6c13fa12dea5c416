/* The predicted time of a run as text, with the figures from which it follows. */
#ifndef WD_API_PLAN_RUN_LENGTH_H
#define WD_API_PLAN_RUN_LENGTH_H

#include "api/plan/train_plan.h"

enum { WD_RUN_LENGTH_TEXT = 384, WD_DURATION_TEXT = 32 };

typedef struct wd_run_length {
    int64_t steps;   /* 0: not known, since no prompts are, of which epochs are counted */
    double seconds;  /* of all steps */
    double samples;  /* that all ranks train on */
    const char *why; /* the option that ends the run, such as "--num_steps"; "": epochs */
} wd_run_length;

/* The length of the run under this strategy. */
wd_run_length wd_run_length_of(const wd_train_plan *plan, const wd_train_setup *setup,
                               const wd_strategy_plan *candidate);

/* "18.2 hours". Returns `out`. */
const char *wd_duration_text(char out[WD_DURATION_TEXT], double seconds);

/* "1600 steps (10 epochs of 320 prompts), 1600 targets, each seen twice: 1.27 hours at 2.86 s per
 * step"; if no prompts are known yet, the time of 1000 steps. Returns `out`. */
const char *wd_run_length_text(char out[WD_RUN_LENGTH_TEXT], const wd_train_plan *plan,
                               const wd_train_setup *setup, const wd_strategy_plan *candidate);

#endif
