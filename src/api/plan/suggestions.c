/* Suggestions and advice: see api/plan/suggestions.h. For each set of changes a run is planned:
 * first the memory of everything but the teacher, by a dry run, then every strategy. */
#include "api/plan/suggestions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/options/options.h"
#include "api/options/teacher_choice.h"
#include "api/plan/encoding_plan.h"
#include "api/plan/largest_student.h"
#include "api/plan/optimizer_place.h"
#include "api/plan/plan_print.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

enum {
    SUGGESTIONS_MAX = 5,
    FOUND_MAX = 12, /* the fastest SUGGESTIONS_MAX of these are said */
    COMMAND_MAX = 1 << 15,
    LESS = 9 /* suggestions after a failed allocation need less than 9 tenths of the memory */
};

/* ---- changes that save memory ---- */

/* A set of changes, in the order of their costs. The last two make a worse student. */
typedef struct memory_change {
    wd_state_place place; /* WD_STATE_ON_DEVICE: as it is */
    bool bf16_teacher, bf16_student, checkpointing;
    bool moments_in_8_bits, bf16_gradients, small_replay, off_policy;
    int halvings; /* how often the batch is halved and the accumulation doubled */
} memory_change;

enum { HALVINGS_MAX = 4, SMALL_REPLAY = 1024 };
enum { PLACES = WD_STATE_ON_HOST + 1 };
enum { SETS = PLACES * 8 }; /* combinations of the places and the next three flags */

/* Sets *out to set number n; set 0 has no change. Sets with moments in 8 bits, then those with
 * gradients in bf16, then those with both, with small_replay, and with off_policy, too, follow all
 * others. False: there are no more. */
static bool change_at(memory_change *out, int n)
{
    const int halvings = n / SETS, level = halvings / (HALVINGS_MAX + 1);
    const int flags = n % SETS / PLACES;
    *out = (memory_change){.place = (wd_state_place)(n % PLACES),
                           .bf16_teacher = flags & 1,
                           .checkpointing = flags & 2,
                           .bf16_student = flags & 4,
                           .moments_in_8_bits = level == 1 || level == 3,
                           .bf16_gradients = level == 2 || level == 3,
                           .small_replay = level > 3,
                           .off_policy = level > 4,
                           .halvings = halvings % (HALVINGS_MAX + 1)};
    return level <= 5;
}

static bool makes_worse_student(const memory_change *c)
{
    return c->small_replay || c->off_policy;
}

/* Whether the student has the same bits with these changes. */
static bool keeps_student(const memory_change *c)
{
    return !c->bf16_teacher && !c->bf16_student && !c->moments_in_8_bits && !c->bf16_gradients &&
           !c->halvings && !makes_worse_student(c);
}

/* Whether the run may have these changes: one that is resumed is refused with others
 * (train/loop/trainer_saved.c). */
static bool is_allowed(const memory_change *c, const wd_train_setup *setup)
{
    return !*setup->resume || !(c->bf16_teacher || c->bf16_student || makes_worse_student(c));
}

/* Applies the changes to both; false: one of them has no effect on these options. */
static bool apply_change(wd_train_options *o, wd_stepper_options *m, const memory_change *c)
{
    if (c->place != WD_STATE_ON_DEVICE) {
        if (m->place >= c->place || (c->place == WD_STATE_EMA_ON_HOST && !m->ema)) return false;
        wd__state_put(c->place, o, m);
    }
    if (c->bf16_teacher) {
        if (m->teacher_dtype == WD_BF16) return false;
        o->teacher_dtype = "bfloat16";
        m->teacher_dtype = WD_BF16;
    }
    if (c->bf16_student) {
        if (m->student_dtype == WD_BF16) return false;
        o->mixed_precision = "bf16";
        m->student_dtype = WD_BF16;
    }
    if (c->checkpointing) {
        if (m->checkpointing) return false;
        o->gradient_checkpointing = m->checkpointing = true;
    }
    if (c->moments_in_8_bits) {
        if (m->optimizer.moments_in_8_bits || m->optimizer.alpha > 0) return false;
        o->optimizer = "adamw8bit";
        m->optimizer.moments_in_8_bits = true;
    }
    if (c->bf16_gradients) {
        if (m->gradients == WD_BF16 || m->student_dtype != WD_BF16) return false;
        o->gradient_dtype = "bfloat16";
        m->gradients = WD_BF16;
    }
    if (c->small_replay) {
        if (m->replay <= SMALL_REPLAY && !c->off_policy) return false;
        if (m->replay > SMALL_REPLAY) o->target_replay = m->replay = SMALL_REPLAY;
    }
    if (c->off_policy) {
        if (!(m->trajectory.on_policy_share > 0)) return false;
        o->on_policy_share = m->trajectory.on_policy_share = 0;
    }
    for (int i = 0; i < c->halvings; i++) {
        if (m->batch % 2) return false;
        o->batch_size = m->batch /= 2;
        o->gradient_accumulation_steps = m->accumulation *= 2;
    }
    return m->accumulation == 1 || wd_stepper_may_accumulate(m);
}

