/* Suggestions: see api/suggestions.h. For each set of changes (api/memory_changes.h) a run is
 * planned: first the memory of everything but the teacher, by a dry run, then every strategy. */
#include "api/suggestions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/memory_changes.h"
#include "api/teacher_choice.h"
#include "api/text_plan.h"
#include "api/train_command.h"
#include "core/log.h"
#include "core/memory.h"

enum {
    SUGGESTIONS_MAX = 5,
    COMMAND_MAX = 1 << 15,
    LESS = 9 /* suggestions after a failed allocation need less than 9 tenths of the memory */
};

/* Whether an earlier strategy has the same placement: gpu0 and gpu, or sequential and gpu if the
 * first device is large enough. */
static bool is_another_name(const wd_strategy_plan *plan, int i)
{
    for (int k = 0; k < i; k++)
        if (!plan[k].objection &&
            !memcmp(&plan[k].placement, &plan[i].placement, sizeof plan->placement))
            return true;
    return false;
}

/* The bytes of host memory and all devices together. */
static size_t all_bytes(const wd_train_plan *where, const wd_strategy_plan *plan)
{
    const wd_cluster *cluster = &where->input.cluster;
    size_t sum = wd_placed_host_peak(&plan->bytes, cluster);
    for (int d = 0; d < plan->bytes.devices; d++)
        if (!wd_cluster_at(cluster, d)->reads_host) sum += wd_placed_peak(&plan->bytes, d);
    return sum;
}

/* Whether to try strategy i. With a map only custom is tried. */
static bool is_tried(const wd_train_plan *where, const wd_strategy_plan *plan, int i)
{
    return where->map.given ? i == WD_STRATEGY_custom : !is_another_name(plan, i);
}

