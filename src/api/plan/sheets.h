/* Sample sheets (train/loop/samples.h): the share of a run's time that drawing them takes, and the
 * decision whether a run draws any. */
#ifndef WD_API_PLAN_SHEETS_H
#define WD_API_PLAN_SHEETS_H

#include "api/plan/train_plan.h"

enum { WD_SHEETS_TEXT = 160 };

/* What the decision about sheets changes of a set-up. */
typedef struct wd_asked_sheets {
    int64_t count;
    const char *save;
} wd_asked_sheets;

static inline wd_asked_sheets wd__sheets_asked(const wd_train_setup *setup)
{
    return (wd_asked_sheets){setup->trainer.samples.count, setup->options.save_samples};
}

static inline void wd__sheets_ask(wd_train_setup *setup, wd_asked_sheets sheets)
{
    setup->trainer.samples.count = sheets.count;
    setup->options.save_samples = sheets.save;
}

/* Decides whether sheets are drawn if --save_samples is auto. They are drawn if a sheet takes less
 * than a tenth of the time between two, on average over the run, since the teacher's pictures are
 * drawn once. If the memory of sheets leads to a slower plan, the difference counts as time of
 * sheets. *plan is the plan with sheets; if none are drawn, it is replaced by the plan without, and
 * setup->trainer.samples is cleared. All ranks call it. */
wd_status wd__sheets_choose(wd_train_plan *plan, wd_train_setup *setup, wd_err *err);

/* *out = the seconds in which the teacher samples `count` pictures, in steps at these timesteps.
 * They go through it in groups of as many as a rank's sweep has states (train/loop/samples.c), and
 * each step is a sweep of one expert. */
wd_status wd__sampling_seconds(double *out, const wd_train_plan *plan, int64_t count,
                               const float *timestep, int64_t steps, wd_err *err);

/* Writes "sample sheets: every 100 steps, 3 % of the time", or why none are drawn, into `out`; ""
 * if --save_samples is false. Returns `out`. */
const char *wd_sheets_text(char out[WD_SHEETS_TEXT], const wd_train_plan *plan,
                           const wd_train_setup *setup);

#endif
