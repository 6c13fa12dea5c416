/* See api/plan/advice.h. */
#include "api/plan/advice.h"

#include <inttypes.h>

#include "api/plan/suggestions.h"
#include "core/append.h"
#include "core/log.h"
#include "core/memory.h"

enum { TEXT_BYTES = 256 };

static const double MUCH = 2; /* times as fast */

static bool is_much_faster(double seconds, double than)
{
    return seconds <= than / MUCH;
}

/* Whether the strategy was left to auto. With a map only custom is. */
static bool may_choose(const wd_train_plan *plan)
{
    return plan->asked == WD_STRATEGY_auto && !plan->map.given;
}

/* Whether auto has chosen a strategy, and another one would take half the time or less, but lacks
 * memory. */
static bool is_slow(const wd_train_plan *plan)
{
    const wd_strategy_plan *all;
    if (!may_choose(plan) || !plan->chosen.fits) return false;
    if (wd_planner_all(&all, plan->planner, NULL) != WD_OK) return false;
    for (int i = 0; i < WD_STRATEGY_auto; i++)
        if (!all[i].objection && !all[i].fits &&
            is_much_faster(all[i].step_seconds, plan->chosen.step_seconds))
            return true;
    return false;
}

/* Whether a run may have these changes: its student is no worse, and a run that is resumed keeps
 * its arithmetic. */
static bool is_allowed(const wd_memory_change *c, const wd_train_setup *setup)
{
    if (c->small_replay || c->off_policy) return false;
    return !*setup->resume || !(c->bf16_teacher || c->bf16_student);
}

/* Plans the run with a set of changes. False: the changes have no effect, or the run does not
 * fit. */
static bool plan_changed(wd_train_variant *run, const wd_memory_change *change,
                         const wd_train_plan *plan, const wd_train_setup *setup)
{
    wd_train_variant_begin(run, setup);
    return wd_memory_change_apply(&run->setup.options, &run->setup.trainer.machine, change) &&
           wd_train_variant_fits(run, plan);
}

/* The options of the changes: " --gradient_checkpointing". `o` has them. */
static void write_options(char out[TEXT_BYTES], const wd_memory_change *c,
                          const wd_train_options *o)
{
    size_t n = 0;
    *out = 0;
    if (c->bf16_teacher) n = wd_append_text(out, TEXT_BYTES, n, " --teacher_dtype bfloat16");
    if (c->bf16_student) n = wd_append_text(out, TEXT_BYTES, n, " --mixed_precision bf16");
    if (c->checkpointing) n = wd_append_text(out, TEXT_BYTES, n, " --gradient_checkpointing");
    if (c->halvings)
        wd_append_text(out, TEXT_BYTES, n,
                       " --batch_size %" PRId64 " --gradient_accumulation_steps %" PRId64,
                       o->batch_size, o->gradient_accumulation_steps);
}

/* Warns that another strategy that fits is much faster than the one that was asked for. */
static void warn_of_slow_choice(const wd_train_plan *plan)
{
    const wd_strategy_plan *all, *best, *now = &plan->chosen;
    if (plan->asked == WD_STRATEGY_auto || plan->map.given || !now->fits) return;
    if (wd_planner_all(&all, plan->planner, NULL) != WD_OK) return;
    best = wd_planner_best(all);
    if (!best->fits || !is_much_faster(best->step_seconds, now->step_seconds)) return;
    wd_log(WD_LOG_WARNING,
           "--teacher_device_strategy %s takes %.3g s per step; %s fits, too, and takes %.3g s. "
           "Without the option the run takes %s",
           wd_strategy_name(now->strategy), now->step_seconds, wd_strategy_name(best->strategy),
           best->step_seconds, wd_strategy_name(best->strategy));
}

void wd_advice_of_run(const wd_train_plan *plan)
{
    if (wd_log_rank()) return;
    warn_of_slow_choice(plan);
    if (is_slow(plan))
        wd_log(WD_LOG_WARNING, "another strategy would take half the time or less, but lacks "
                               "memory: `wandistiller plan` with the same options says what helps");
}

void wd_advice_log(const wd_train_plan *plan, const wd_train_setup *setup)
{
    const wd_strategy_plan *now = &plan->chosen;
    double seconds = now->step_seconds;
    wd_strategy strategy = now->strategy;
    wd_memory_change change;
    wd_train_variant *run;
    char options[TEXT_BYTES] = "";
    warn_of_slow_choice(plan);
    if (!is_slow(plan)) return;
    if (wd_alloc((void **)&run, 1, sizeof *run, "a plan", NULL) != WD_OK) return;
    for (int n = 1; wd_memory_change_at(&change, n); n++) {
        const wd_strategy_plan *found = &run->plan.chosen;
        if (!is_allowed(&change, setup) || !plan_changed(run, &change, plan, setup)) continue;
        if (!is_much_faster(found->step_seconds, seconds)) continue;
        seconds = found->step_seconds;
        strategy = found->strategy;
        write_options(options, &change, &run->setup.options);
    }
    wd_free(run);
    if (!*options) return;
    wd_log(WD_LOG_WARNING,
           "%s is the fastest strategy that fits, and takes %.3g s per step. Add%s: the run then "
           "takes %.3g s per step, with %s",
           wd_strategy_name(now->strategy), now->step_seconds, options, seconds,
           wd_strategy_name(strategy));
}
