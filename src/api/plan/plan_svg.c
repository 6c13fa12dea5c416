/* A plan as a picture: see api/plan/plan_svg.h. */
#include "api/plan/plan_svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/setup/memory_report.h"
#include "core/memory.h"
#include "io/file/file.h"

/* ---- elements ---- */

/* The average width of a letter of 10 pixels in a wide font. */
static const double LETTER = 5.9;

/* A number with at most one decimal: "12.3", "12". */
typedef struct number {
    char text[32];
} number;

static number short_number(double v)
{
    number out;
    snprintf(out.text, sizeof out.text, "%.1f", v);
    char *end = strchr(out.text, '.');
    if (end && !strcmp(end, ".0")) *end = 0;
    return out;
}

#define NUMBER(v) short_number(v).text

static void say_escaped(wd_text_builder *builder, const char *text)
{
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '&')
            wd_text_builder_say(builder, "&amp;");
        else if (c == '<')
            wd_text_builder_say(builder, "&lt;");
        else if (c == '>')
            wd_text_builder_say(builder, "&gt;");
        else
            wd_text_builder_say(builder, "%c", c < ' ' ? '?' : c);
    }
}

void wd__svg_rect(wd_text_builder *builder, wd_svg_box box, const char *style, const char *title)
{
    wd_text_builder_say(builder, "<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"",
                        style, NUMBER(box.x), NUMBER(box.y), NUMBER(box.width), NUMBER(box.height));
    if (!*title) {
        wd_text_builder_say(builder, "/>\n");
        return;
    }
    wd_text_builder_say(builder, "><title>");
    say_escaped(builder, title);
    wd_text_builder_say(builder, "</title></rect>\n");
}

static void say_text(wd_text_builder *builder, double x, double y, double width, const char *style,
                     const char *text)
{
    wd_text_builder_say(builder, "<text");
    if (*style) wd_text_builder_say(builder, " class=\"%s\"", style);
    wd_text_builder_say(builder, " x=\"%s\" y=\"%s\"", NUMBER(x), NUMBER(y));
    if (width > 0)
        wd_text_builder_say(builder, " textLength=\"%s\" lengthAdjust=\"spacingAndGlyphs\"",
                            NUMBER(width));
    wd_text_builder_say(builder, ">");
    say_escaped(builder, text);
    wd_text_builder_say(builder, "</text>\n");
}

void wd__svg_text(wd_text_builder *builder, double x, double y, const char *style, const char *text)
{
    say_text(builder, x, y, 0, style, text);
}

/* Writes text of the style `small` no wider than `width`: the letters are narrower if it might be
 * wider. */
static void say_text_within(wd_text_builder *builder, double x, double y, double width,
                            const char *text)
{
    const bool fits = LETTER * (double)strlen(text) <= width;
    say_text(builder, x, y, fits ? 0 : width, "small", text);
}

void wd__svg_line(wd_text_builder *builder, double x0, double y0, double x1, double y1,
                  const char *style)
{
    wd_text_builder_say(builder, "<path class=\"%s\" d=\"M%s %sL%s %s\"/>\n", style, NUMBER(x0),
                        NUMBER(y0), NUMBER(x1), NUMBER(y1));
}

/* ---- columns of memory ---- */

enum {
    PER_ROW = 5,
    PITCH = (WD_PLAN_SVG_WIDTH - 2 * WD_PLAN_SVG_MARGIN) / PER_ROW,
    BAR = 40,
    BESIDE = BAR + 13, /* where names begin */
    NAME = PITCH - BESIDE - 8,
    HEIGHT = 270,
    HEAD = 24,
    FOOT = 26,
    LINE = 12, /* vertical distance of names */
    NAMES_MAX = HEIGHT / LINE
};

/* A block's name, and the y coordinate of the block. */
typedef struct label {
    char text[96];
    double wanted, y;
} label;

typedef struct column {
    int place;
    size_t bytes, budget, peak;
    const wd_memory_item *item[WD_MEMORY_ITEMS_MAX]; /* from the bottom */
    int items;
} column;

/* ---- the items of a column ---- */

static bool is_in(const wd_memory_item *item, int place, wd_memory_phase later)
{
    return item->place == place && (item->phase == WD_MEMORY_PROGRAM ||
                                    item->phase == WD_MEMORY_TRAINING || item->phase == later);
}

/* The phase that adds the most memory to that of training. */
static wd_memory_phase later_phase(const wd_memory_plan *items, int place)
{
    static const wd_memory_phase later[] = {WD_MEMORY_SAVING, WD_MEMORY_SAMPLING,
                                            WD_MEMORY_VALIDATING};
    size_t bytes[WD_MEMORY_PHASES] = {0};
    wd_memory_phase most = later[0];
    for (int i = 0; i < items->items; i++)
        if (items->item[i].place == place) bytes[items->item[i].phase] += items->item[i].bytes;
    for (int i = 1; i < 3; i++)
        if (bytes[later[i]] > bytes[most]) most = later[i];
    return most;
}

