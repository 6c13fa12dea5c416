/* Plans as text and JSON: see api/plan/plan_print.h. */
#include "api/plan/plan_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/plan/optimizer_place.h"
#include "api/plan/plan_verdict.h"
#include "api/plan/sheets.h"
#include "api/plan/target_reuse.h"
#include "api/plan/targets_plan.h"
#include "api/plan/validation_plan.h"
#include "api/setup/memory_report.h"
#include "core/text.h"
#include "train/network/params.h"

enum { CELL = 32, LIMIT = 17, LIMIT_OF_RANKS = 27, FEW_DEVICES = 4 };

/* Smaller items are shown with --verbose only. */
static const size_t SMALL_ITEM = 1 << 20;

static double billions(const wd_dit_config *config)
{
    return (double)wd_dit_parameters(config) * 1e-9;
}

static bool is_pool(const wd_devices *d, int device)
{
    return device != d->processor;
}

static bool has_pools(const wd_devices *d)
{
    return d->count > 1;
}

/* ---- the run ---- */

static bool are_alike(const wd_cluster_device *a, const wd_cluster_device *b)
{
    return a->bytes == b->bytes && a->link_bytes_per_s == b->link_bytes_per_s &&
           !memcmp(a->flops_per_s, b->flops_per_s, sizeof a->flops_per_s);
}

/* Writes a device's rates of what teacher and student compute in: "312 TFLOP/s in bf16, 19.5 in
 * fp32". */
static const char *rates_text(char out[64], const wd_cluster *cluster, int device)
{
    const double *rate = cluster->device[device].flops_per_s;
    char student[32] = "";
    if (cluster->student != cluster->teacher)
        snprintf(student, sizeof student, ", %.3g in %s", rate[cluster->student] * 1e-12,
                 wd_precision_name(cluster->student));
    snprintf(out, 64, "%.3g TFLOP/s in %s%s", rate[cluster->teacher] * 1e-12,
             wd_precision_name(cluster->teacher), student);
    return out;
}

/* Prints the devices except the processor; equal neighbours are printed together. */
static void say_pools(wd_text_builder *p, const wd_devices *d, const wd_cluster *cluster)
{
    char bytes[CELL], rates[64];
    wd_text_builder_say(p, "devices ");
    for (int i = 0, last; i < d->count; i = last + 1) {
        const wd_cluster_device *s = &cluster->device[i];
        last = i;
        if (!is_pool(d, i)) continue;
        while (last + 1 < d->count && is_pool(d, last + 1) &&
               are_alike(s, &cluster->device[last + 1]))
            last++;
        wd_text_builder_say(p, " %s%s%s %s%s (%s, link %.3g GB/s),", d->name[i],
                            last > i ? " to " : "", last > i ? d->name[last] : "",
                            wd_bytes_text(bytes, sizeof bytes, s->bytes), last > i ? " each" : "",
                            rates_text(rates, cluster, i), s->link_bytes_per_s * 1e-9);
    }
}

/* What of GPUs' memory is no run's, nor any plan's. */
static void say_beside(wd_text_builder *p, const wd_devices *d)
{
    char beside[160];
    for (int i = 0; i < d->count; i++)
        if (wd_device_beside_text(beside, d->device[i]))
            wd_text_builder_say(p, "%-8s %s\n", d->name[i], beside);
}

