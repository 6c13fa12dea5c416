/* How often the student trains on a target: see api/plan/target_reuse.h. */
#include "api/plan/target_reuse.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/plan/train_cluster.h"
#include "api/setup/train_objective.h"
#include "core/memory.h"

enum { REUSE_MAX = 32 };

/* Twice as many uses are chosen where a step then takes at most this share of its time. With 0.55
 * students were as good or better in the same time, with 0.58 a little worse (docs/recipe.md). */
static const double FASTER = 0.55;

/* *takes = whether the run with this number of uses is better than *plan, which it then replaces.
 */
static wd_status try_reuse(bool *takes, int64_t reuse, wd_train_plan *plan, wd_train_setup *setup,
                           wd_asked_sheets asked, wd_err *err)
{
    wd_train_plan *other; /* too large for a small stack */
    const wd_asked_sheets sheets = wd__sheets_asked(setup);
    const int64_t before = setup->options.target_reuse;
    *takes = false;
    WD_TRY(wd_alloc((void **)&other, 1, sizeof *other, "a plan", err));
    wd_train_set_reuse(setup, reuse);
    wd__sheets_ask(setup, asked);
    wd_status status = wd__train_plan_again(other, plan, setup, err);
    if (status == WD_OK) {
        *takes =
            other->chosen.fits && other->chosen.step_seconds <= FASTER * plan->chosen.step_seconds;
        status = wd__train_agree_whether(takes, true, setup, err);
    }
    if (*takes) {
        wd_planner_close(plan->planner);
        *plan = *other;
    } else {
        wd_train_set_reuse(setup, before);
        wd__sheets_ask(setup, sheets);
        wd_planner_close(other->planner);
    }
    wd_free(other);
    return status;
}

wd_status wd__target_reuse_choose(wd_train_plan *plan, wd_train_setup *setup, wd_asked_sheets asked,
                                  wd_err *err)
{
    bool takes;
    if (setup->options.target_reuse >= 0) return WD_OK;
    const int64_t usual = wd_train_usual_reuse(setup);
    wd_train_set_reuse(setup, usual);
    plan->reuse_usual = usual;
    plan->reuse_usual_seconds = plan->chosen.step_seconds;
    takes = plan->chosen.fits;
    WD_TRY(wd__train_agree_whether(&takes, true, setup, err));
    for (int64_t reuse = 2 * usual; takes && reuse <= REUSE_MAX; reuse *= 2)
        WD_TRY(try_reuse(&takes, reuse, plan, setup, asked, err));
    return WD_OK;
}

const char *wd_target_reuse_text(char out[WD_TARGET_REUSE_TEXT], const wd_train_plan *plan,
                                 const wd_train_setup *setup)
{
    const int64_t reuse = setup->options.target_reuse;
    *out = 0;
    if (!plan->reuse_usual || !plan->chosen.fits) return out;
    if (reuse == plan->reuse_usual)
        snprintf(out, WD_TARGET_REUSE_TEXT,
                 "each target is used %" PRId64 " times, as usual: with twice as many uses a step "
                 "would not be much faster",
                 reuse);
    else
        snprintf(out, WD_TARGET_REUSE_TEXT,
                 "each target is used %" PRId64 " times; with %" PRId64
                 ", as usual, a step would take %.3g s, not %.3g",
                 reuse, plan->reuse_usual, plan->reuse_usual_seconds, plan->chosen.step_seconds);
    return out;
}
