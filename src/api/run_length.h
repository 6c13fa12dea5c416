/* The predicted time of a run as text, with the figures from which it follows. */
#ifndef WD_API_RUN_LENGTH_H
#define WD_API_RUN_LENGTH_H

#include "api/train_plan.h"

enum { WD_RUN_LENGTH_TEXT = 384 };

/* "1600 steps (10 epochs of 320 prompts), 1600 targets, each seen twice: 1.27 hours at 2.86 s per
 * step"; if no prompts are known yet, the time of 1000 steps. Returns `out`. */
const char *wd_run_length_text(char out[WD_RUN_LENGTH_TEXT], const wd_train_plan *plan,
                               const wd_train_setup *setup, const wd_strategy_plan *candidate);

#endif