static void say_head(wd_text_builder *p, const wd_plan_table *t)
{
    char bytes[CELL], rates[64];
    const wd_devices *d = t->plan->devices;
    const wd_stepper_options *m = &t->setup->trainer.stepper;
    const wd_train_options *o = &t->setup->options;
    const int experts = wd_teacher_experts(&t->setup->teacher);
    if (d->list.device[0].type == WD_DEVICE_SIM)
        wd_text_builder_say(
            p, "simulated: the devices below need not be there; what they can do is what "
               "--devices says\n");
    wd_text_builder_say(p, "teacher  %s, %s: %s%.3g billion weights\n", t->teacher,
                        o->teacher_dtype, experts > 1 ? "2 x " : "", billions(&m->teacher->dit));
    wd_text_builder_say(p,
                        "student  %.3g billion weights, %s, batch %" PRId64 " x %" PRId64
                        "%s; %" PRId64 "x%" PRId64 " pixels, %" PRId64 " rows of text, %" PRId64
                        " trajectories\n",
                        billions(&m->student), m->student_dtype == WD_BF16 ? "bf16" : "fp32",
                        m->batch, m->accumulation, m->checkpointing ? ", checkpointing" : "",
                        o->width, o->height, m->text_tokens, m->trajectory.slots);
    const wd_cluster *cluster = &t->plan->input.cluster;
    if (cluster->ranks > 1)
        wd_text_builder_say(
            p,
            "ranks    %d on %d host%s: a global batch of %.0f; %.3g GB/s from host to host, "
            "%.3g within one. Of each rank:\n",
            cluster->ranks, cluster->hosts, cluster->hosts > 1 ? "s" : "", t->plan->step_samples,
            cluster->network_bytes_per_s * 1e-9, cluster->memory_bytes_per_s * 1e-9);
    say_pools(p, d, cluster);
    wd_text_builder_say(
        p, " cpu (%s), host memory %s, disk %.3g GB/s\n", rates_text(rates, cluster, d->processor),
        wd_bytes_text(bytes, sizeof bytes, cluster->host_bytes), cluster->disk_bytes_per_s * 1e-9);
    say_beside(p, d);
    wd_text_builder_say(p, "\n");
}

/* ---- all strategies ---- */

static bool has_ranks(const wd_plan_table *t)
{
    return t->plan->input.cluster.ranks > 1;
}

static int limit_columns(const wd_plan_table *t)
{
    return has_ranks(t) ? LIMIT_OF_RANKS : LIMIT;
}

const char *wd__plan_missing_text(char out[WD_PLAN_MISSING_TEXT], const wd_devices *d,
                                  const wd_strategy_plan *s)
{
    char bytes[CELL];
    int worst = WD_MEMORY_HOST;
    size_t most = s->host_missing;
    for (int i = 0; i < s->bytes.devices; i++)
        if (s->missing[i] > most) most = s->missing[i], worst = i;
    const int own = worst == WD_MEMORY_HOST ? 0 : wd_placed_local(&s->placement, worst);
    snprintf(out, WD_PLAN_MISSING_TEXT, "%s lacks %s",
             worst == WD_MEMORY_HOST ? "host" : d->name[own],
             wd_bytes_text(bytes, sizeof bytes, most));
    return out;
}

static const char *fits_text(char out[64], const wd_plan_table *t, const wd_strategy_plan *s)
{
    char missing[WD_PLAN_MISSING_TEXT];
    if (s->fits) return "yes";
    snprintf(out, 64, "no, %s", wd__plan_missing_text(missing, t->plan->devices, s));
    return out;
}

static void say_bytes(wd_text_builder *p, double bytes)
{
    char text[CELL];
    wd_text_builder_say(p, " %9s", wd_bytes_text(text, sizeof text, (size_t)bytes));
}

/* Whether the table of strategies shows the fullest device, which decides whether a strategy fits,
 * instead of each one: the short table does where there are several. */
static bool shows_fullest(const wd_plan_table *t)
{
    return !t->verbose && t->plan->devices->count > 2;
}

static void say_peaks(wd_text_builder *p, const wd_plan_table *t, const wd_strategy_plan *s)
{
    const wd_devices *d = t->plan->devices;
    size_t most = 0;
    say_bytes(p, (double)wd_placed_host_peak(&s->bytes, &t->plan->input.cluster));
    for (int i = 0; i < d->count; i++) {
        if (!is_pool(d, i)) continue;
        const size_t peak = wd__train_plan_peak(t->plan, s, i);
        if (!shows_fullest(t)) say_bytes(p, (double)peak);
        if (peak > most) most = peak;
    }
    if (shows_fullest(t)) say_bytes(p, (double)most);
    wd_text_builder_say(p, "\n");
}

/* The bytes that a step copies, by kind of link. */
static void say_traffic(wd_text_builder *p, const wd_plan_table *t, const wd_strategy_plan *s)
{
    say_bytes(p, s->step_bytes[WD_LINK_READ]);
    if (has_pools(t->plan->devices)) {
        say_bytes(p, s->step_bytes[WD_LINK_IN]);
        say_bytes(p, s->step_bytes[WD_LINK_OUT]);
        say_bytes(p, s->step_bytes[WD_LINK_ACROSS]);
    }
    if (has_ranks(t)) say_bytes(p, s->step_bytes_sent);
}

