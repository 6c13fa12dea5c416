/* The font: see io/picture/font.h.
 *
 * The glyphs were drawn for this program. In the table below twelve glyphs are side by side, each 5
 * wide and 9 high (7 for capitals, 2 for descenders), with a column of space between them. A glyph
 * is drawn without the empty columns at its sides. */
#include "io/picture/font.h"

#include <string.h>
#include <utf8proc.h>

#include "core/unicode.h"

enum { GLYPH_WIDTH = 5, PER_BAND = 12, FIRST = ' ', BOX = 127, SPACE_WIDTH = 3 };

/* clang-format off */
static const char *const art[] = {
    "      #     # #    # #    #   ##     ##   #       #   #                ",
    "      #     # #    # #   #### ##  # #  #  #      #     #      #        ",
    "      #     # #   ##### # #      #  # #   #     #       #   # # #   #  ",
    "      #            # #   ###    #    #          #       #    ###    #  ",
    "      #           #####   # #  #    # # #       #       #   # # # #####",
    "                   # #  ####  #  ## #  #        #       #     #     #  ",
    "      #            # #    #      ##  ## #       #       #           #  ",
    "                                                 #     #               ",
    "                                                  #   #                ",
    "                      #  ###    #    ###   ###     #  #####   ##  #####",
    "                      # #   #  ##   #   # #   #   ##  #      #        #",
    "                     #  #  ## # #       #     #  # #  ####  #        # ",
    "                    #   # # #   #     ##    ##  #  #      # ####     # ",
    "      ####         #    ##  #   #    #        # #####     # #   #   #  ",
    "                  #     #   #   #   #     #   #    #  #   # #   #   #  ",
    " #          #     #      ###  ##### #####  ###     #   ###   ###    #  ",
    " #                                                                     ",
    "#                                                                      ",
    " ###   ###                                 ###   ###   ###  ####   ### ",
    "#   # #   #                #              #   # #   # #   # #   # #   #",
    "#   # #   # #      #      #         #         # # ### #   # #   # #    ",
    " ###   ####              #    ####   #       #  # # # #   # ####  #    ",
    "#   #     #               #           #     #   # ### ##### #   # #    ",
    "#   #    #                 #  ####   #          #     #   # #   # #   #",
    " ###   ##   #      #                #       #    ###  #   # ####   ### ",
    "                   #                                                   ",
    "                  #                                                    ",
    "####  ##### #####  ###  #   # ###      #  #   # #     #   # #   #  ### ",
    "#   # #     #     #   # #   #  #       #  #  #  #     ## ## ##  # #   #",
    "#   # #     #     #     #   #  #       #  # #   #     # # # ##  # #   #",
    "#   # ####  ####  # ### #####  #       #  ##    #     # # # # # # #   #",
    "#   # #     #     #   # #   #  #       #  # #   #     #   # #  ## #   #",
    "#   # #     #     #   # #   #  #    #  #  #  #  #     #   # #  ## #   #",
    "####  ##### #      #### #   # ###    ##   #   # ####  #   # #   #  ### ",
    "                                                                       ",
    "                                                                       ",
    "####   ###  ####   #### ##### #   # #   # #   # #   # #   # ##### ###  ",
    "#   # #   # #   # #       #   #   # #   # #   # #   # #   #     # #    ",
    "#   # #   # #   # #       #   #   # #   # #   #  # #   # #     #  #    ",
    "####  #   # ####   ###    #   #   # #   # # # #   #     #     #   #    ",
    "#     # # # # #       #   #   #   #  # #  # # #  # #    #    #    #    ",
    "#     #  #  #  #      #   #   #   #  # #  ## ## #   #   #   #     #    ",
    "#      ## # #   # ####    #    ###    #   #   # #   #   #   ##### #    ",
    "                                                                  #    ",
    "                                                                  ###  ",
    "#     ###     #         #           #               #         ##       ",
    "#       #    # #         #          #               #        #         ",
    " #      #   #   #              ###  ####   ###   ####  ###  ###    ####",
    "  #     #                         # #   # #     #   # #   #  #    #   #",
    "   #    #                      #### #   # #     #   # #####  #    #   #",
    "    #   #                     #   # #   # #     #   # #      #    #   #",
    "    #   #                      #### ####   ###   ####  ###   #     ####",
    "        #         #####                                               #",
    "      ###                                                          ### ",
    "#     #       #   #     ##                                             ",
    "#                 #      #                                             ",
    "####  #       #   #  #   #    ## #  ####   ###  ####   #### # ##   ####",
    "#   # #       #   # #    #    # # # #   # #   # #   # #   # ##    #    ",
    "#   # #       #   ##     #    # # # #   # #   # #   # #   # #      ### ",
    "#   # #       #   # #    #    # # # #   # #   # #   # #   # #         #",
    "#   # #       #   #  #   ##   # # # #   #  ###  ####   #### #     #### ",
    "              #                                 #         #            ",
    "            ##                                  #         #            ",
    " #                                          #   #     #                ",
    " #                                         #    #      #          #####",
    "####  #   # #   # #   # #   # #   # #####  #    #      #          #   #",
    " #    #   # #   # # # #  # #  #   #    #   #    #      #     #  # #   #",
    " #    #   #  # #  # # #   #   #   #   #   #     #       #   # ##  #   #",
    " #    #   #  # #  # # #  # #  #   #  #     #    #      #          #   #",
    "  ##   ####   #    # #  #   #  #### #####  #    #      #          #####",
    "                                  #        #    #      #               ",
    "                               ###          #   #     #                ",};
