/* A timeline of one sweep, with a row for the computation of each device, the copies of its
 * link, the messages of its rank, and the reads of the disk. If each rank has a teacher, one rank
 * is drawn. Sweeps follow one another without a break, so the drawing has the length of one sweep
 * and starts where a sweep begins to compute; some rows are then still busy with the previous
 * sweep. */
#include "api/plan/plan_svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"

enum {
    NAMES = 130, /* width of the rows' names at the left, */
    RANKS = 40,  /* additional width for "of rank 23", */
    BUSY = 44,   /* and width of their utilisation at the right */
    ROW = 14,
    PITCH = 18,
    TICKS = 5,
    SWEEP = 2, /* the sweep that is drawn: neither one of the first nor the last */
    DEVICE_ROWS = WD_RESOURCE_NETWORK + 1,
    DRAWN_MAX = 24, /* maximal number of devices that are drawn */
    ROWS_MAX = DEVICE_ROWS * DRAWN_MAX + 1
};

/* Pieces that touch and belong together are drawn as one, and so are pieces below the width THIN,
 * in pixels. */
static const double THIN = 2, TOUCH = 0.3;

/* Pieces of work that are drawn together. */
typedef struct run {
    bool open, odd;
    wd_timeline_event first;
    int last_stage, last_batch;
    double begin, end; /* pixels */
} run;

typedef struct row {
    bool there;
    double y, busy; /* pixels */
    run run;
} row;

typedef struct drawing {
    wd_text_builder *builder;
    const wd_plan_table *table;
    int device[DRAWN_MAX]; /* [devices] that are drawn */
    int devices, devices_there;
    row row[ROWS_MAX];
    double begin, seconds, x, width;
} drawing;

/* ---- rows ---- */

/* The row of an event; NULL: it is not drawn. */
static row *row_of(drawing *d, const wd_timeline_event *e)
{
    if (e->resource == WD_RESOURCE_DISK) return &d->row[ROWS_MAX - 1];
    for (int i = 0; i < d->devices; i++)
        if (d->device[i] == e->device) return &d->row[DEVICE_ROWS * i + (int)e->resource];
    return NULL;
}

/* Notes that a rank sends messages in the sweep that is drawn. */
static void see_sender(void *context, const wd_timeline_event *e)
{
    drawing *d = context;
    row *l = e->resource == WD_RESOURCE_NETWORK && e->sweep == SWEEP ? row_of(d, e) : NULL;
    if (l) l->there = true;
}

/* Chooses the devices that are drawn: of one rank all devices, and the processor if it computes; of
 * several ranks those that compute. */
static void choose_devices(drawing *d)
{
    const wd_strategy_plan *candidate = d->table->shown;
    const wd_devices *devices = d->table->plan->devices;
    const bool all = candidate->placement.each || candidate->placement.ranks < 2;
    for (int i = 0; i < candidate->bytes.devices; i++) {
        if (!wd_placed_computes(&candidate->placement, i) && (!all || i == devices->processor))
            continue;
        d->devices_there++;
        if (d->devices < DRAWN_MAX) d->device[d->devices++] = i;
    }
    if (all) return;
    d->x += RANKS;
    d->width -= RANKS;
}

/* Opens the rows; a processor's link has one only if other devices compute, too. Returns the y
 * coordinate of their end. */
static double open_rows(drawing *d, double y)
{
    const wd_devices *devices = d->table->plan->devices;
    const wd_placement *p = &d->table->shown->placement;
    for (int i = 0; i < ROWS_MAX; i++) {
        row *l = &d->row[i];
        const int at = i / DEVICE_ROWS, kind = i % DEVICE_ROWS;
        if (i == ROWS_MAX - 1)
            l->there = true;
        else if (at < d->devices && kind != WD_RESOURCE_NETWORK)
            l->there = kind == WD_RESOURCE_COMPUTE || devices->count > 1 ||
                       wd_placed_local(p, d->device[at]) != devices->processor;
        if (!l->there) continue;
        l->y = y;
        y += PITCH;
    }
    return y;
}