static void say_strategy(wd_text_builder *p, const wd_plan_table *t, int k)
{
    char fits[64], limit[64], window[64];
    const wd_strategy_plan *s = &t->strategy[k];
    const bool is_best = s->fits && s->strategy == t->best->strategy;
    if (s->objection && !t->verbose) return;
    wd_text_builder_say(p, "%c %-11s ", is_best ? '*' : ' ', wd_strategy_name(s->strategy));
    if (s->objection) {
        wd_text_builder_say(p, "%s\n", s->objection);
        return;
    }
    wd_text_builder_say(p, "%-24s", fits_text(fits, t, s));
    snprintf(window, sizeof window, "%" PRId64 "/%" PRId64, s->window, s->micro_batch);
    if (t->verbose) wd_text_builder_say(p, " %8s", window);
    wd_text_builder_say(p, " %9.3g", s->step_seconds);
    if (has_ranks(t) && t->verbose)
        wd_text_builder_say(p, " %9.4g", wd__train_plan_samples_per_s(t->plan, s));
    wd_text_builder_say(p, "  %-*s", limit_columns(t),
                        wd__train_plan_limit(limit, sizeof limit, t->plan, s));
    if (t->verbose) say_traffic(p, t, s);
    say_peaks(p, t, s);
}

static void say_titles(wd_text_builder *p, const wd_plan_table *t)
{
    const wd_devices *d = t->plan->devices;
    wd_text_builder_say(p, "  %-11s %-24s", "strategy", "fits");
    if (t->verbose) wd_text_builder_say(p, " %8s", "window");
    wd_text_builder_say(p, " %9s", "s/step");
    if (has_ranks(t) && t->verbose) wd_text_builder_say(p, " %9s", "samples/s");
    wd_text_builder_say(p, "  %-*s", limit_columns(t), "limited by");
    if (t->verbose) wd_text_builder_say(p, " %9s", "read");
    if (t->verbose && has_pools(d)) wd_text_builder_say(p, " %9s %9s %9s", "in", "out", "across");
    if (t->verbose && has_ranks(t)) wd_text_builder_say(p, " %9s", "sent");
    wd_text_builder_say(p, " %9s", "host");
    for (int i = 0; i < d->count && !shows_fullest(t); i++)
        if (is_pool(d, i)) wd_text_builder_say(p, " %9s", d->name[i]);
    if (shows_fullest(t)) wd_text_builder_say(p, " %9s", "fullest");
    wd_text_builder_say(p, "\n");
}

/* What the columns of the table mean. */
static void say_legend(wd_text_builder *p, const wd_plan_table *t)
{
    if (t->best->fits)
        wd_text_builder_say(p, "\n* is the fastest strategy that fits.");
    else
        wd_text_builder_say(p, "\nNo strategy fits; %s lacks least.",
                            wd_strategy_name(t->best->strategy));
    wd_text_builder_say(p, " The last columns are memory%s.%s\n",
                        has_ranks(t) ? " of a host and of the fullest rank" : "",
                        t->verbose ? "" : "\nMore is shown with --verbose.");
    if (!t->verbose) return;
    wd_text_builder_say(
        p,
        "\"window\" is how many trajectories one pass over the teacher's weights advances, "
        "and how many at a time.\n"
        "Bytes of a step%s: \"read\" from disk%s%s.\n",
        has_ranks(t) ? " of all ranks" : "",
        has_pools(t->plan->devices)
            ? ", \"in\" from host memory to devices, \"out\" to host memory, \"across\" from "
              "device to device"
            : "",
        has_ranks(t) ? ", \"sent\" to other ranks by the rank that sends most" : "");
}

static void say_step_loras(wd_text_builder *p, const wd_step_loras *loras)
{
    if (!(loras->seconds > 0)) return;
    wd_text_builder_say(p,
                        "with LoRAs for four steps without guidance, such as lightx2v's, the "
                        "teacher makes one evaluation for each velocity, and a step takes %.3g s: "
                        "--teacher_lora, --guidance_scale 1",
                        loras->seconds);
    if (loras->teacher_dtype)
        wd_text_builder_say(p,
                            ", and --teacher_dtype %s, without which weights that LoRAs change do "
                            "not stay quantised",
                            loras->teacher_dtype);
    wd_text_builder_say(p, " (docs/which-recipe.md)\n");
}