/* ---- ways to run it ---- */

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

/* A command whose plan fits. */
typedef struct way {
    wd_strategy strategy;
    double step_seconds;
    int64_t window;
    char *command;
    bool same;  /* the student is, as far as these changes decide */
    bool worse; /* the student is */
} way;

/* The ways that were found, the fastest first; those that make a worse student are last. */
typedef struct ways {
    way way[FOUND_MAX];
    int count;
} ways;

/* What more changes must gain to be offered, too: this share of the time. */
static const double GAIN = 0.95;

/* Whether a way with fewer changes, which was added earlier, has this strategy and is about as
 * fast.
 */
static bool is_needless(const ways *w, const wd_strategy_plan *plan)
{
    for (int i = 0; i < w->count; i++)
        if (w->way[i].strategy == plan->strategy &&
            GAIN * w->way[i].step_seconds <= plan->step_seconds)
            return true;
    return false;
}

static bool comes_before(const way *a, const way *b)
{
    return a->worse != b->worse ? b->worse : a->step_seconds < b->step_seconds;
}

/* Adds a way if there is room for it, behind those that are as fast. */
static void add_way(ways *w, const wd_train_options *options, const wd_strategy_plan *plan,
                    const memory_change *c)
{
    way new = {.strategy = plan->strategy,
               .step_seconds = plan->step_seconds,
               .window = plan->window,
               .same = keeps_student(c),
               .worse = makes_worse_student(c)};
    wd_train_options o = *options;
    int at = w->count;
    if (at == FOUND_MAX || is_needless(w, plan) ||
        wd_alloc((void **)&new.command, 1, COMMAND_MAX, "a command", NULL) != WD_OK)
        return;
    wd_teacher_choose(&o, wd_strategy_name(plan->strategy));
    wd_train_command(new.command, COMMAND_MAX, &o);
    for (; at > 0 && comes_before(&new, &w->way[at - 1]); at--) w->way[at] = w->way[at - 1];
    w->way[at] = new;
    w->count++;
}

/* Logs the fastest ways, among them the fastest that keeps the student, and frees all; returns how
 * many were logged. */
static int say_ways(ways *w)
{
    const int said = w->count < SUGGESTIONS_MAX ? w->count : SUGGESTIONS_MAX;
    int same = 0; /* the first that keeps it */
    while (same < w->count && !w->way[same].same) same++;
    const int last = same < said || same == w->count ? said - 1 : same;
    for (int i = 0; i < w->count; i++) {
        if (i < said - 1 || i == last) {
            wd_log(WD_LOG_ERROR, "  # %.3g s per step, window %" PRId64 "%s",
                   w->way[i].step_seconds, w->way[i].window,
                   w->way[i].worse ? ", a worse student" : "");
            wd_log(WD_LOG_ERROR, "  %s", w->way[i].command);
        }
        wd_free(w->way[i].command);
    }
    return said;
}

/* Lets the planner choose window, micro-batch and prefetch. They never change the student, and the
 * given ones may be the reason why the run does not fit. */
static void choose_window(wd_train_setup *s)
{
    s->given.teacher_window = s->given.teacher_micro_batch = 0;
    s->trainer.stepper.window = s->trainer.stepper.micro_batch = 0;
    s->given.teacher_prefetch = s->options.teacher_prefetch = wd_train_defaults().teacher_prefetch;
}

/* What planning a set of changes needs: too large for a small stack. */
typedef struct attempt {
    wd_train_variant changed;
    wd_train_plan plain; /* without the changes and without the map */
} attempt;

/* Sets *run up as the run with a set of changes, any strategy and any window; *given = the caller's
 * options with these changes. False: they have no effect, or the run may not have them. */