static void draw_rows(drawing *d)
{
    static const char *const kind[] = {[WD_RESOURCE_COMPUTE] = "computes",
                                       [WD_RESOURCE_LINK] = "link",
                                       [WD_RESOURCE_NETWORK] = "sends"};
    char device[32];
    for (int i = 0; i < ROWS_MAX; i++) {
        char name[64] = "disk reads";
        const row *l = &d->row[i];
        if (!l->there) continue;
        if (i < ROWS_MAX - 1)
            snprintf(name, sizeof name, "%s %s",
                     wd__train_plan_device(device, d->table->plan, d->table->shown,
                                           d->device[i / DEVICE_ROWS]),
                     kind[i % DEVICE_ROWS]);
        wd__svg_rect(d->builder, (wd_svg_box){d->x, l->y, d->width, ROW}, "lane", "");
        wd__svg_text(d->builder, d->x - 8, l->y + 11, "right", name);
    }
}

/* ---- runs ---- */

static void say_stage(char out[32], int stage, int stages)
{
    if (stage == 0)
        snprintf(out, 32, "embedding");
    else if (stage == stages - 1)
        snprintf(out, 32, "head");
    else
        snprintf(out, 32, "block %d", stage - 1);
}

static void say_run(char *out, size_t bytes, const drawing *d, const run *r)
{
    char first[32], last[32];
    const wd_timeline_event *e = &r->first;
    const wd_placement *p = &d->table->shown->placement;
    size_t used = 0;
    if (p->experts > 1)
        used = wd_append_text(out, bytes, 0, "%s noise, ", e->expert ? "low" : "high");
    if (e->stage < 0) {
        wd_append_text(out, bytes, used, "activations");
        return;
    }
    say_stage(first, e->stage, p->stages);
    say_stage(last, r->last_stage, p->stages);
    used =
        wd_append_text(out, bytes, used, "%s%s%s", first, r->last_stage == e->stage ? "" : " to ",
                       r->last_stage == e->stage ? "" : last);
    if (e->batch >= 0 && e->batch == r->last_batch)
        wd_append_text(out, bytes, used, ", micro-batch %d", e->batch);
}

static void close_run(drawing *d, row *l)
{
    char style[32], title[128];
    run *r = &l->run;
    if (!r->open) return;
    snprintf(style, sizeof style, "%s%s", r->first.expert ? "low" : "high", r->odd ? " odd" : "");
    say_run(title, sizeof title, d, r);
    wd__svg_rect(d->builder, (wd_svg_box){r->begin, l->y, r->end - r->begin, ROW}, style, title);
    r->open = false;
    r->odd = !r->odd;
}

/* Whether two events belong together: one stage for all micro-batches, or one micro-batch through
 * several stages, depending on the order of computation. */
static bool belongs(const drawing *d, const wd_timeline_event *first, const wd_timeline_event *e)
{
    if (e->stage < 0 || e->batch < 0 || first->stage < 0) return false;
    const wd_segment segment =
        wd_sweep_segment(&d->table->shown->placement, e->expert, first->stage);
    return segment.end - segment.first > 1 ? first->batch == e->batch : first->stage == e->stage;
}

static bool goes_on(const drawing *d, const run *r, const wd_timeline_event *e, double begin)
{
    if (!r->open || r->first.sweep != e->sweep || r->first.expert != e->expert) return false;
    const double gap = begin - r->end;
    return (r->end - r->begin < THIN && gap < THIN) || (gap < TOUCH && belongs(d, &r->first, e));
}

static void see_event(void *context, const wd_timeline_event *e)
{
    drawing *d = context;
    row *l = row_of(d, e);
    if (!l || !l->there) return;
    run *r = &l->run;
    const double scale = d->width / d->seconds;
    const double begin = fmax((e->begin - d->begin) * scale, 0) + d->x;
    const double end = fmin((e->end - d->begin) * scale, d->width) + d->x;
    if (end <= begin) return;
    l->busy += end - begin;
    if (!goes_on(d, r, e, begin)) {
        close_run(d, l);
        r->open = true;
        r->first = *e;
        r->begin = begin;
    }
    r->end = end;
    r->last_stage = e->stage;
    r->last_batch = e->batch;
}

