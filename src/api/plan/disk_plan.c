/* The disk space of a run: counted, compared, and shown as text and as JSON. See
 * api/plan/disk_plan.h. */
#include "api/plan/disk_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "api/options/options.h"
#include "api/plan/targets_plan.h"
#include "api/plan/validation_plan.h"
#include "api/setup/memory_report.h"
#include "core/log.h"
#include "model/text_cache/text_cache.h"
#include "report/report.h"
#include "train/loop/tensorboard.h"
#include "train/output/checkpoint_list.h"
#include "train/output/export.h"

/* A run that leaves less than this share of what it writes free is warned of. */
static const double SHARE_LEFT = 0.1;

/* Checkpoints that are written by time are counted for a run that takes so many times as long as is
 * predicted. */
static const double SLOWER = 1.5;

/* ---- items ---- */

/* Sets the item's file system, that of `path`. There are no more than WD_DISKS_MAX, since there are
 * only so many folders: output, checkpoints, sheets, cache and targets. */
static wd_status find_disk(wd_disk_item *item, wd_disk_plan *p, const char *path, wd_err *err)
{
    wd_disk_space space;
    WD_TRY(wd_disk_space_of(&space, path, err));
    int i = 0;
    while (i < p->disks && p->disk[i].space.device != space.device) i++;
    if (i == p->disks) p->disk[p->disks++] = (wd_disk){.space = space};
    item->disk = i;
    return WD_OK;
}

/* Adds an item like `like`, unless it is empty. */
__attribute__((format(printf, 4, 5))) static void add(wd_disk_plan *p, wd_disk_item like,
                                                      uint64_t bytes, const char *name, ...)
{
    va_list list;
    if (!bytes || p->items == WD_DISK_ITEMS_MAX) return;
    like.bytes = bytes;
    va_start(list, name);
    vsnprintf(like.name, sizeof like.name, name, list);
    va_end(list);
    p->item[p->items++] = like;
}

/* *bytes = at most those of the quantised weights of a preset, which has no files to look at. */
static wd_status preset_bytes(uint64_t *bytes, const wd_pipeline *teacher, wd_err *err)
{
    wd_tensor_table table;
    WD_TRY(wd_dit_table_open(&table, &teacher->dit, err));
    *bytes = 0;
    for (int64_t i = 0; i < table.count; i++) {
        const wd_tensor_spec *spec = &table.spec[i];
        uint64_t count = 1;
        for (int k = 0; k < spec->ndim; k++) count *= (uint64_t)spec->dim[k];
        if (wd_overlay_quantises(spec, WD_BF16, teacher->overlay.quantised))
            *bytes += count + (uint64_t)spec->dim[0] * sizeof(float); /* and a scale for each row */
    }
    wd_dit_table_close(&table);
    *bytes *= (uint64_t)wd_teacher_experts(teacher);
    return WD_OK;
}

static wd_status add_cache(wd_disk_plan *p, const wd_train_plan *plan, const wd_train_setup *s,
                           wd_err *err)
{
    wd_disk_item item = {.folder = WD_DISK_CACHE};
    const bool quantises = s->teacher.overlay.quantised != WD_F32;
    WD_TRY(find_disk(&item, p, s->cache_dir, err));
    add(p, item, plan->merged_bytes, "%s weights of the teacher",
        quantises ? "quantised" : "merged");
    item.is_bound = true;
    if (quantises && !*s->teacher.path) {
        uint64_t bytes;
        WD_TRY(preset_bytes(&bytes, &s->teacher, err));
        add(p, item, bytes, "quantised weights of the teacher");
    }
    WD_TRY(find_disk(&item, p, s->text_dir, err));
    if (s->options.targets || s->options.save_targets) item.folder = WD_DISK_TARGETS;
    if (s->options.cache_dir) item.folder = WD_DISK_CACHE;
    if (s->embeds.cache)
        add(p, item, wd_text_cache_bytes_to_write(s->embeds.cache), "prompt embeddings");
    if (!s->comm || !s->comm->rank)
        add(p, item, wd__validation_plan_bytes(s), "states of validation");
    return WD_OK;
}

