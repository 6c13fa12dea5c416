/* The search for the largest students: see api/plan/largest_student.h. A size fits if a plan with
 * one of the changes does; each is planned as `train` would, with the measurements of the run's own
 * plan. */
#include "api/plan/largest_student.h"

#include <stdio.h>
#include <string.h>

#include "api/plan/optimizer_place.h"
#include "core/memory.h"
#include "model/files/preset.h"

/* ---- shapes ---- */

static const char popular[] = "wan2.1-1.3b";

/* Sizes of which the number of blocks is sought, or of all blocks the number of heads. */
typedef struct student_shape {
    const char *name, *end; /* `end`: why nothing is larger than the largest size */
    wd_dit_config most;
    bool narrows; /* the heads are sought */
} student_shape;

typedef struct shapes {
    student_shape shape[WD_LARGEST_SHAPES];
    int count;
} shapes;

static bool is_same_size(const wd_dit_config *a, const wd_dit_config *b)
{
    return a->heads == b->heads && a->layers == b->layers && a->ffn_dim == b->ffn_dim;
}

static void add_shape(shapes *to, student_shape new)
{
    for (int i = 0; i < to->count; i++)
        if (to->shape[i].narrows == new.narrows && is_same_size(&to->shape[i].most, &new.most))
            return;
    to->shape[to->count++] = new;
}

/* Wan2.1-1.3B's width, feed-forward width and depth, if they can be taken from the source. */
static wd_status add_popular(shapes *to, const wd_dit_config *source, wd_err *err)
{
    wd_pipeline published;
    WD_TRY(wd_preset_pipeline(&published, popular, err));
    const wd_dit_config *p = &published.dit;
    wd_dit_config most = *source;
    most.heads = p->heads;
    most.ffn_dim = p->ffn_dim;
    most.layers = p->layers;
    if (p->head_dim != source->head_dim || wd_student_config_check(&most, source, NULL) != WD_OK)
        return WD_OK;
    add_shape(to, (student_shape){"Wan2.1-1.3B's sizes", "these are all blocks of Wan2.1-1.3B",
                                  most, false});
    return WD_OK;
}

static wd_status list_shapes(shapes *out, const wd_dit_config *source, wd_err *err)
{
    static const char all_blocks[] = "these are all blocks of the teacher";
    const int64_t heads = wd_student_config_default_heads(source);
    out->count = 0;
    add_shape(out, (student_shape){"the default width", all_blocks,
                                   wd_student_config_sized(source, heads, source->layers), false});
    WD_TRY(add_popular(out, source, err));
    add_shape(out, (student_shape){"the teacher's width", all_blocks, *source, false});
    add_shape(out,
              (student_shape){"the teacher's depth", "this is all of the teacher", *source, true});
    return WD_OK;
}

static int64_t largest_of(const student_shape *s)
{
    return s->narrows ? s->most.heads : s->most.layers;
}

/* The shape with n blocks, or n heads. */
static wd_dit_config size_at(const student_shape *s, int64_t n)
{
    wd_dit_config size = s->most;
    if (s->narrows)
        size = wd_student_config_sized(&s->most, n, s->most.layers);
    else
        size.layers = n;
    if (size.ffn_dim < 1) size.ffn_dim = 1;
    return size;
}

/* ---- one plan ---- */

/* A later way is taken where its steps take at most this share of the time. */
static const double GAIN = 0.95;

/* What may differ from the options, without another loss. */
typedef struct change {
    bool checkpointing;
    int halvings; /* how often the batch is halved and the accumulation doubled */
} change;

typedef struct search {
    const wd_train_plan *like;
    const wd_train_setup *setup;
    int halvings_max;
    wd_train_variant run;
    wd_strategy_plan least; /* the plan that lacks least */
} search;

/* Sets the run up for a student, with what the options leave open as it was before the run's own
 * plan. */
static void begin(search *s, const wd_dit_config *student, change c)
{
    const wd_train_options *given = &s->setup->given;
    wd_train_setup *run = &s->run.setup;
    wd_train_options *o = &run->options;
    wd__train_variant_begin(&s->run, s->setup);
    wd_stepper_options *m = &run->trainer.stepper;
    run->student.dit = m->student = *student;
    run->trainer.samples.count = run->samples;
    o->save_samples = given->save_samples;
    o->optimizer_device = given->optimizer_device;
    o->ema_device = given->ema_device;
    m->place = s->like->devices->processor > 0 ? wd_train_state_place(o) : WD_STATE_ON_DEVICE;
    o->gradient_checkpointing = m->checkpointing = c.checkpointing;
    o->batch_size = m->batch >>= c.halvings;
    o->gradient_accumulation_steps = m->accumulation <<= c.halvings;
}