static void fill_column(column *c, const wd_plan_table *t, const wd_memory_plan *items, int place)
{
    const wd_cluster *cluster = &t->plan->input.cluster;
    const wd_memory_phase later = later_phase(items, place);
    *c = (column){.place = place};
    c->budget = place == WD_MEMORY_HOST ? cluster->host_bytes : cluster->device[place].bytes;
    c->peak = place == WD_MEMORY_HOST ? wd_placed_host_peak(&t->shown->bytes, cluster)
                                      : wd__train_plan_peak(t->plan, t->shown, place);
    for (int round = 0; round < 2; round++) /* items of training come first, at the bottom */
        for (int i = 0; i < items->items; i++) {
            const wd_memory_item *item = &items->item[i];
            if (!is_in(item, place, later) || (item->phase == later) != (round == 1)) continue;
            c->item[c->items++] = item;
            c->bytes += item->bytes;
        }
}

/* ---- the names beside a column ---- */

/* Moves names apart so that they are at least a line apart, and between `top` and `bottom`. */
static void move_apart(label *labels, int n, double top, double bottom)
{
    double below = bottom + LINE;
    for (int i = 0; i < n; i++) {
        labels[i].y = fmin(labels[i].wanted, below - LINE);
        below = labels[i].y;
    }
    double above = top - LINE;
    for (int i = n - 1; i >= 0; i--) {
        labels[i].y = fmax(labels[i].y, above + LINE);
        above = labels[i].y;
    }
}

static const char *name_of(char out[96], const wd_memory_item *item)
{
    char bytes[32];
    bool now = item->phase == WD_MEMORY_TRAINING || item->phase == WD_MEMORY_PROGRAM;
    snprintf(out, 96, "%s%s%s: %s", item->name, now ? "" : ", while ",
             now ? "" : wd_memory_phase_name(item->phase),
             wd_bytes_text(bytes, sizeof bytes, item->bytes));
    return out;
}

static const char *kind_of(const wd_memory_item *item)
{
    return !strncmp(item->name, "teacher", 7)   ? "teacher"
           : !strncmp(item->name, "student", 7) ? "student"
                                                : "other";
}

/* ---- a column ---- */

static int draw_blocks(label *labels, wd_text_builder *builder, const column *c, double x,
                       double bottom, double scale)
{
    char text[96], style[64], bytes[32];
    int n = 0, thin = 0;
    size_t thin_bytes = 0;
    double y = bottom, thin_at = bottom;
    for (int i = 0; i < c->items; i++) {
        const wd_memory_item *item = c->item[i];
        const double height = (double)item->bytes * scale;
        y -= height;
        snprintf(style, sizeof style, "item %s%s%s", kind_of(item), i % 2 ? " odd" : "",
                 item->phase == WD_MEMORY_TRAINING || item->phase == WD_MEMORY_PROGRAM ? ""
                                                                                       : " then");
        wd__svg_rect(builder, (wd_svg_box){x, y, BAR, height}, style, name_of(text, item));
        if (height >= 1 && n < NAMES_MAX - 1) {
            labels[n].wanted = y + height / 2;
            snprintf(labels[n++].text, sizeof labels->text, "%s", text);
        } else {
            thin++, thin_bytes += item->bytes, thin_at = y;
        }
    }
    if (!thin) return n;
    labels[n].wanted = thin_at;
    snprintf(labels[n].text, sizeof labels->text, "%d smaller: %s", thin,
             wd_bytes_text(bytes, sizeof bytes, thin_bytes));
    return n + 1;
}

/* Sorts names in the order of their blocks, since the name of thin blocks may be anywhere. */
static void sort_from_below(label *labels, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && labels[k - 1].wanted < labels[k].wanted; k--) {
            const label other = labels[k];
            labels[k] = labels[k - 1];
            labels[k - 1] = other;
        }
}

static void draw_column(wd_text_builder *builder, const wd_plan_table *t, const column *c,
                        wd_svg_box box, size_t full)
{
    char line[128], peak[32], budget[32];
    label labels[NAMES_MAX];
    const double bottom = box.y + box.height, scale = box.height / (double)full;
    const double limit = bottom - (double)c->budget * scale;
    snprintf(line, sizeof line, "%s: %s of %s", wd_place_name(t->plan->devices, c->place),
             wd_bytes_text(peak, sizeof peak, c->peak),
             wd_bytes_text(budget, sizeof budget, c->budget));
    wd__svg_text(builder, box.x, box.y - 10, "name", line);
    wd__svg_rect(builder, (wd_svg_box){box.x, limit, BAR, bottom - limit}, "room", "");
    const int n = draw_blocks(labels, builder, c, box.x, bottom, scale);
    wd__svg_line(builder, box.x - 5, limit, box.x + BAR + 5, limit, "budget");
    sort_from_below(labels, n);
    move_apart(labels, n, box.y + 4, bottom);
    for (int i = 0; i < n; i++) {
        wd__svg_line(builder, box.x + BAR + 1, labels[i].wanted, box.x + BAR + 10, labels[i].y,
                     "leader");
        say_text_within(builder, box.x + BESIDE, labels[i].y + 3, NAME, labels[i].text);
    }
}