/* ---- checkpoints ---- */

/* The steps that the checkpoint has made from which the run goes on. */
static double steps_done(const wd_train_setup *s)
{
    return s->first_step ? (double)s->first_step - 1 : 0;
}

/* The steps that the run still makes, by steps or by time; INFINITY: nobody knows. */
static double steps_to_come(const wd_train_plan *plan, const wd_train_setup *s)
{
    const wd_train_options *o = &s->options;
    const double by_time =
        o->max_minutes > 0 ? 60 * o->max_minutes / plan->chosen.step_seconds : INFINITY;
    const double by_steps = o->num_steps ? fmax(0, (double)o->num_steps - steps_done(s)) : INFINITY;
    return fmin(by_time, by_steps);
}

/* How many checkpoints the run writes at most, the one at its end included. */
static double checkpoints_to_come(const wd_train_plan *plan, const wd_train_setup *s)
{
    const double steps = steps_to_come(plan, s), begin = steps_done(s), end = begin + steps;
    const wd_trainer_options *t = &s->trainer;
    const double each = (double)t->checkpoint_interval;
    const double limit_s = s->options.max_minutes > 0 ? 60 * s->options.max_minutes : INFINITY;
    if (s->first_step && !(steps > 0)) return 0; /* only the student is written */
    if (t->checkpoint_interval) return ceil(end / each) - floor(begin / each);
    return floor(fmin(SLOWER * steps * plan->chosen.step_seconds, limit_s) / t->checkpoint_s) + 1;
}

/* Adds the checkpoints of a run that keeps so many; returns how many are there at its end, at most.
 * The next one is written before the oldest of those that are kept is removed. */
static double add_kept(wd_disk_plan *p, double keep, int disk)
{
    wd_disk_item item = {.disk = disk, .folder = WD_DISK_CHECKPOINTS};
    const double there = p->checkpoints.there, all = there + p->checkpoints.come;
    const double sure = there + p->checkpoints.sure;
    const double kept = fmin(keep, all), most = fmin(keep + 1, all);
    const double known = fmax(there, fmin(kept, sure));
    if (known > there)
        add(p, item, (uint64_t)(known - there) * p->checkpoint_bytes,
            "checkpoints: %d kept, %d there already", (int)known, (int)there);
    item.is_bound = sure < all;
    if (kept > known)
        add(p, item, (uint64_t)(kept - known) * p->checkpoint_bytes,
            "more of them, written by time: %d", (int)(kept - known));
    item.phase = WD_DISK_WHILE_SAVING;
    item.is_bound = fmin(keep + 1, sure) <= known;
    if (most > kept && most > there)
        add(p, item, p->checkpoint_bytes, "one more, before the oldest is removed");
    return kept;
}

static wd_status add_checkpoints(wd_disk_plan *p, const wd_train_plan *plan,
                                 const wd_train_setup *s, wd_err *err)
{
    int there = 0;
    wd_disk_item item;
    const char *negative = s->trainer.negative_prompt;
    p->checkpoint = plan->without_teacher[0].checkpoint;
    p->checkpoint_bytes =
        p->checkpoint.file + WD_CHECKPOINT_REST_BYTES + 6 * (negative ? strlen(negative) : 0);
    WD_TRY(find_disk(&item, p, s->checkpoints, err));
    if (s->first_step) WD_TRY(wd_checkpoint_list_count(&there, s->checkpoints, s->first_step, err));
    const double come = checkpoints_to_come(plan, s);
    p->checkpoints =
        (wd_disk_checkpoints){.there = there,
                              .come = come,
                              .sure = s->trainer.checkpoint_interval ? come : fmin(1, come)};
    p->kept = (int)add_kept(p, s->trainer.keep_checkpoints, item.disk);
    return WD_OK;
}

/* ---- the student, and what shows how it does ---- */

/* What is known of the `parts` bytes of text encoder, VAE and tokenizer. Those of single files are
 * converted: of quantised ones more is written than they have, at most `parts`. */
