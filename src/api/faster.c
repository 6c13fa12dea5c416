/* See api/faster.h. */
#include "api/faster.h"

#include "api/memory_changes.h"
#include "core/log.h"
#include "core/memory.h"

static const double MUCH = 2; /* times as fast */

static bool is_much_faster(const wd_strategy_plan *a, const wd_strategy_plan *than)
{
    return a->step_seconds <= than->step_seconds / MUCH;
}

/* Whether auto has chosen a strategy, and another one would be much faster, but lacks memory. */
static bool misses_a_faster_one(const wd_train_plan *plan)
{
    const wd_strategy_plan *all;
    if (plan->asked != WD_STRATEGY_auto || plan->map.given || !plan->chosen.fits) return false;
    if (wd_planner_all(&all, plan->planner, NULL) != WD_OK) return false;
    for (int i = 0; i < WD_STRATEGY_auto; i++)
        if (!all[i].objection && !all[i].fits && is_much_faster(&all[i], &plan->chosen))
            return true;
    return false;
}

/* The same run with changes: too large for a small stack. */
typedef struct changed_run {
    wd_train_setup setup; /* a shallow copy */
    wd_train_plan plan;
} changed_run;

/* Plans the run with a set of changes. *out = the plan that auto then chooses. False: the changes
 * have no effect, or there is no plan. */
static bool plan_changed(wd_strategy_plan *out, changed_run *run, const wd_memory_change *change,
                         const wd_train_plan *plan, const wd_train_setup *setup)
{
    run->setup = *setup;
    wd_train_options *o = &run->setup.options;
    wd_machine_options *m = &run->setup.trainer.machine;
    m->window = o->teacher_window; /* not those that the plan has chosen */
    m->micro_batch = o->teacher_micro_batch;
    m->text_context = NULL; /* a plan computes no text */
    if (!wd_memory_change_apply(o, m, change)) return false;
    const wd_status status = wd_train_plan_open_like(&run->plan, &run->setup, plan, NULL);
    *out = run->plan.chosen;
    wd_train_plan_close(&run->plan);
    return status == WD_OK && out->fits;
}

void wd_faster_warn(const wd_train_plan *plan, const wd_train_setup *setup)
{
    wd_strategy_plan found;
    wd_memory_change change;
    changed_run *run;
    char text[WD_MEMORY_CHANGE_TEXT];
    if (!misses_a_faster_one(plan)) return;
    if (wd_alloc((void **)&run, 1, sizeof *run, "a plan", NULL) != WD_OK) return;
    for (int n = 1; wd_memory_change_at(&change, n); n++) {
        if (!plan_changed(&found, run, &change, plan, setup)) continue;
        if (!is_much_faster(&found, &plan->chosen)) continue;
        if (!wd_log_rank())
            wd_log(WD_LOG_WARNING,
                   "%s is the fastest strategy that fits, and takes %.3g s per step. Add %s: the "
                   "run then takes %.3g s per step, with %s",
                   wd_strategy_name(plan->chosen.strategy), plan->chosen.step_seconds,
                   wd_memory_change_text(text, &change, &run->setup.options), found.step_seconds,
                   wd_strategy_name(found.strategy));
        break;
    }
    wd_free(run);
}