/* Takes what needs least memory of what the options leave open: no sample sheets, and the
 * optimiser's state in this place. False: the options forbid it. */
static bool take_least(search *s, wd_state_place place)
{
    wd_train_setup *run = &s->run.setup;
    if (!strcmp(run->options.save_samples, "auto")) run->trainer.samples.count = 0;
    if (s->like->devices->processor == 0) return place == WD_STATE_ON_DEVICE;
    if (!wd__state_may_be(place, &run->options)) return false;
    wd__state_put(place, &run->options, &run->trainer.stepper);
    return true;
}

/* The best plan that counts. */
static wd_status best_of(const wd_strategy_plan **out, const wd_train_plan *plan, wd_err *err)
{
    const wd_strategy_plan *all;
    *out = &plan->chosen;
    if (plan->asked != WD_STRATEGY_auto || plan->devices->processor == 0) return WD_OK;
    WD_TRY(wd_planner_all(&all, plan->planner, err));
    *out = NULL;
    for (int i = 0; i < WD_STRATEGY_auto; i++)
        if (i != WD_STRATEGY_cpu && !all[i].objection &&
            (!*out || wd_planner_is_better(&all[i], *out)))
            *out = &all[i];
    if (!*out) *out = &plan->chosen;
    return WD_OK;
}

/* Whether the student fits with a change, wherever the state is. */
static wd_status fits_with(bool *out, search *s, const wd_dit_config *student, change c,
                           wd_err *err)
{
    wd_train_plan *plan = &s->run.plan;
    *out = false;
    for (int place = 0; place <= WD_STATE_ON_HOST && !*out; place++) {
        const wd_strategy_plan *best;
        begin(s, student, c);
        if (!take_least(s, (wd_state_place)place)) continue;
        wd_status status = wd__train_plan_open_like(plan, &s->run.setup, s->like, err);
        if (status == WD_DOES_NOT_FIT) continue;
        if (status == WD_OK) status = best_of(&best, plan, err);
        if (status == WD_OK) *out = best->fits;
        wd_train_plan_close(plan);
        if (status != WD_OK) return status;
    }
    return WD_OK;
}

/* ---- the largest of a shape ---- */

/* The changes that need least memory: with checkpointing, or, of few blocks, perhaps without. */
static change smallest_change(const search *s, int i)
{
    return (change){.checkpointing = !i, .halvings = s->halvings_max};
}

static int smallest_changes(const search *s)
{
    return s->setup->given.gradient_checkpointing ? 1 : 2;
}

static wd_status fits(bool *out, search *s, const wd_dit_config *student, wd_err *err)
{
    *out = false;
    for (int i = 0; i < smallest_changes(s) && !*out; i++)
        WD_TRY(fits_with(out, s, student, smallest_change(s, i), err));
    return WD_OK;
}

/* *out = the largest number that fits, of blocks or heads; 0: none does. */
static wd_status bisect(int64_t *out, search *s, const student_shape *shape, wd_err *err)
{
    int64_t enough = 0, try = largest_of(shape), too_many = try + 1;
    for (; too_many - enough > 1; try = enough + (too_many - enough) / 2) {
        bool fit;
        const wd_dit_config student = size_at(shape, try);
        WD_TRY(fits(&fit, s, &student, err));
        *(fit ? &enough : &too_many) = try;
    }
    *out = enough;
    return WD_OK;
}

/* Writes what a student that does not fit lacks at least: "sim:0 lacks 1.24 GiB". */
static wd_status what_lacks(char out[WD_PLAN_MISSING_TEXT], search *s, const wd_dit_config *student,
                            wd_err *err)
{
    enum { PLACES = WD_STATE_ON_HOST + 1 };
    bool any = false;
    for (int i = 0; i < PLACES * smallest_changes(s); i++) {
        const wd_strategy_plan *best;
        begin(s, student, smallest_change(s, i / PLACES));
        if (!take_least(s, (wd_state_place)(i % PLACES))) continue;
        WD_TRY(wd__train_plan_open_whole(&s->run.plan, &s->run.setup, s->like, err));
        const wd_status status = best_of(&best, &s->run.plan, err);
        if (status == WD_OK && (!any || wd_planner_is_better(best, &s->least))) s->least = *best;
        any = true;
        wd_train_plan_close(&s->run.plan);
        if (status != WD_OK) return status;
    }
    wd__plan_missing_text(out, s->like->devices, &s->least);
    return WD_OK;
}

/* Writes why no larger student of the shape fits. */
static wd_status explain(char out[WD_LARGEST_TEXT], search *s, const student_shape *shape,
                         int64_t n, wd_err *err)
{
    char lacks[WD_PLAN_MISSING_TEXT];
    const wd_dit_config larger = size_at(shape, n + 1);
    if (n == largest_of(shape)) {
        snprintf(out, WD_LARGEST_TEXT, "%s", shape->end);
        return WD_OK;
    }
    WD_TRY(what_lacks(lacks, s, &larger, err));
    snprintf(out, WD_LARGEST_TEXT, "%s for another %s", lacks, shape->narrows ? "head" : "block");
    return WD_OK;
}