static uint64_t sure_bytes(uint64_t parts, const wd_pipeline *teacher)
{
    static const wd_component taken[] = {WD_COMPONENT_TEXT_ENCODER, WD_COMPONENT_VAE,
                                         WD_COMPONENT_TOKENIZER};
    uint64_t bytes = 0;
    bool any = false;
    for (int i = 0; i < 3; i++) {
        struct stat file;
        const char *path = teacher->part[taken[i]];
        if (!*path) continue;
        any = true;
        if (!stat(path, &file) && S_ISREG(file.st_mode)) bytes += (uint64_t)file.st_size;
    }
    return any && bytes < parts ? bytes : parts;
}

static wd_status add_student(wd_disk_plan *p, const wd_train_setup *s, wd_err *err)
{
    wd_disk_item item = {.folder = WD_DISK_OUTPUT, .phase = WD_DISK_AT_THE_END};
    uint64_t weights, forms, parts = 0;
    const wd_dit_config *student = &s->trainer.stepper.student;
    WD_TRY(find_disk(&item, p, s->options.output_dir, err));
    WD_TRY(wd_export_weights_size(&weights, student, &s->trainer.export, err));
    WD_TRY(wd_student_forms_size(&forms, &s->forms, student, err));
    /* what is missing, train has refused by now, and a plan needs no more than a transformer */
    const wd_status found = wd_components_size(&parts, &s->teacher, s->trainer.export.components,
                                               p->disk[item.disk].space.device, NULL);
    if (found == WD_OUT_OF_MEMORY) return wd_fail(err, found, "no memory to plan the disk");
    const uint64_t sure = sure_bytes(parts, &s->teacher);
    add(p, item, weights, "student's weights");
    add(p, item, sure, "its text encoder, VAE and tokenizer");
    item.is_bound = true;
    add(p, item, parts - sure + WD_EXPORT_REST_BYTES, "its other files");
    add(p, item, forms, "--export %.40s", s->options.export_to ? s->options.export_to : "");
    if (!s->options.keep_best) return WD_OK;
    item.phase = WD_DISK_TO_THE_END;
    add(p, item, weights + parts + WD_EXPORT_REST_BYTES, "best student");
    item.phase = WD_DISK_WHILE_SAVING;
    add(p, item, weights + parts + WD_EXPORT_REST_BYTES, "another one, before it is replaced");
    return WD_OK;
}

/* A sheet in RGB without any compression: two rows of pictures with their labels. */
static double sheet_bytes(const wd_train_setup *s)
{
    enum { LABEL = 96, TITLE = 160, SMALL = 128 }; /* pixels; of smaller pictures this at least */
    const double width = fmax(2 * SMALL, (double)s->options.width) + LABEL;
    const double height = fmax(2 * SMALL, (double)s->options.height) + LABEL;
    return 3 * ((double)s->trainer.samples.count * width + TITLE) * (2 * height + TITLE);
}

/* Targets that are stored. Of a run that time ends they are a bound. */
static wd_status add_targets(wd_disk_plan *p, const wd_train_plan *plan, const wd_train_setup *s,
                             wd_err *err)
{
    wd_disk_item item = {.folder = WD_DISK_TARGETS};
    const double steps = steps_to_come(plan, s);
    item.is_bound = s->options.max_minutes > 0;
    if (!s->options.save_targets || isinf(steps)) return WD_OK;
    WD_TRY(find_disk(&item, p, s->options.save_targets, err));
    add(p, item, (uint64_t)wd__targets_plan_bytes(s, steps), "stored targets");
    return WD_OK;
}

/* The page about the run, and the one that takes its place: with copies of sheets in base64, which
 * are in a file beside them, too. `sheets`: bytes of all sheets. */
static uint64_t page_bytes(const wd_train_setup *s, double sheets)
{
    enum { REST_BYTES = 2 << 20, PAGES = 2 };
    const double shown = fmin(sheets, WD_PAGE_SHEET_BYTES);
    return strcmp(s->options.save_report, "true")
               ? 0
               : (uint64_t)(PAGES * (shown * 4 / 3 + REST_BYTES) + shown);
}