static bool begin_changed(wd_train_variant *run, wd_train_options *given, const memory_change *c,
                          const wd_train_plan *plan, const wd_train_setup *setup)
{
    if (!is_allowed(c, setup)) return false;
    if (c->place != WD_STATE_ON_DEVICE && plan->devices->processor == 0) return false;
    wd__train_variant_begin(run, setup);
    choose_window(&run->setup);
    run->setup.options.teacher_device_strategy = wd_strategy_name(WD_STRATEGY_auto);
    *given = run->setup.given;
    return apply_change(given, &run->setup.trainer.stepper, c);
}

/* Returns the peak of a device's memory, in bytes. For host memory it returns the sum of the peaks
 * of all ranks of the host, which are equal. */
static size_t peak_of(const wd_train_plan *plan, const wd_memory_plan *memory, int place)
{
    const int ranks = place == WD_MEMORY_HOST ? wd_cluster_host_ranks(&plan->input.cluster) : 1;
    return (size_t)ranks * wd_memory_plan_peak(memory, place);
}

/* Adds the ways with one set of changes and the map of `plan`, if any. */
static void find_changed(ways *w, const wd_train_plan *plan, const wd_train_setup *setup,
                         wd_train_variant *changed, const memory_change *c, size_t below)
{
    int order[WD_STRATEGY_auto], count = 0;
    const wd_strategy_plan *all;
    wd_train_options given;
    if (wd__train_plan_lacks_to_encode(plan)) return;
    if (!begin_changed(changed, &given, c, plan, setup)) return;
    if (wd__train_plan_open_like(&changed->plan, &changed->setup, plan, NULL) != WD_OK) return;
    if (wd_planner_all(&all, changed->plan.planner, NULL) == WD_OK)
        sort_fitting(order, &count, &changed->plan, all, below);
    for (int i = 0; i < count; i++) add_way(w, &given, &all[order[i]], c);
    wd_train_plan_close(&changed->plan);
}

/* Copies the plan without its map. */
static wd_status leave_map_out(wd_train_plan *out, const wd_train_plan *plan,
                               const wd_train_setup *setup)
{
    const int usual = plan->map.usual_text_encoder;
    *out = *plan;
    out->map = wd__teacher_map_none(usual);
    out->text = (wd_memory_plan){0};
    return wd__encoding_plan_memory(&out->text, setup, plan->devices, usual, NULL);
}

/* Logs up to SUGGESTIONS_MAX ways, the fastest first, of those with the fewest changes (with the
 * map before those without); returns their number. Changes that make a worse student are tried only
 * where no others help. `below`: the plans need fewer bytes of host memory and devices together. */
static int say_all(const wd_train_plan *plan, const wd_train_setup *setup, size_t below)
{
    ways found = {.count = 0};
    memory_change c;
    attempt *a;
    if (wd_alloc((void **)&a, 1, sizeof *a, "a plan", NULL) != WD_OK) return 0;
    const bool both = plan->map.given && leave_map_out(&a->plain, plan, setup) == WD_OK;
    for (int n = 0; found.count < FOUND_MAX && change_at(&c, n); n++) {
        find_changed(&found, plan, setup, &a->changed, &c, below);
        if (both) find_changed(&found, &a->plain, setup, &a->changed, &c, below);
    }
    wd_free(a);
    return say_ways(&found);
}

/* ---- after an allocation failed ---- */

void wd_suggestions_report(const wd_train_plan *plan, const wd_train_setup *setup,
                           const wd_memory_witness *witness, const wd_err *error)
{
    char text[160];
    const wd_devices *devices = plan->devices;
    const wd_comm *comm = setup->comm;
    wd_log(WD_LOG_ERROR, "out of memory, though the plan fits: %s", error->message);
    for (int d = 0; d < devices->count && (!comm || comm->ranks == 1); d++)
        wd_log(WD_LOG_ERROR, "[Rank 0, %s] %s", devices->name[d],
               wd_memory_witness_says(text, witness, d));
    wd_log(WD_LOG_ERROR,
           "somebody else has taken the memory since, or --host_memory said too much. "
           "What takes less, fastest first:");
    say_all(plan, setup, all_bytes(plan, &plan->chosen) / 10 * LESS);
}

/* ---- the refusal ---- */

