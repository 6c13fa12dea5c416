/* Sample sheets (distill/samples.h): what drawing them takes of a run's time, and whether a run
 * draws any. */
#ifndef WD_API_SHEETS_H
#define WD_API_SHEETS_H

#include "api/train_plan.h"

enum { WD_SHEETS_TEXT = 160 };

/* Where --save_samples is auto: settles whether sheets are drawn. They are if a sheet takes less
 * than a tenth of the time between two of them, on average over the run, for the teacher's pictures
 * are drawn once; what the run becomes slower by, where the memory of sheets leaves it another
 * plan, is counted, too. *plan is that of the run with sheets, and becomes that of the run without
 * where there are none: then setup->trainer.samples has none, either. All ranks call it. */
wd_status wd_sheets_settle(wd_train_plan *plan, wd_train_setup *setup, wd_err *err);

/* "sample sheets: every 100 steps, 3 % of the time": what is drawn, or why nothing is. "" where
 * --save_samples is false. */
const char *wd_sheets_text(char out[WD_SHEETS_TEXT], const wd_train_plan *plan,
                           const wd_train_setup *setup);

#endif