static wd_status add_records(wd_disk_plan *p, const wd_train_plan *plan, const wd_train_setup *s,
                             wd_err *err)
{
    enum { ROW_BYTES = 1024, RUN_BYTES = 64 << 10 }; /* of a step in metrics and event file */
    static const double STEPS_MAX = 1e9;
    wd_disk_item item = {.folder = WD_DISK_SHEETS, .is_bound = true};
    const int64_t interval = s->trainer.sample_interval;
    const double steps = fmin(SLOWER * steps_to_come(plan, s), STEPS_MAX);
    const double count = 1 + (interval ? floor(steps / (double)interval) : 0);
    const double sheets = s->trainer.samples.count ? count * sheet_bytes(s) : 0;
    WD_TRY(find_disk(&item, p, s->sample_dir, err));
    add(p, item, (uint64_t)sheets, "sample sheets");
    item.folder = WD_DISK_OUTPUT;
    WD_TRY(find_disk(&item, p, s->options.output_dir, err));
    add(p, item, (uint64_t)fmin(sheets, WD_TENSORBOARD_PICTURES_MAX), "sheets for TensorBoard");
    add(p, item, page_bytes(s, sheets), "report.html");
    if (steps < STEPS_MAX)
        add(p, item, (uint64_t)steps * ROW_BYTES + RUN_BYTES, "metrics, run.json");
    return WD_OK;
}

/* ---- sums ---- */

/* What is on the disk at the same time. */
static uint64_t sum(const wd_disk_plan *p, int disk, bool with_bounds)
{
    uint64_t bytes[WD_DISK_AT_THE_END + 1] = {0};
    for (int i = 0; i < p->items; i++)
        if (p->item[i].disk == disk && (with_bounds || !p->item[i].is_bound))
            bytes[p->item[i].phase] += p->item[i].bytes;
    const uint64_t saving = bytes[WD_DISK_WHILE_SAVING], end = bytes[WD_DISK_AT_THE_END];
    return bytes[WD_DISK_TO_THE_END] + (saving > end ? saving : end);
}

wd_status wd_disk_plan_make(wd_disk_plan *out, const wd_train_plan *plan, const wd_train_setup *s,
                            wd_err *err)
{
    const wd_comm *comm = s->comm;
    *out = (wd_disk_plan){0};
    if (comm && comm->host_rank) return WD_OK;
    if (!comm || !comm->rank) {
        WD_TRY(add_checkpoints(out, plan, s, err));
        WD_TRY(add_student(out, s, err));
        WD_TRY(add_records(out, plan, s, err));
        WD_TRY(add_targets(out, plan, s, err));
    }
    WD_TRY(add_cache(out, plan, s, err));
    for (int d = 0; d < out->disks; d++) {
        out->disk[d].need = sum(out, d, true);
        out->disk[d].least = sum(out, d, false);
    }
    return WD_OK;
}

/* ---- too little space ---- */

void wd_disk_plan_log(const wd_disk_plan *p)
{
    char need[32], free[32];
    for (int d = 0; d < p->disks; d++) {
        const wd_disk *k = &p->disk[d];
        if (!k->need || k->space.bytes_free == UINT64_MAX) continue;
        const bool is_tight = (double)k->space.bytes_free < (1 + SHARE_LEFT) * (double)k->need;
        wd_log(is_tight ? WD_LOG_WARNING : WD_LOG_INFO,
               "disk: the run writes up to %s to the file system of %s, which has %s free%s",
               wd_bytes_text(need, sizeof need, (size_t)k->need), k->space.path,
               wd_bytes_text(free, sizeof free, (size_t)k->space.bytes_free),
               is_tight ? ": it may become full; `wandistiller plan` lists the files" : "");
    }
}

/* The known bytes of a disk's items in that folder. */
static uint64_t bytes_in(const wd_disk_plan *p, int disk, wd_disk_folder folder)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->items; i++)
        if (p->item[i].disk == disk && p->item[i].folder == folder && !p->item[i].is_bound)
            bytes += p->item[i].bytes;
    return bytes;
}

