/* Where the optimiser's state is: see api/plan/optimizer_place.h. */
#include "api/plan/optimizer_place.h"

#include <stdio.h>
#include <string.h>

#include "api/plan/sheets.h"
#include "api/plan/train_cluster.h"
#include "core/memory.h"

/* Host memory is chosen where a step then takes at most this share of its time. */
static const double FASTER = 0.95;

/* What the decision about sheets changes of a set-up. */
typedef struct asked_sheets {
    int64_t count;
    const char *save;
} asked_sheets;

static asked_sheets sheets_of(const wd_train_setup *setup)
{
    return (asked_sheets){setup->trainer.samples.count, setup->options.save_samples};
}

static void set_sheets(wd_train_setup *setup, asked_sheets sheets)
{
    setup->trainer.samples.count = sheets.count;
    setup->options.save_samples = sheets.save;
}

/* Whether more memory on devices may help: the run or its sheets do not fit, another strategy would
 * be faster but lacks memory, or the window is not the largest. */
static wd_status is_short_of_memory(bool *out, const wd_train_plan *plan, wd_err *err)
{
    const wd_strategy_plan *all;
    *out = !plan->chosen.fits || plan->sheets == WD_SHEETS_TOO_LARGE ||
           plan->chosen.window < plan->input.rounds.trajectories;
    if (*out || plan->asked != WD_STRATEGY_auto || plan->map.given) return WD_OK;
    WD_TRY(wd_planner_all(&all, plan->planner, err));
    for (int i = 0; i < WD_STRATEGY_auto; i++)
        *out |= !all[i].objection && !all[i].fits &&
                all[i].step_seconds < FASTER * plan->chosen.step_seconds;
    return WD_OK;
}

/* The plan of the same run with the state in host memory. */
static wd_status move(wd_train_plan *moved, const wd_train_plan *plan, wd_train_setup *setup,
                      wd_err *err)
{
    *moved = *plan;
    moved->planner = NULL;
    WD_TRY(wd__train_cluster_plan_again(moved, setup, &setup->trainer.samples, err));
    wd__train_plan_fill_student(moved, setup);
    WD_TRY(wd__train_plan_choose(moved, err));
    return wd__sheets_choose(moved, setup, err);
}

/* Sets *value on all ranks to whether it is true on any, or, if `all`, on all of them. */
static wd_status agree(bool *value, bool all, const wd_train_setup *setup, wd_err *err)
{
    bool *of_rank;
    if (!wd__train_has_others(setup)) return WD_OK;
    WD_TRY(wd__train_gather((void **)&of_rank, value, sizeof *value, setup->comm, err));
    *value = all;
    for (int r = 0; r < wd_train_ranks(setup); r++)
        if (of_rank[r] != all) *value = !all;
    wd_free(of_rank);
    return WD_OK;
}

static wd_optimizer_place choose(const wd_train_plan *on_device, const wd_train_plan *on_host)
{
    const double seconds = on_host->chosen.step_seconds;
    if (!on_host->chosen.fits) return WD_OPTIMIZER_ON_DEVICE;
    if (!on_device->chosen.fits) return WD_OPTIMIZER_ON_HOST_TO_FIT;
    if (seconds <= FASTER * on_device->chosen.step_seconds) return WD_OPTIMIZER_ON_HOST_FOR_SPEED;
    const bool draws = on_device->sheets == WD_SHEETS_TOO_LARGE &&
                       on_host->sheets == WD_SHEETS_CHEAP &&
                       seconds <= on_device->chosen.step_seconds;
    return draws ? WD_OPTIMIZER_ON_HOST_FOR_SHEETS : WD_OPTIMIZER_ON_DEVICE;
}

/* `asked`: the sheets before the decision about them on the device. */
static wd_status try_host(wd_train_plan *plan, wd_train_setup *setup, asked_sheets asked,
                          wd_err *err)
{
    wd_train_plan *moved; /* too large for a small stack */
    const asked_sheets on_device = sheets_of(setup);
    bool *on_host = &setup->trainer.stepper.optimizer_on_host;
    WD_TRY(wd_alloc((void **)&moved, 1, sizeof *moved, "a plan", err));
    *on_host = true;
    set_sheets(setup, asked);
    wd_status status = move(moved, plan, setup, err);
    bool takes = false;
    if (status == WD_OK) {
        moved->optimizer_place = choose(plan, moved);
        takes = moved->optimizer_place != WD_OPTIMIZER_ON_DEVICE;
        status = agree(&takes, true, setup, err);
    }
    if (!takes) {
        *on_host = false;
        set_sheets(setup, on_device);
        wd_planner_close(moved->planner);
    } else {
        moved->device_seconds = plan->chosen.step_seconds;
        wd_planner_close(plan->planner);
        *plan = *moved;
    }
    wd_free(moved);
    return status;
}

wd_status wd__optimizer_place_choose(wd_train_plan *plan, wd_train_setup *setup, wd_err *err)
{
    bool short_of_memory;
    wd_train_options *o = &setup->options;
    const asked_sheets asked = sheets_of(setup);
    WD_TRY(wd__sheets_choose(plan, setup, err));
    if (strcmp(o->optimizer_device, "auto")) return WD_OK;
    o->optimizer_device = "device";
    WD_TRY(is_short_of_memory(&short_of_memory, plan, err));
    WD_TRY(agree(&short_of_memory, false, setup, err));
    if (short_of_memory) WD_TRY(try_host(plan, setup, asked, err));
    if (setup->trainer.stepper.optimizer_on_host) o->optimizer_device = "host";
    return WD_OK;
}

const char *wd_optimizer_place_text(char out[WD_OPTIMIZER_PLACE_TEXT], const wd_train_plan *plan,
                                    const wd_train_setup *setup)
{
    static const char where[] = "moments, EMA and master weights: in host memory";
    const char *device = plan->devices->name[0];
    *out = 0;
    if (!setup->trainer.stepper.optimizer_on_host) return out;
    switch (plan->optimizer_place) {
    case WD_OPTIMIZER_ON_HOST_TO_FIT:
        snprintf(out, WD_OPTIMIZER_PLACE_TEXT, "%s, since %s has no room for them", where, device);
        break;
    case WD_OPTIMIZER_ON_HOST_FOR_SHEETS:
        snprintf(out, WD_OPTIMIZER_PLACE_TEXT,
                 "%s, since %s has no room for sample sheets beside them", where, device);
        break;
    case WD_OPTIMIZER_ON_HOST_FOR_SPEED:
        snprintf(out, WD_OPTIMIZER_PLACE_TEXT, "%s; with them on %s a step would take %.3g s",
                 where, device, plan->device_seconds);
        break;
    case WD_OPTIMIZER_ON_DEVICE: /* --optimizer_device decides */
        snprintf(out, WD_OPTIMIZER_PLACE_TEXT, "%s", where);
        break;
    }
    return out;
}