/* Plans the run with a change as `train` does, and takes it if it is the first that fits, or much
 * faster. */
static wd_status try_way(wd_largest_student *best, search *s, change c, wd_err *err)
{
    bool fit;
    const wd_strategy_plan *counted;
    wd_train_plan *plan = &s->run.plan;
    WD_TRY(fits_with(&fit, s, &best->dit, c, err));
    if (!fit) return WD_OK;
    begin(s, &best->dit, c);
    WD_TRY(wd__train_plan_open_whole(plan, &s->run.setup, s->like, err));
    wd_status status = wd__optimizer_place_choose(plan, &s->run.setup, err);
    if (status == WD_OK) status = best_of(&counted, plan, err);
    const double seconds = plan->chosen.step_seconds;
    if (status == WD_OK && counted->fits && (!best->batch || seconds < GAIN * best->step_seconds)) {
        const wd_stepper_options *m = &s->run.setup.trainer.stepper;
        best->checkpointing = m->checkpointing;
        best->batch = m->batch;
        best->accumulation = m->accumulation;
        best->place = m->place;
        best->strategy = plan->chosen.strategy;
        best->step_seconds = seconds;
        best->million_days = 1e6 / wd__train_plan_samples_per_s(plan, &plan->chosen) / 86400;
        wd__train_plan_limit(best->limit, sizeof best->limit, plan, &plan->chosen);
    }
    wd_train_plan_close(plan);
    return status;
}

/* Finds the fastest way to train best->dit; best->batch stays 0 if there is none. */
static wd_status choose_way(wd_largest_student *best, search *s, wd_err *err)
{
    const bool given = s->setup->given.gradient_checkpointing;
    for (int checkpointing = given; checkpointing < 2; checkpointing++)
        for (int halvings = 0; halvings <= s->halvings_max; halvings++)
            WD_TRY(try_way(best, s, (change){checkpointing, halvings}, err));
    return WD_OK;
}

/* ---- all shapes ---- */

/* Adds a student behind those with more weights, unless it is there. */
static void add_student(wd_largest_students *to, const wd_largest_student *new)
{
    int at = to->count;
    const int64_t weights = wd_dit_parameters(&new->dit);
    for (int i = 0; i < to->count; i++)
        if (is_same_size(&to->student[i].dit, &new->dit)) return;
    for (; at > 0 && weights > wd_dit_parameters(&to->student[at - 1].dit); at--)
        to->student[at] = to->student[at - 1];
    to->student[at] = *new;
    to->count++;
}

/* Notes what the smallest student of a shape lacks, if there is no smaller one. */
static wd_status note_smallest(wd_largest_students *out, search *s, const student_shape *shape,
                               wd_err *err)
{
    const wd_dit_config student = size_at(shape, 1);
    if (*out->lacks && wd_dit_parameters(&student) >= wd_dit_parameters(&out->smallest))
        return WD_OK;
    out->smallest = student;
    return what_lacks(out->lacks, s, &student, err);
}

static wd_status find_shape(wd_largest_students *out, search *s, const student_shape *shape,
                            wd_err *err)
{
    wd_largest_student found = {.shape = shape->name};
    int64_t n;
    WD_TRY(bisect(&n, s, shape, err));
    if (!n) return note_smallest(out, s, shape, err);
    found.dit = size_at(shape, n);
    WD_TRY(choose_way(&found, s, err));
    if (!found.batch) return wd_fail(err, WD_INTERNAL, "a student that fits has no plan");
    WD_TRY(explain(found.why, s, shape, n, err));
    add_student(out, &found);
    return WD_OK;
}

wd_status wd__largest_students_find(wd_largest_students *out, const wd_train_plan *plan,
                                    const wd_train_setup *setup, wd_err *err)
{
    search *s; /* too large for a small stack */
    shapes list;
    wd_status status = WD_OK;
    const wd_pipeline *source = setup->options.init_student ? &setup->first : &setup->teacher;
    *out = (wd_largest_students){0};
    WD_TRY(list_shapes(&list, &source->dit, err));
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "a plan", err));
    s->like = plan;
    s->setup = setup;
    const bool may_add = wd_stepper_may_accumulate(&setup->trainer.stepper);
    for (int64_t batch = setup->trainer.stepper.batch; may_add && batch % 2 == 0; batch /= 2)
        s->halvings_max++;
    for (int i = 0; i < list.count && status == WD_OK; i++)
        status = find_shape(out, s, &list.shape[i], err);
    wd_free(s);
    return status;
}