/* clang-format on */

static bool has_ink(int glyph, int x, int y)
{
    if (x < 0 || x >= GLYPH_WIDTH || y < 0 || y >= WD_FONT_HEIGHT) return false;
    int index = glyph - FIRST;
    return art[index / PER_BAND * WD_FONT_HEIGHT + y][index % PER_BAND * (GLYPH_WIDTH + 1) + x] ==
           '#';
}

/* Whether the glyph has ink at (x, y) when it is enlarged by `scale`. Each doubling fills the inner
 * corners of slanted strokes: a quarter of an empty pixel gets ink if exactly the two neighbours
 * that it touches have ink. */
static bool has_ink_at(int glyph, int x, int y, int scale)
{
    if (scale == 1) return has_ink(glyph, x, y);
    int s = scale / 2, cx = x >> 1, cy = y >> 1; /* -1 is in -1 */
    bool up = has_ink_at(glyph, cx, cy - 1, s), down = has_ink_at(glyph, cx, cy + 1, s);
    bool left = has_ink_at(glyph, cx - 1, cy, s), right = has_ink_at(glyph, cx + 1, cy, s);
    bool vertical = y & 1 ? down : up, horizontal = x & 1 ? right : left;
    bool other_vertical = y & 1 ? up : down, other_horizontal = x & 1 ? left : right;
    if (vertical && horizontal && !other_vertical && !other_horizontal) return true;
    return has_ink_at(glyph, cx, cy, s);
}

/* The columns of a glyph that have ink: *left is the first, the result their number. */
static int ink_of(int *left, int glyph)
{
    int first = GLYPH_WIDTH, last = -1;
    for (int y = 0; y < WD_FONT_HEIGHT; y++) {
        for (int x = 0; x < GLYPH_WIDTH; x++) {
            if (!has_ink(glyph, x, y)) continue;
            if (x < first) first = x;
            if (x > last) last = x;
        }
    }
    *left = last < 0 ? 0 : first;
    return last < 0 ? SPACE_WIDTH : last - first + 1;
}

int64_t wd__font_width(const char *glyphs, size_t count, int scale)
{
    int64_t width = 0;
    int left;
    for (size_t i = 0; i < count; i++) width += ink_of(&left, (unsigned char)glyphs[i]) + (i > 0);
    return width * scale;
}

