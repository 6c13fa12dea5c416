/* A plan as a picture: see api/plan/plan_svg.h. */
#include "api/plan/plan_svg.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/plan/svg.h"
#include "core/memory.h"
#include "io/file/file.h"

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
    wd_svg_text(builder, WD_PLAN_SVG_MARGIN, 30, "title", line);
    snprintf(line, sizeof line,
             "%.3g s per training step, limited by %s; trajectories per sweep over the teacher: "
             "%" PRId64 ", %" PRId64 " at a time; batch %" PRId64 ", %" PRId64 "x%" PRId64
             " pixels",
             s->step_seconds, wd_train_plan_limit(limit, sizeof limit, t->plan, s), s->window,
             s->micro_batch, o->batch_size, o->height, o->width);
    wd_svg_text(builder, WD_PLAN_SVG_MARGIN, 50, "", line);
}

/* Draws the parts first, since the height of the picture is written at its beginning. */
static wd_status draw(char **out, const wd_plan_table *table, wd_err *err)
{
    wd_text_builder body = {.err = err}, whole = {.err = err};
    char *text = NULL;
    double end = 0;
    wd_status status;
    say_head(&body, table);
    status = wd_plan_svg_timeline(&end, &body, table, wd_plan_svg_memory(&body, table, 72));
    if (status != WD_OK) {
        wd_free(body.text);
        return status;
    }
    WD_TRY(wd_text_builder_take(&text, &body));
    end += WD_PLAN_SVG_MARGIN;
    wd_text_builder_say(
        &whole,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
        "height=\"%.0f\">\n<style>%s</style>\n",
        WD_PLAN_SVG_WIDTH, end, WD_PLAN_SVG_WIDTH, end, style);
    wd_svg_rect(&whole, (wd_svg_box){0, 0, WD_PLAN_SVG_WIDTH, end}, "page", "");
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