static void say_strategies(wd_text_builder *p, const wd_plan_table *t)
{
    const char *small = wd__train_plan_lacks_to_encode(t->plan);
    char sheets[WD_SHEETS_TEXT], place[WD_OPTIMIZER_PLACE_TEXT], targets[WD_TARGETS_TEXT];
    char line[256], reuse[WD_TARGET_REUSE_TEXT], validation[WD_VALIDATION_TEXT];
    if (t->plan->no_teacher) {
        wd_train_plan_line(line, sizeof line, t->plan, t->shown);
        wd_text_builder_say(p, "%s\n", line);
    } else {
        say_titles(p, t);
        for (int k = 0; k < WD_STRATEGY_auto; k++) say_strategy(p, t, k);
        say_legend(p, t);
    }
    if (small)
        wd_text_builder_say(p, "train refuses %s: %s has no room for what encodes the prompts%s\n",
                            t->plan->map.given ? "custom" : "them all", small,
                            t->setup->options.init_student ? ", or chooses the start's blocks"
                                                           : "");
    if (t->shown->fits && t->guided_seconds > 0 && !t->plan->no_teacher)
        wd_text_builder_say(
            p,
            "this run has no guidance; with it the teacher makes two evaluations for each "
            "velocity: %.3g s per step\n",
            t->guided_seconds);
    say_step_loras(p, &t->step_loras);
    if (*wd_optimizer_place_text(place, t->plan, t->setup)) wd_text_builder_say(p, "%s\n", place);
    if (*wd_target_reuse_text(reuse, t->plan, t->setup)) wd_text_builder_say(p, "%s\n", reuse);
    if (*wd_sheets_text(sheets, t->plan, t->setup)) wd_text_builder_say(p, "%s\n", sheets);
    if (*wd_targets_plan_text(targets, t->plan, t->setup)) wd_text_builder_say(p, "%s\n", targets);
    if (*wd_validation_plan_text(validation, t->plan, t->setup))
        wd_text_builder_say(p, "%s\n", validation);
    for (int k = 0; k < WD_STRATEGY_auto; k++) {
        const bool shown = t->verbose || t->strategy[k].strategy == t->shown->strategy;
        if (shown && wd_train_plan_cache_line(line, sizeof line, &t->strategy[k]))
            wd_text_builder_say(p, "%s\n", line);
    }
    wd_text_builder_say(p, "\n");
}

/* ---- one strategy, item by item ---- */

/* The device with this number in its rank, of the rank where it has the largest peak. */
static const wd_placed_device *fullest(const wd_train_plan *plan, const wd_strategy_plan *candidate,
                                       int device)
{
    const wd_placed_device *most = &candidate->bytes.device[device];
    for (int d = device; d < candidate->bytes.devices; d += plan->input.cluster.devices)
        if (wd_placed_total(&candidate->bytes.device[d]) > wd_placed_total(most))
            most = &candidate->bytes.device[d];
    return most;
}

wd_memory_plan wd__plan_items(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    wd_memory_plan items = {0};
    const wd_memory_plan *without_teacher = &plan->without_teacher[candidate->decodes_on_processor];
    const wd_memory_phase now = WD_MEMORY_TRAINING;
    const size_t ranks = (size_t)wd_cluster_host_ranks(&plan->input.cluster);
    wd_memory_plan_add(&items, "teacher weights", now, WD_MEMORY_HOST,
                       candidate->bytes.host.weights / ranks);
    wd_memory_plan_add(&items, "teacher weights on their way", now, WD_MEMORY_HOST,
                       candidate->bytes.host.reading / ranks);
    for (int d = 0; d < plan->devices->count; d++) {
        const wd_placed_device *b = fullest(plan, candidate, d);
        int place = is_pool(plan->devices, d) ? d : WD_MEMORY_HOST;
        wd_memory_plan_add(&items, "teacher weights", now, place, b->weights);
        wd_memory_plan_add(&items, "teacher weights on their way", now, place, b->streaming);
        wd_memory_plan_add(&items, "teacher weights, widened", now, place, b->widening);
        wd_memory_plan_add(&items, "teacher activations", now, place, b->activations);
        wd_memory_plan_add(&items, "teacher workspace", now, place, b->workspace);
    }
    for (int i = 0; i < without_teacher->items; i++) {
        const wd_memory_item *item = &without_teacher->item[i];
        wd_memory_plan_add(&items, item->name, item->phase, item->place, item->bytes);
    }
    return items;
}