static void say_way(const wd_disk *disk, const char *what, uint64_t less)
{
    char bytes[32];
    const bool fits = disk->least - less <= disk->space.bytes_free;
    wd_log(WD_LOG_ERROR, "  %s: %s less%s", what, wd_bytes_text(bytes, sizeof bytes, (size_t)less),
           fits ? ", which then fits" : "");
}

/* How many of the known bytes a run does not need that keeps one checkpoint. */
static uint64_t less_with_one(const wd_disk_plan *p, int disk)
{
    wd_disk_plan one = *p;
    bool has_checkpoints = false;
    one.items = 0;
    for (int i = 0; i < p->items; i++)
        if (p->item[i].folder != WD_DISK_CHECKPOINTS)
            one.item[one.items++] = p->item[i];
        else
            has_checkpoints |= p->item[i].disk == disk;
    if (!has_checkpoints) return 0;
    add_kept(&one, 1, disk);
    const uint64_t least = sum(&one, disk, false);
    return least < p->disk[disk].least ? p->disk[disk].least - least : 0;
}

/* How another output folder is given. One that has no checkpoint begins a new run with --resume
 * auto, so that a resumed run must say where it goes on from. */
static void say_other_output(const wd_train_setup *s)
{
    char from[WD_SHELL_WORD_BYTES(WD_PATH_MAX)];
    const wd_train_options *o = &s->options;
    if (*s->resume) {
        wd_shell_word(from, sizeof from, strcmp(o->resume, "auto") ? o->resume : o->output_dir);
        wd_log(WD_LOG_ERROR, "  --resume %s --output_dir DIR on another disk", from);
    } else {
        wd_log(WD_LOG_ERROR, "  --output_dir DIR on another disk");
    }
}

/* Logs what helps on this file system. */
static void say_ways(const wd_disk_plan *p, int disk, const wd_train_setup *s)
{
    char what[128];
    const wd_disk *k = &p->disk[disk];
    const uint64_t less = less_with_one(p, disk);
    const uint64_t cache = bytes_in(p, disk, WD_DISK_CACHE);
    const uint64_t output =
        bytes_in(p, disk, WD_DISK_OUTPUT) + bytes_in(p, disk, WD_DISK_CHECKPOINTS);
    const uint64_t targets = bytes_in(p, disk, WD_DISK_TARGETS);
    if (less) say_way(k, "--keep_checkpoints 1", less);
    if (cache) say_way(k, "--cache_dir DIR on another disk", cache);
    if (targets)
        say_way(k,
                *s->resume ? "--save_targets DIR on another disk, where a copy of the folder is"
                           : "--save_targets DIR on another disk",
                targets);
    if (!output) return;
    say_other_output(s);
    if (*s->resume || p->checkpoint.other < p->checkpoint.weights) return;
    const wd_trajectory_options *t = &s->trainer.stepper.trajectory;
    snprintf(what, sizeof what, "fewer --trajectories (now %" PRId64 ")%s", t->slots,
             s->options.target_replay ? ", a smaller --target_replay" : "");
    wd_log(WD_LOG_ERROR, "  %s: targets and states take %.0f %% of a checkpoint", what,
           100 * (double)p->checkpoint.other / (double)p->checkpoint.file);
}

bool wd__disk_plan_lacks(const wd_disk_plan *p)
{
    for (int d = 0; d < p->disks; d++)
        if (p->disk[d].least > p->disk[d].space.bytes_free) return true;
    return false;
}

wd_status wd_disk_plan_refuse(const wd_disk_plan *p, const wd_train_setup *s, wd_err *err)
{
    char need[32], free[32];
    for (int d = 0; d < p->disks; d++) {
        const wd_disk *k = &p->disk[d];
        if (k->least <= k->space.bytes_free) continue;
        wd_log(WD_LOG_ERROR, "The run does not fit on the disk. What needs less there:");
        say_ways(p, d, s);
        return wd_fail(err, WD_DOES_NOT_FIT,
                       "%s: its file system has %s free, and the run needs %s there at least: free "
                       "some space, or see above what needs less",
                       k->space.path, wd_bytes_text(free, sizeof free, (size_t)k->space.bytes_free),
                       wd_bytes_text(need, sizeof need, (size_t)k->least));
    }
    return WD_OK;
}