static void find_begin(void *context, const wd_timeline_event *e)
{
    drawing *d = context;
    if (e->sweep == SWEEP && e->resource == WD_RESOURCE_COMPUTE && e->begin < d->begin)
        d->begin = e->begin;
}

/* ---- the whole ---- */

static void draw_head(drawing *d, double y)
{
    char line[160];
    const wd_strategy_plan *s = d->table->shown;
    double x = WD_PLAN_SVG_MARGIN;
    snprintf(line, sizeof line, "one sweep: %.3g s, targets: %" PRId64, d->seconds, s->window);
    wd__svg_text(d->builder, x, y + 12, "name", line);
    for (int e = 0; e < s->placement.experts && s->placement.experts > 1; e++) {
        x = 300 + 160 * e;
        wd__svg_rect(d->builder, (wd_svg_box){x, y + 3, 10, 10}, e ? "low" : "high", "");
        wd__svg_text(d->builder, x + 15, y + 12, "", e ? "low-noise expert" : "high-noise expert");
    }
    snprintf(line, sizeof line, "the first %d of %d devices at work", d->devices, d->devices_there);
    if (d->devices < d->devices_there) wd__svg_text(d->builder, 620, y + 12, "", line);
    wd__svg_text(d->builder, WD_PLAN_SVG_WIDTH - WD_PLAN_SVG_MARGIN, y + 12, "small right", "busy");
}

static void draw_busy(drawing *d)
{
    for (int i = 0; i < ROWS_MAX; i++) {
        char text[16];
        const row *l = &d->row[i];
        if (!l->there) continue;
        snprintf(text, sizeof text, "%.0f %%", 100 * l->busy / d->width);
        wd__svg_text(d->builder, d->x + d->width + BUSY, l->y + 11, "small right", text);
    }
}

static void draw_ticks(drawing *d, double top, double bottom)
{
    for (int i = 0; i <= TICKS; i++) {
        char text[32];
        const double x = d->x + d->width * i / TICKS;
        snprintf(text, sizeof text, "%.3g s", d->seconds * i / TICKS);
        wd__svg_line(d->builder, x, top, x, bottom, "tick");
        wd__svg_text(d->builder, x, bottom + 12, "small middle", text);
    }
}

/* Plays the sweeps of the plan that is drawn, for `fn` to see. */
static wd_status play(drawing *d, wd_timeline_fn *fn, wd_err *err)
{
    wd_timeline played;
    const wd_strategy_plan *shown = d->table->shown;
    return wd_planner_play(&played, d->table->plan->planner, shown, &shown->load, fn, d, err);
}

wd_status wd__plan_svg_timeline(double *end, wd_text_builder *builder, const wd_plan_table *table,
                                double y)
{
    drawing d = {.builder = builder,
                 .table = table,
                 .begin = INFINITY,
                 .seconds = table->shown->timeline.sweep_seconds,
                 .x = WD_PLAN_SVG_MARGIN + NAMES,
                 .width = WD_PLAN_SVG_WIDTH - 2 * WD_PLAN_SVG_MARGIN - NAMES - BUSY};
    choose_devices(&d);
    WD_TRY(play(&d, see_sender, builder->err));
    const double top = y + 24, bottom = open_rows(&d, top);
    WD_TRY(play(&d, find_begin, builder->err));
    draw_head(&d, y);
    draw_rows(&d);
    draw_ticks(&d, top, bottom);
    WD_TRY(play(&d, see_event, builder->err));
    for (int i = 0; i < ROWS_MAX; i++) close_run(&d, &d.row[i]);
    draw_busy(&d);
    *end = bottom + 16;
    return WD_OK;
}
