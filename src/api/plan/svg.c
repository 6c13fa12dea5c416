/* Elements of SVG: see api/plan/svg.h. */
#include "api/plan/svg.h"

#include <stdio.h>
#include <string.h>

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

void wd__svg_text_within(wd_text_builder *builder, double x, double y, double width,
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
