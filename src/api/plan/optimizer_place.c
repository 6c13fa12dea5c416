/* Where the optimiser's state is: see api/plan/optimizer_place.h. */
#include "api/plan/optimizer_place.h"

#include <stdio.h>
#include <string.h>

#include "api/plan/sheets.h"
#include "api/plan/train_cluster.h"
#include "core/memory.h"

/* Host memory is chosen where a step then takes at most this share of its time. */
static const double FASTER = 0.95;

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

static wd_place_reason choose(const wd_train_plan *on_device, const wd_train_plan *on_host)
{
    const double seconds = on_host->chosen.step_seconds;
    if (!on_host->chosen.fits) return WD_PLACE_GIVEN;
    if (!on_device->chosen.fits) return WD_PLACE_TO_FIT;
    if (seconds <= FASTER * on_device->chosen.step_seconds) return WD_PLACE_FOR_SPEED;
    const bool draws = on_device->sheets == WD_SHEETS_TOO_LARGE &&
                       on_host->sheets == WD_SHEETS_CHEAP &&
                       seconds <= on_device->chosen.step_seconds;
    return draws ? WD_PLACE_FOR_SHEETS : WD_PLACE_GIVEN;
}

/* Puts the state to `place`, if that is better than *plan. `asked`: the sheets before the decision
 * about them. */
static wd_status try_place(wd_state_place place, wd_train_plan *plan, wd_train_setup *setup,
                           wd_asked_sheets asked, wd_err *err)
{
    wd_train_plan *moved; /* too large for a small stack */
    const wd_asked_sheets sheets = wd__sheets_asked(setup);
    const wd_state_place before = setup->trainer.stepper.place;
    WD_TRY(wd_alloc((void **)&moved, 1, sizeof *moved, "a plan", err));
    setup->trainer.stepper.place = place;
    wd__sheets_ask(setup, asked);
    wd_status status = wd__train_plan_again(moved, plan, setup, err);
    bool takes = false;
    if (status == WD_OK) {
        moved->place_reason = choose(plan, moved);
        takes = moved->place_reason != WD_PLACE_GIVEN;
        status = wd__train_agree_whether(&takes, true, setup, err);
    }
    if (!takes) {
        setup->trainer.stepper.place = before;
        wd__sheets_ask(setup, sheets);
        wd_planner_close(moved->planner);
    } else {
        moved->place_before = before;
        moved->seconds_before = plan->chosen.step_seconds;
        wd_planner_close(plan->planner);
        *plan = *moved;
    }
    wd_free(moved);
    return status;
}

bool wd__state_may_be(wd_state_place place, const wd_train_options *o)
{
    const bool is_auto = !strcmp(o->optimizer_device, "auto");
    switch (place) {
    case WD_STATE_ON_DEVICE:
        return strcmp(o->optimizer_device, "host") && strcmp(o->ema_device, "host");
    case WD_STATE_EMA_ON_HOST:
        return o->ema_decay > 0 && strcmp(o->optimizer_device, "host") &&
               (is_auto ? strcmp(o->ema_device, "device") : !strcmp(o->ema_device, "host"));
    default:
        return strcmp(o->ema_device, "device") && strcmp(o->optimizer_device, "device");
    }
}

const char *wd__optimizer_device_of(wd_state_place place)
{
    return place == WD_STATE_ON_HOST ? "host" : "device";
}

const char *wd__ema_device_of(wd_state_place place)
{
    return place == WD_STATE_ON_DEVICE ? "device" : "host";
}

void wd__state_put(wd_state_place place, wd_train_options *o, wd_stepper_options *stepper)
{
    stepper->place = place;
    o->optimizer_device = wd__optimizer_device_of(place);
    o->ema_device = place == WD_STATE_EMA_ON_HOST ? "host" : "auto";
}

wd_status wd__optimizer_place_choose(wd_train_plan *plan, wd_train_setup *setup, wd_err *err)
{
    const wd_asked_sheets asked = wd__sheets_asked(setup);
    wd_stepper_options *stepper = &setup->trainer.stepper;
    WD_TRY(wd__sheets_choose(plan, setup, err));
    for (int i = stepper->place + 1; i <= WD_STATE_ON_HOST; i++) {
        bool short_of_memory;
        const wd_state_place place = (wd_state_place)i;
        if (!wd__state_may_be(place, &setup->options)) continue;
        WD_TRY(is_short_of_memory(&short_of_memory, plan, err));
        WD_TRY(wd__train_agree_whether(&short_of_memory, false, setup, err));
        if (short_of_memory) WD_TRY(try_place(place, plan, setup, asked, err));
    }
    wd__state_put(stepper->place, &setup->options, stepper);
    return WD_OK;
}

const char *wd_optimizer_place_text(char out[WD_OPTIMIZER_PLACE_TEXT], const wd_train_plan *plan,
                                    const wd_train_setup *setup)
{
    const wd_state_place place = setup->trainer.stepper.place;
    const bool alone = place == WD_STATE_EMA_ON_HOST;
    const char *device = plan->devices->name[0], *them = alone ? "it" : "them";
    int n = snprintf(out, WD_OPTIMIZER_PLACE_TEXT, "%s: in host memory",
                     alone ? "EMA" : "moments, EMA and master weights");
    char *reason = out + n;
    const size_t room = WD_OPTIMIZER_PLACE_TEXT - (size_t)n;
    if (place == WD_STATE_ON_DEVICE) {
        *out = 0;
        return out;
    }
    switch (plan->place_reason) {
    case WD_PLACE_TO_FIT:
        snprintf(reason, room, ", since %s has no room for %s", device, them);
        break;
    case WD_PLACE_FOR_SHEETS:
        snprintf(reason, room, ", since %s has no room for sample sheets beside %s", device, them);
        break;
    case WD_PLACE_FOR_SPEED:
        if (plan->place_before == WD_STATE_EMA_ON_HOST)
            snprintf(reason, room, "; with the EMA alone there a step would take %.3g s",
                     plan->seconds_before);
        else
            snprintf(reason, room, "; with %s on %s a step would take %.3g s", them, device,
                     plan->seconds_before);
        break;
    case WD_PLACE_GIVEN:
        break;
    }
    return out;
}