/* Lists the strategies that fit and need less than `below` bytes, the fastest first. */
static void sort_fitting(int *order, int *count, const wd_train_plan *where,
                         const wd_strategy_plan *plan, size_t below)
{
    *count = 0;
    for (int i = 0; i < WD_STRATEGY_auto; i++) {
        if (plan[i].objection || !plan[i].fits || !is_tried(where, plan, i) ||
            all_bytes(where, &plan[i]) >= below)
            continue;
        int at = (*count)++;
        for (; at > 0 && wd_planner_is_better(&plan[i], &plan[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void say_suggestion(const wd_train_options *options, const wd_strategy_plan *plan)
{
    char command[COMMAND_MAX];
    wd_train_options o = *options;
    wd_teacher_choose(&o, wd_strategy_name(plan->strategy));
    wd_train_command(command, sizeof command, &o);
    wd_log(WD_LOG_ERROR, "  # %.3g s per step, window %" PRId64, plan->step_seconds, plan->window);
    wd_log(WD_LOG_ERROR, "  %s", command);
}

/* Lets the planner choose window, micro-batch and prefetch. They never change the student, and the
 * given ones may be the reason why the run does not fit. */
static void choose_window(wd_train_setup *s)
{
    s->given.teacher_window = s->given.teacher_micro_batch = 0;
    s->trainer.machine.window = s->trainer.machine.micro_batch = 0;
    s->given.teacher_prefetch = s->options.teacher_prefetch = wd_train_defaults().teacher_prefetch;
}

/* What planning a set of changes needs: too large for a small stack. */
typedef struct attempt {
    wd_train_variant changed;
    wd_train_plan plain; /* without the changes and without the map */
} attempt;

/* Logs the suggestions with one set of changes, at most `most`; returns their number. */
static int say_suggestions(const wd_train_plan *plan, wd_train_variant *changed,
                           const wd_memory_change *c, size_t below, int most)
{
    int order[WD_STRATEGY_auto], count = 0, said = 0;
    const wd_strategy_plan *all;
    wd_train_setup *setup = &changed->setup;
    wd_train_options given = setup->given;
    if (!wd_memory_change_apply(&given, &setup->trainer.machine, c)) return 0;
    if (wd_train_plan_open_like(&changed->plan, setup, plan, NULL) != WD_OK) return 0;
    if (wd_planner_all(&all, changed->plan.planner, NULL) == WD_OK)
        sort_fitting(order, &count, &changed->plan, all, below);
    for (; said < count && said < most; said++) say_suggestion(&given, &all[order[said]]);
    wd_train_plan_close(&changed->plan);
    return said;
}

/* The peak of a device, or of host memory for all ranks of the host, which have equal peaks. */
static size_t peak_of(const wd_train_plan *plan, const wd_memory_plan *memory, int place)
{
    const int ranks = place == WD_PLAN_HOST ? wd_cluster_host_ranks(&plan->input.cluster) : 1;
    return (size_t)ranks * wd_plan_peak(memory, place);
}

/* Logs the suggestions with one set of changes and the map of `plan`, if any; returns their number.
 */
static int say_changed(const wd_train_plan *plan, const wd_train_setup *setup,
                       wd_train_variant *changed, const wd_memory_change *c, size_t below, int most)
{
    if (wd_train_plan_lacks_to_encode(plan)) return 0;
    wd_train_variant_begin(changed, setup);
    choose_window(&changed->setup);
    changed->setup.options.teacher_device_strategy = wd_strategy_name(WD_STRATEGY_auto);
    return say_suggestions(plan, changed, c, below, most);
}

/* Copies the plan without its map. */
static wd_status leave_map_out(wd_train_plan *out, const wd_train_plan *plan,
                               const wd_train_setup *setup)
{
    const int usual = plan->map.usual_text_encoder;
    *out = *plan;
    out->map = wd_teacher_map_none(usual);
    out->text = (wd_memory_plan){0};
    return wd_text_plan_encoding(&out->text, setup, plan->devices, usual, NULL);
}

/* Logs up to SUGGESTIONS_MAX suggestions, those with the fewest changes first (with the map before
 * those without), then the fastest; returns their number. `below`: their plans need fewer bytes of
 * host memory and devices together. */
static int say_all(const wd_train_plan *plan, const wd_train_setup *setup, size_t below)
{
    int said = 0;
    wd_memory_change c;
    attempt *a;
    if (wd_alloc((void **)&a, 1, sizeof *a, "a plan", NULL) != WD_OK) return 0;
    const bool both = plan->map.given && leave_map_out(&a->plain, plan, setup) == WD_OK;
    for (int n = 0; said < SUGGESTIONS_MAX && wd_memory_change_at(&c, n); n++) {
        said += say_changed(plan, setup, &a->changed, &c, below, SUGGESTIONS_MAX - said);
        if (both)
            said += say_changed(&a->plain, setup, &a->changed, &c, below, SUGGESTIONS_MAX - said);
    }
    wd_free(a);
    return said;
}

/* ---- after an allocation failed ---- */

void wd_suggestions_report(const wd_train_plan *plan, const wd_train_setup *setup,
                           const wd_memory_witness *witness, const wd_err *error)
{
    char text[160];
    const wd_devices *devices = plan->devices;
    const wd_comm *comm = setup->trainer.machine.comm;
    wd_log(WD_LOG_ERROR, "out of memory, though the plan fits: %s", error->message);
    for (int d = 0; d < devices->count && (!comm || comm->ranks == 1); d++)
        wd_log(WD_LOG_ERROR, "[Rank 0, %s] %s", devices->name[d],
               wd_memory_witness_says(text, witness, d));
    wd_log(WD_LOG_ERROR,
           "somebody else has taken the memory since, or --host_memory said too much. "
           "What takes less, best first:");
    say_all(plan, setup, all_bytes(plan, &plan->chosen) / 10 * LESS);
}

/* ---- the refusal ---- */

static void say_missing(const wd_train_plan *plan, const wd_memory_plan *memory, int place,
                        size_t there)
{
    char needed[32], free[32], item[32], beside[160];
    const size_t peak = peak_of(plan, memory, place);
    if (peak <= there) return;
    wd_log(WD_LOG_ERROR, "%s: %s needed, %s there; %zu bytes are missing. Needed for:",
           wd_place_name(plan->devices, place), wd_bytes_text(needed, sizeof needed, peak),
           wd_bytes_text(free, sizeof free, there), peak - there);
    for (int i = 0; i < memory->items; i++)
        if (memory->item[i].place == place && memory->item[i].bytes >= peak / 100)
            wd_log(WD_LOG_ERROR, "  %-10s %-32s %s", wd_plan_phase_name(memory->item[i].phase),
                   memory->item[i].name, wd_bytes_text(item, sizeof item, memory->item[i].bytes));
    if (place != WD_PLAN_HOST && wd_device_beside_text(beside, plan->devices->device[place]))
        wd_log(WD_LOG_ERROR, "  %s", beside);
}

wd_status wd_suggestions_check(const wd_train_plan *plan, const wd_memory_plan *memory,
                               const wd_train_setup *setup, wd_err *err)
{
    const wd_devices *d = plan->devices;
    bool fits = peak_of(plan, memory, WD_PLAN_HOST) <= plan->host_budget;
    for (int i = 0; i < d->count; i++)
        if (i != d->processor) fits &= wd_plan_peak(memory, i) <= wd_device_bytes_max(d->device[i]);
    if (fits) return WD_OK;
    say_missing(plan, memory, WD_PLAN_HOST, plan->host_budget);
    for (int i = 0; i < d->count; i++)
        if (i != d->processor) say_missing(plan, memory, i, wd_device_bytes_max(d->device[i]));
    wd_log(WD_LOG_ERROR, "what would fit, best first:");
    const char *small = wd_train_plan_lacks_to_encode(plan);
    if (say_all(plan, setup, SIZE_MAX))
        return wd_fail(
            err, WD_DOES_NOT_FIT,
            "the run does not fit under --teacher_device_strategy %s; the commands above "
            "do",
            wd_strategy_name(plan->chosen.strategy));
    wd_log(WD_LOG_ERROR, "  nothing with this student and these devices");
    const char *map =
        plan->map.given ? ", or text_encoder and vae elsewhere in --teacher_device_map" : "";
    if (small)
        return wd_fail(
            err, WD_DOES_NOT_FIT,
            "the run does not fit, whatever the strategy: %s has no room for what encodes "
            "the prompts, and what the program takes: more memory%s",
            small, map);
    return wd_fail(
        err, WD_DOES_NOT_FIT,
        "the run does not fit, whatever the strategy: take a smaller student "
        "(--student_config), fewer --trajectories, smaller pictures (--height, --width), "
        "or more memory%s",
        map);
}