static void say_missing(const wd_train_plan *plan, const wd_memory_plan *memory, int place,
                        size_t there)
{
    char needed[32], free[32], missing[32], item[32], beside[160];
    const size_t peak = peak_of(plan, memory, place);
    if (peak <= there) return;
    wd_log(WD_LOG_ERROR, "%s: %s needed, %s there; %s are missing (%zu bytes). Needed for:",
           wd_place_name(plan->devices, place), wd_bytes_text(needed, sizeof needed, peak),
           wd_bytes_text(free, sizeof free, there),
           wd_bytes_text(missing, sizeof missing, peak - there), peak - there);
    for (int i = 0; i < memory->items; i++)
        if (memory->item[i].place == place && memory->item[i].bytes >= peak / 100)
            wd_log(WD_LOG_ERROR, "  %-10s %-32s %s", wd_memory_phase_name(memory->item[i].phase),
                   memory->item[i].name, wd_bytes_text(item, sizeof item, memory->item[i].bytes));
    if (place != WD_MEMORY_HOST && wd_device_beside_text(beside, plan->devices->device[place]))
        wd_log(WD_LOG_ERROR, "  %s", beside);
}

/* Writes what the run lacks at least, with any changes that it may have: "sim:0 lacks 1.24 GiB".
 * Returns `out`. */
static const char *write_least_missing(char out[WD_PLAN_MISSING_TEXT], const wd_train_plan *plan,
                                       const wd_train_setup *setup)
{
    memory_change c;
    struct {
        wd_train_variant run;
        wd_train_options given;
        wd_strategy_plan least;
    } * s;
    wd__plan_missing_text(out, plan->devices, &plan->chosen);
    if (wd_alloc((void **)&s, 1, sizeof *s, "a plan", NULL) != WD_OK) return out;
    s->least = plan->chosen;
    for (int n = 0; change_at(&c, n); n++) {
        if (!begin_changed(&s->run, &s->given, &c, plan, setup)) continue;
        if (wd__train_plan_open_whole(&s->run.plan, &s->run.setup, plan, NULL) != WD_OK) continue;
        if (wd_planner_is_better(&s->run.plan.chosen, &s->least)) s->least = s->run.plan.chosen;
        wd_train_plan_close(&s->run.plan);
    }
    wd__plan_missing_text(out, plan->devices, &s->least);
    wd_free(s);
    return out;
}

/* The refusal of a run for which no command was found. `small`: what has no room to encode the
 * prompts; NULL: all have. */
static wd_status refuse_whatever(const wd_train_plan *plan, const wd_train_setup *setup,
                                 const char *small, wd_err *err)
{
    char missing[WD_PLAN_MISSING_TEXT];
    const char *map =
        plan->map.given ? ", or text_encoder and vae elsewhere in --teacher_device_map" : "";
    if (small)
        return wd_fail(
            err, WD_DOES_NOT_FIT,
            "the run does not fit, whatever the strategy: %s has no room for what encodes "
            "the prompts, and what the program takes: more memory%s",
            small, map);
    if (*setup->resume)
        return wd_fail(
            err, WD_DOES_NOT_FIT,
            "the run does not fit, whatever the strategy, and a resumed run keeps its student, "
            "dtypes, pictures and targets: resume it with more memory (%s)%s, or begin a new run, "
            "without --resume: it may have a smaller student (--student_config), --teacher_dtype "
            "bfloat16 or --mixed_precision bf16",
            write_least_missing(missing, plan, setup), map);
    return wd_fail(
        err, WD_DOES_NOT_FIT,
        "the run does not fit, whatever the strategy: take a smaller student "
        "(--student_config), fewer --trajectories, smaller pictures (--height, --width), "
        "or more memory%s",
        map);
}

wd_status wd__suggestions_refuse(const wd_train_plan *plan, const wd_train_setup *setup,
                                 wd_err *err)
{
    wd_log(WD_LOG_ERROR, "what would fit, fastest first:");
    const char *small = wd__train_plan_lacks_to_encode(plan);
    const bool any = say_all(plan, setup, SIZE_MAX);
    if (!any)
        wd_log(WD_LOG_ERROR, "  nothing with %s",
               *setup->resume ? "what a resumed run may change" : "this student and these devices");
    if (!small) wd__largest_student_log(plan, setup);
    if (any)
        return wd_fail(
            err, WD_DOES_NOT_FIT,
            "the run does not fit under --teacher_device_strategy %s; the commands above "
            "do",
            wd_strategy_name(plan->chosen.strategy));
    return refuse_whatever(plan, setup, small, err);
}