static bool is_same_row(const wd_memory_item *a, const wd_memory_item *b)
{
    return a->phase == b->phase && !strcmp(a->name, b->name);
}

/* How many devices, from the first, the table of items has columns for. */
static int shown_devices(const wd_plan_table *t)
{
    const int count = t->plan->devices->count;
    return t->verbose || count < FEW_DEVICES ? count : FEW_DEVICES;
}

/* Prints a row with all items of one name: host memory, then devices up to the last one that has
 * such an item. */
static void say_row(wd_text_builder *p, const wd_plan_table *t, const wd_memory_plan *items,
                    int first)
{
    const wd_devices *d = t->plan->devices;
    char name[64], cell[CELL];
    size_t host = 0, most = 0, bytes[WD_PLACED_DEVICES_MAX] = {0};
    int end = 0;
    const wd_memory_item *row = &items->item[first];
    for (int i = first; i < items->items; i++) {
        const wd_memory_item *item = &items->item[i];
        if (!is_same_row(item, row)) continue;
        *(item->place == WD_MEMORY_HOST ? &host : &bytes[item->place]) = item->bytes;
        if (item->place >= end) end = item->place + 1;
        if (item->bytes > most) most = item->bytes;
    }
    if (most < SMALL_ITEM && !t->verbose) return;
    if (end > shown_devices(t)) end = shown_devices(t);
    const bool always = row->phase == WD_MEMORY_TRAINING || row->phase == WD_MEMORY_PROGRAM;
    snprintf(name, sizeof name, "%s%s%s", row->name, always ? "" : ", while ",
             always ? "" : wd_memory_phase_name(row->phase));
    wd_text_builder_say(p, "  %-44s %9s", name, host ? wd_bytes_text(cell, sizeof cell, host) : "");
    for (int i = 0; i < end; i++)
        if (is_pool(d, i))
            wd_text_builder_say(p, " %9s",
                                bytes[i] ? wd_bytes_text(cell, sizeof cell, bytes[i]) : "");
    wd_text_builder_say(p, "\n");
}

static void say_items(wd_text_builder *p, const wd_plan_table *t)
{
    const wd_memory_plan items = wd__plan_items(t->plan, t->shown);
    const wd_devices *d = t->plan->devices;
    wd_text_builder_say(p, "%s, by what it is%s:\n  %-44s %9s",
                        t->plan->no_teacher ? "memory" : wd_strategy_name(t->shown->strategy),
                        t->plan->input.cluster.ranks > 1
                            ? ", of the fullest rank; of what a host's ranks share "
                              "its part"
                            : "",
                        "", "host");
    for (int i = 0; i < shown_devices(t); i++)
        if (is_pool(d, i)) wd_text_builder_say(p, " %9s", d->name[i]);
    wd_text_builder_say(p, "\n");
    for (int i = 0; i < items.items; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= is_same_row(&items.item[k], &items.item[i]);
        if (!again) say_row(p, t, &items, i);
    }
}

wd_status wd__plan_table_text(char **out, const wd_plan_table *table, wd_err *err)
{
    wd_text_builder p = {.err = err};
    say_head(&p, table);
    say_strategies(&p, table);
    say_items(&p, table);
    if (table->verbose) wd__plan_links_say(&p, table->plan, table->shown);
    wd__disk_plan_say(&p, table->disks);
    wd__plan_verdict_say(&p, table);
    return wd_text_builder_take(out, &p);
}

/* ---- JSON ---- */

/* The known rates of a device: {"bf16": ..., "fp32": ...}. */
static json_t *rates_json(const wd_cluster_device *device)
{
    json_t *rates = json_object();
    for (int k = 0; k < WD_PRECISIONS; k++)
        if (device->flops_per_s[k] > 0)
            json_object_set_new(rates, wd_precision_name((wd_precision)k),
                                json_real(device->flops_per_s[k]));
    return rates;
}