/* ---- the plan of disk space as text ---- */

static const char *bytes_of(char out[32], uint64_t bytes)
{
    if (bytes == UINT64_MAX)
        snprintf(out, 32, "unknown");
    else
        wd_bytes_text(out, 32, (size_t)bytes);
    return out;
}

static const char *while_text(const wd_disk_item *item)
{
    if (item->phase == WD_DISK_AT_THE_END) return ", at the end";
    return "";
}

static void say_disk(wd_text_builder *builder, const wd_disk_plan *p, int disk)
{
    char need[32], free[32], bytes[32];
    const wd_disk *k = &p->disk[disk];
    wd_text_builder_say(builder, "  %s: up to %s, %s free%s\n", k->space.path,
                        bytes_of(need, k->need), bytes_of(free, k->space.bytes_free),
                        k->least > k->space.bytes_free  ? ": it does not fit"
                        : k->need > k->space.bytes_free ? ": it may not fit"
                                                        : "");
    for (int i = 0; i < p->items; i++)
        if (p->item[i].disk == disk)
            wd_text_builder_say(builder, "    %-48s %s%9s%s\n", p->item[i].name,
                                p->item[i].is_bound ? "at most " : "        ",
                                bytes_of(bytes, p->item[i].bytes), while_text(&p->item[i]));
}

void wd__disk_plan_say(wd_text_builder *builder, const wd_disk_plan *p)
{
    char part[5][32];
    const wd_checkpoint_space *c = &p->checkpoint;
    wd_text_builder_say(builder, "\ndisk, by file system: what the run writes\n");
    for (int d = 0; d < p->disks; d++)
        if (p->disk[d].need) say_disk(builder, p, d);
    wd_text_builder_say(builder,
                        "  a checkpoint: %s of weights, %s of the optimiser's moments, %s of EMA,\n"
                        "    %s of targets and states%s%s\n",
                        bytes_of(part[0], c->weights), bytes_of(part[1], c->moments),
                        bytes_of(part[2], c->ema), bytes_of(part[3], c->other),
                        c->snapshot ? ", a snapshot of " : "",
                        c->snapshot ? bytes_of(part[4], c->snapshot) : "");
}

static json_t *integer(uint64_t bytes)
{
    return bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *disk_json(const wd_disk_plan *p, int disk)
{
    static const char *const phase[] = {[WD_DISK_TO_THE_END] = "to the end",
                                        [WD_DISK_WHILE_SAVING] = "saving",
                                        [WD_DISK_AT_THE_END] = "at the end"};
    const wd_disk *k = &p->disk[disk];
    json_t *items = json_array();
    for (int i = 0; i < p->items; i++)
        if (p->item[i].disk == disk)
            json_array_append_new(items, json_pack("{s:s, s:I, s:b, s:s}", "name", p->item[i].name,
                                                   "bytes", (json_int_t)p->item[i].bytes,
                                                   "is_upper_bound", (int)p->item[i].is_bound,
                                                   "while", phase[p->item[i].phase]));
    return json_pack("{s:o, s:o, s:I, s:I, s:o}", "path", wd_json_string(k->space.path),
                     "bytes_free", integer(k->space.bytes_free), "bytes_needed",
                     (json_int_t)k->need, "bytes_known", (json_int_t)k->least, "items", items);
}

json_t *wd__disk_plan_json(const wd_disk_plan *p)
{
    const wd_checkpoint_space *c = &p->checkpoint;
    json_t *disks = json_array();
    for (int d = 0; d < p->disks; d++) json_array_append_new(disks, disk_json(p, d));
    return json_pack("{s:o, s:i, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "file_systems", disks,
                     "checkpoints_kept", p->kept, "checkpoint", "weights", (json_int_t)c->weights,
                     "moments", (json_int_t)c->moments, "ema", (json_int_t)c->ema, "snapshot",
                     (json_int_t)c->snapshot, "targets_and_states", (json_int_t)c->other,
                     "state_bytes", (json_int_t)c->file, "bytes", (json_int_t)p->checkpoint_bytes);
}