static void draw_glyph(wd_image *image, int64_t x0, int64_t y0, int glyph, int left, int width,
                       int scale, uint8_t grey)
{
    for (int y = 0; y < WD_FONT_HEIGHT * scale; y++) {
        for (int x = 0; x < width * scale; x++) {
            int64_t px = x0 + x, py = y0 + y;
            if (px < 0 || px >= image->width || py < 0 || py >= image->height) continue;
            if (!has_ink_at(glyph, x + left * scale, y, scale)) continue;
            memset(image->rgb + 3 * (py * image->width + px), grey, 3);
        }
    }
}

void wd__font_draw(wd_image *image, int64_t x, int64_t y, const char *glyphs, size_t count,
                   int scale, uint8_t grey)
{
    for (size_t i = 0; i < count; i++) {
        int left, glyph = (unsigned char)glyphs[i], width = ink_of(&left, glyph);
        draw_glyph(image, x, y, glyph, left, width, scale, grey);
        x += (width + 1) * scale;
    }
}

/* An ASCII text for letters that Unicode does not decompose, and for marks with a similar one in
 * ASCII. */
static const char *likeness(int32_t c)
{
    if (c >= 0x2018 && c <= 0x201b) return "'";
    if (c >= 0x201c && c <= 0x201f) return "\"";
    if ((c >= 0x2010 && c <= 0x2015) || c == 0x2212) return "-";
    switch (c) {
    case 0xc6:
        return "AE";
    case 0xd0:
        return "D";
    case 0xd7:
        return "x";
    case 0xd8:
        return "O";
    case 0xdf:
        return "ss";
    case 0xe6:
        return "ae";
    case 0xf0:
        return "d";
    case 0xf8:
        return "o";
    case 0x111:
        return "d";
    case 0x131:
        return "i";
    case 0x141:
        return "L";
    case 0x142:
        return "l";
    case 0x152:
        return "OE";
    case 0x153:
        return "oe";
    case 0x2026:
        return "...";
    default:
        return NULL;
    }
}

/* Whether the code point is a mark or joiner without a shape of its own. */
static bool is_invisible(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_CC;
}

/* Writes the glyphs of one code point into `out` (32 bytes); returns their number. */
static size_t fold_point(char *out, int32_t c)
{
    enum { PARTS_MAX = 31 };
    utf8proc_int32_t parts[PARTS_MAX];
    int boundary = 0;
    size_t n = 0;
    const char *like = likeness(c);
    if (like) return (size_t)(stpcpy(out, like) - out);
    utf8proc_ssize_t count = utf8proc_decompose_char(
        c, parts, PARTS_MAX, UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < count && i < PARTS_MAX; i++) {
        if (is_invisible(parts[i])) continue;
        bool ascii = parts[i] >= FIRST && parts[i] < BOX;
        if (!ascii && n && out[n - 1] == BOX) continue; /* one box for one character */
        out[n++] = ascii ? (char)parts[i] : BOX;
    }
    return n;
}

bool wd__font_has(int32_t point)
{
    char glyphs[32];
    return wd_point_is_space(point) || !memchr(glyphs, BOX, fold_point(glyphs, point));
}

size_t wd__font_fold(char *out, size_t out_bytes, const char *text)
{
    size_t used = 0, bytes = strlen(text);
    for (size_t i = 0; i < bytes;) {
        char glyphs[32];
        utf8proc_int32_t point;
        utf8proc_ssize_t n =
            utf8proc_iterate((const uint8_t *)text + i, (int64_t)(bytes - i), &point);
        size_t count = 1;
        glyphs[0] = n > 0 ? ' ' : BOX;
        if (n > 0 && !wd_point_is_space(point)) count = fold_point(glyphs, point);
        i += n > 0 ? (size_t)n : 1;
        if (used + count >= out_bytes) break;
        if (count == 1 && *glyphs == ' ' && (used == 0 || out[used - 1] == ' ')) continue;
        memcpy(out + used, glyphs, count);
        used += count;
    }
    if (used && out[used - 1] == ' ') used--;
    out[used] = '\0';
    return used;
}