json_t *wd__plan_table_json(const wd_plan_table *table)
{
    const wd_devices *d = table->plan->devices;
    const wd_cluster *cluster = &table->plan->input.cluster;
    const wd_memory_plan *without_teacher =
        &table->plan->without_teacher[table->shown->decodes_on_processor];
    json_t *devices = json_array(), *strategies = json_array(), *items = json_array();
    const wd_stepper_options *m = &table->setup->trainer.stepper;
    const int64_t reuse = wd_stepper_in_phase_of_most_targets(m).reuse;
    const wd_state_place place = m->place;
    for (int i = 0; i < d->count; i++) {
        const wd_cluster_device *s = &cluster->device[i];
        json_t *device = json_pack("{s:s, s:o}", "name", d->name[i], "flops_per_s", rates_json(s));
        if (is_pool(d, i)) {
            json_object_set_new(device, "bytes", json_integer((json_int_t)s->bytes));
            json_object_set_new(device, "link_bytes_per_s", json_real(s->link_bytes_per_s));
            const wd_traits *traits = wd_device_traits(d->device[i]);
            json_object_set_new(device, "bytes_beside",
                                json_integer((json_int_t)traits->bytes_beside));
            json_object_set_new(device, "bytes_of_others",
                                json_integer((json_int_t)traits->bytes_of_others));
        }
        json_array_append_new(devices, device);
    }
    for (int k = 0; k < WD_STRATEGY_auto; k++)
        json_array_append_new(strategies, wd_strategy_plan_json(table->plan, &table->strategy[k]));
    for (int i = 0; i < without_teacher->items; i++)
        json_array_append_new(
            items, json_pack("{s:s, s:s, s:s, s:I}", "name", without_teacher->item[i].name, "where",
                             wd_place_name(d, without_teacher->item[i].place), "while",
                             wd_memory_phase_name(without_teacher->item[i].phase), "bytes",
                             (json_int_t)without_teacher->item[i].bytes));
    return json_pack(
        "{s:o, s:I, s:I, s:i, s:i, s:f, s:o, s:I, s:f, s:f, s:f, s:o, s:o, s:s?, s:s, s:s?, "
        "s:b, s:I, s:s, s:s?, s:I, s:o, s:o, s:s?, s:o, s:o, s:o, s:o}",
        "teacher", wd_json_string(table->teacher), "teacher_parameters",
        (json_int_t)wd_dit_parameters(&table->setup->trainer.stepper.teacher->dit),
        "student_parameters", (json_int_t)wd_dit_parameters(&table->setup->trainer.stepper.student),
        "ranks", cluster->ranks, "hosts", cluster->hosts, "samples_per_step",
        table->plan->step_samples, "devices", devices, "host_bytes",
        (json_int_t)cluster->host_bytes, "disk_bytes_per_s", cluster->disk_bytes_per_s,
        "memory_bytes_per_s", cluster->memory_bytes_per_s, "network_bytes_per_s",
        cluster->network_bytes_per_s, "beside", items, "strategies", strategies, "recommended",
        table->best->fits ? wd_strategy_name(table->best->strategy) : NULL, "train_takes",
        wd_strategy_name(table->plan->chosen.strategy), "no_room_to_encode",
        wd__train_plan_lacks_to_encode(table->plan), "sample_sheets",
        table->setup->trainer.samples.count > 0, "merged_bytes",
        (json_int_t)table->plan->merged_bytes, "optimizer_device", wd__optimizer_device_of(place),
        "ema_device", table->setup->trainer.stepper.ema ? wd__ema_device_of(place) : NULL,
        "target_reuse", (json_int_t)reuse, "guided_seconds_per_step",
        table->guided_seconds > 0 ? json_real(table->guided_seconds) : json_null(),
        "step_loras_seconds_per_step",
        table->step_loras.seconds > 0 ? json_real(table->step_loras.seconds) : json_null(),
        "step_loras_teacher_dtype", table->step_loras.teacher_dtype, "disk",
        wd__disk_plan_json(table->disks), "verdict", wd__plan_verdict_json(table), "targets",
        wd__targets_plan_json(table->plan, table->setup), "validation",
        wd__validation_plan_json(table->plan, table->setup));
}