wd_status wd_suggestions_check(const wd_train_plan *plan, const wd_memory_plan *memory,
                               const wd_train_setup *setup, wd_err *err)
{
    const wd_devices *d = plan->devices;
    bool fits = peak_of(plan, memory, WD_MEMORY_HOST) <= plan->host_budget;
    for (int i = 0; i < d->count; i++)
        if (i != d->processor)
            fits &= wd_memory_plan_peak(memory, i) <= wd_device_bytes_max(d->device[i]);
    if (fits) return WD_OK;
    say_missing(plan, memory, WD_MEMORY_HOST, plan->host_budget);
    for (int i = 0; i < d->count; i++)
        if (i != d->processor) say_missing(plan, memory, i, wd_device_bytes_max(d->device[i]));
    return wd__suggestions_refuse(plan, setup, err);
}

/* ---- advice ---- */

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

/* Where auto has chosen a strategy, and others would take half the time or less, but lack memory:
 * the one of those that lacks least. Else NULL. */
static const wd_strategy_plan *find_nearly_fitting(const wd_train_plan *plan)
{
    const wd_strategy_plan *all, *found = NULL;
    if (!may_choose(plan) || !plan->chosen.fits) return NULL;
    if (wd_planner_all(&all, plan->planner, NULL) != WD_OK) return NULL;
    for (int i = 0; i < WD_STRATEGY_auto; i++)
        if (!all[i].objection && !all[i].fits &&
            is_much_faster(all[i].step_seconds, plan->chosen.step_seconds) &&
            (!found || wd_planner_is_better(&all[i], found)))
            found = &all[i];
    return found;
}

/* Plans the run with a set of changes. False: the changes have no effect, or the run does not
 * fit. */
static bool plan_changed(wd_train_variant *run, const memory_change *change,
                         const wd_train_plan *plan, const wd_train_setup *setup)
{
    if (change->place != WD_STATE_ON_DEVICE && plan->devices->processor == 0) return false;
    wd__train_variant_begin(run, setup);
    return apply_change(&run->setup.options, &run->setup.trainer.stepper, change) &&
           wd__train_variant_fits(run, plan);
}

/* The options of the changes: " --gradient_checkpointing". `o` has them, `given` has not. */
static void write_options(char out[TEXT_BYTES], const memory_change *c, const wd_train_options *o,
                          const wd_train_options *given)
{
    size_t n = 0;
    *out = 0;
    if (c->place == WD_STATE_ON_HOST)
        n = wd_append_text(out, TEXT_BYTES, n, " --optimizer_device host%s",
                           strcmp(given->ema_device, "device") ? "" : " --ema_device auto");
    if (c->place == WD_STATE_EMA_ON_HOST)
        n = wd_append_text(out, TEXT_BYTES, n, " --ema_device host");
    if (c->bf16_teacher) n = wd_append_text(out, TEXT_BYTES, n, " --teacher_dtype bfloat16");
    if (c->bf16_student) n = wd_append_text(out, TEXT_BYTES, n, " --mixed_precision bf16");
    if (c->checkpointing) n = wd_append_text(out, TEXT_BYTES, n, " --gradient_checkpointing");
    if (c->moments_in_8_bits) n = wd_append_text(out, TEXT_BYTES, n, " --optimizer adamw8bit");
    if (c->bf16_gradients) n = wd_append_text(out, TEXT_BYTES, n, " --gradient_dtype bfloat16");
    if (c->small_replay)
        n = wd_append_text(out, TEXT_BYTES, n, " --target_replay %" PRId64, o->target_replay);
    if (c->off_policy) n = wd_append_text(out, TEXT_BYTES, n, " --on_policy_share 0");
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
    char missing[WD_PLAN_MISSING_TEXT];
    const wd_strategy_plan *nearly = find_nearly_fitting(plan);
    if (wd_log_rank()) return;
    warn_of_slow_choice(plan);
    if (nearly)
        wd_log(WD_LOG_WARNING,
               "%s takes %.3g s per step; %s would take %.3g s, but %s: `wandistiller plan` with "
               "the same options says what helps",
               wd_strategy_name(plan->chosen.strategy), plan->chosen.step_seconds,
               wd_strategy_name(nearly->strategy), nearly->step_seconds,
               wd__plan_missing_text(missing, plan->devices, nearly));
}