/* Draws all columns from `y` on; returns the y coordinate of their end. */
static double draw_columns(wd_text_builder *builder, const wd_plan_table *t, double y)
{
    const wd_devices *d = t->plan->devices;
    const wd_memory_plan items = wd__plan_items(t->plan, t->shown);
    size_t full = 0; /* the largest device: all devices have one scale */
    column c;
    int drawn = 0;
    for (int place = 0; place < d->count; place++) {
        if (place == d->processor) continue;
        fill_column(&c, t, &items, place);
        if (c.budget > full) full = c.budget;
        if (c.bytes > full) full = c.bytes;
    }
    for (int place = WD_MEMORY_HOST; place < d->count; place++) {
        if (place == d->processor) continue;
        fill_column(&c, t, &items, place);
        const wd_svg_box box = {WD_PLAN_SVG_MARGIN + PITCH * (drawn % PER_ROW),
                                y + HEAD + (HEAD + HEIGHT + FOOT) * (drawn / PER_ROW), BAR, HEIGHT};
        const size_t own = c.bytes > c.budget ? c.bytes : c.budget;
        draw_column(builder, t, &c, box, place == WD_MEMORY_HOST ? own : full);
        drawn++;
    }
    return y + (HEAD + HEIGHT + FOOT) * ((drawn + PER_ROW - 1) / PER_ROW);
}

/* ---- the picture ---- */

static const char style[] =
    "text{font:11px sans-serif;fill:#222}"
    ".title{font-size:16px;font-weight:bold}.name{font-weight:bold;font-size:12px}"
    ".small{fill:#666;font-size:10px}.right{text-anchor:end}.middle{text-anchor:middle}"
    ".page{fill:#fdfdfb}.room{fill:#fff;stroke:#bbb}.budget{stroke:#c22;stroke-width:1.5}"
    ".budget,.leader{fill:none}.leader{stroke:#aaa;stroke-width:.7}"
    ".item{stroke:#fff;stroke-width:.5}.teacher{fill:#4a7ebb}.student{fill:#5b9a5b}"
    ".other{fill:#a08b6c}.odd{opacity:.72}.then{opacity:.4}"
    ".lane{fill:#f0f0ec}.high{fill:#d9803a}.low{fill:#4a7ebb}"
    ".tick{stroke:#ddd;stroke-width:.7;fill:none}";

static void say_head(wd_text_builder *builder, const wd_plan_table *t)
{
    char line[1024], limit[64];
    const wd_strategy_plan *s = t->shown;
    const wd_train_options *o = &t->setup->options;
    snprintf(line, sizeof line, "%s%s: %s, %s", wd_strategy_name(s->strategy),
             s->fits ? "" : " (does not fit)", t->teacher, o->teacher_dtype);
    wd__svg_text(builder, WD_PLAN_SVG_MARGIN, 30, "title", line);
    snprintf(line, sizeof line,
             "%.3g s per training step, limited by %s; trajectories per sweep over the teacher: "
             "%" PRId64 ", %" PRId64 " at a time; batch %" PRId64 ", %" PRId64 "x%" PRId64
             " pixels",
             s->step_seconds, wd__train_plan_limit(limit, sizeof limit, t->plan, s), s->window,
             s->micro_batch, o->batch_size, o->height, o->width);
    wd__svg_text(builder, WD_PLAN_SVG_MARGIN, 50, "", line);
}

/* Draws the parts first, since the height of the picture is written at its beginning. */
static wd_status draw(char **out, const wd_plan_table *table, wd_err *err)
{
    wd_text_builder body = {.err = err}, whole = {.err = err};
    char *text = NULL;
    double end = 0;
    wd_status status;
    say_head(&body, table);
    status = wd__plan_svg_timeline(&end, &body, table, draw_columns(&body, table, 72));
    if (status != WD_OK) {
        wd_free(body.text);
        return status;
    }
    WD_TRY(wd_text_builder_take(&text, &body));
    end += WD_PLAN_SVG_MARGIN;
    wd_text_builder_say(&whole,
                        WD_PLAN_SVG_BEGIN
                        "xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
                        "height=\"%.0f\">\n<style>%s</style>\n",
                        WD_PLAN_SVG_WIDTH, end, WD_PLAN_SVG_WIDTH, end, style);
    wd__svg_rect(&whole, (wd_svg_box){0, 0, WD_PLAN_SVG_WIDTH, end}, "page", "");
    wd_text_builder_say(&whole, "%s</svg>\n", text);
    wd_free(text);
    return wd_text_builder_take(out, &whole);
}

wd_status wd_plan_svg_write(const char *path, const wd_plan_table *table, wd_err *err)
{
    char *picture = NULL;
    WD_TRY(draw(&picture, table, err));
    const wd_status status = wd_file_write(path, picture, strlen(picture), err);
    wd_free(picture);
    return status;
}