/* Options with which a run is much faster. */
typedef struct advice {
    char options[TEXT_BYTES]; /* "": none was found */
    wd_strategy strategy;
    double seconds;
    bool worse; /* the student is */
} advice;

/* The fastest run with changes that make no worse student; if none is much faster, with others. */
static advice find_advice(const wd_train_plan *plan, const wd_train_setup *setup)
{
    memory_change change;
    wd_train_variant *run;
    advice best = {.seconds = plan->chosen.step_seconds};
    if (wd_alloc((void **)&run, 1, sizeof *run, "a plan", NULL) != WD_OK) return best;
    for (int n = 1; change_at(&change, n); n++) {
        const wd_strategy_plan *found = &run->plan.chosen;
        if (makes_worse_student(&change) && *best.options && !best.worse) break;
        if (!is_allowed(&change, setup) || !plan_changed(run, &change, plan, setup)) continue;
        if (!is_much_faster(found->step_seconds, best.seconds)) continue;
        best.seconds = found->step_seconds;
        best.strategy = found->strategy;
        best.worse = makes_worse_student(&change);
        write_options(best.options, &change, &run->setup.options, &setup->given);
    }
    wd_free(run);
    return best;
}

/* The seconds per step without checkpointing, wherever the options let the optimizer's state be; of
 * a run that does not fit without it, those of the plan. */
static double seconds_without_checkpointing(const wd_train_plan *plan, const wd_train_setup *setup)
{
    const wd_state_place now = setup->trainer.stepper.place;
    const wd_state_place last = plan->devices->processor == 0 ? now : WD_STATE_ON_HOST;
    double best = plan->chosen.step_seconds;
    wd_train_variant *run;
    if (wd_alloc((void **)&run, 1, sizeof *run, "a plan", NULL) != WD_OK) return best;
    for (int i = now; i <= (int)last; i++) {
        const wd_state_place place = (wd_state_place)i;
        if (place != now && !wd__state_may_be(place, &setup->given)) continue;
        wd__train_variant_begin(run, setup);
        run->setup.options.gradient_checkpointing = false;
        run->setup.trainer.stepper.checkpointing = false;
        wd__state_put(place, &run->setup.options, &run->setup.trainer.stepper);
        if (wd__train_variant_fits(run, plan) && run->plan.chosen.step_seconds < best)
            best = run->plan.chosen.step_seconds;
    }
    wd_free(run);
    return best;
}

/* Checkpointing costs time, and only saves memory. */
static void advise_against_checkpointing(const wd_train_plan *plan, const wd_train_setup *setup)
{
    const double now = plan->chosen.step_seconds;
    if (!setup->trainer.stepper.checkpointing) return;
    const double without = seconds_without_checkpointing(plan, setup);
    if (without <= GAIN * now)
        wd_log(WD_LOG_INFO,
               "the run also fits without --gradient_checkpointing, and then takes %.3g s per step "
               "instead of %.3g",
               without, now);
}

void wd__advice_log(const wd_train_plan *plan, const wd_train_setup *setup)
{
    char missing[WD_PLAN_MISSING_TEXT];
    const wd_strategy_plan *now = &plan->chosen, *nearly = find_nearly_fitting(plan);
    warn_of_slow_choice(plan);
    advise_against_checkpointing(plan, setup);
    if (!nearly) return;
    const advice best = find_advice(plan, setup);
    if (*best.options)
        wd_log(WD_LOG_WARNING,
               "%s is the fastest strategy that fits, and takes %.3g s per step. Add%s%s: the run "
               "then takes %.3g s per step, with %s",
               wd_strategy_name(now->strategy), now->step_seconds, best.options,
               best.worse ? ", which makes a worse student" : "", best.seconds,
               wd_strategy_name(best.strategy));
    else
        wd_log(WD_LOG_WARNING,
               "%s is the fastest strategy that fits, and takes %.3g s per step; %s would take "
               "%.3g s, but %s. %s",
               wd_strategy_name(now->strategy), now->step_seconds,
               wd_strategy_name(nearly->strategy), nearly->step_seconds,
               wd__plan_missing_text(missing, plan->devices, nearly),
               *setup->resume ? "A resumed run may change nothing that makes so much room"
                              : "A smaller student (--student_config), smaller pictures (--height, "
                                "--width) or fewer --trajectories make room");
}
