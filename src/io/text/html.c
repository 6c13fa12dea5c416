/* Character references: see io/text/html.h.
 *
 * Both decoders pass over the text once; they read at `from` and write at `to` <= `from`. */
#include "io/text/html.h"

#include <string.h>
#include <utf8proc.h>

#include "core/error.h"

enum { NAME_MAX_CHARS = 31, WHOLE_MAX_CHARS = 24 };

/* The character of a numeric reference to 0x80 + i: that of Windows-1252, if it has one. */
static const uint16_t windows_1252[32] = {
    0x20ac, 0x0081, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x008d, 0x017d, 0x008f, 0x0090, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x009d, 0x017e, 0x0178};

int32_t wd__windows_1252(int32_t c)
{
    return c >= 0x80 && c < 0xa0 ? windows_1252[c - 0x80] : c;
}

static bool is_digit(int32_t c)
{
    return c >= '0' && c <= '9';
}
static bool is_letter(int32_t c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z' && c < 128;
}

/* The value of a hexadecimal digit, or -1. */
static int digit_value(int32_t c)
{
    if (is_digit(c)) return c - '0';
    return is_letter(c) && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* The characters of a reference, and its length in the text. */
typedef struct meaning {
    int64_t used; /* code points from '&' on; 0: not a reference */
    int32_t point[3];
    int points;
} meaning;

static meaning meaning_of(int64_t used, int32_t point)
{
    return (meaning){.used = used, .point = {point}, .points = 1};
}

static bool is_forbidden(int32_t c)
{
    return (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
           (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
}

/* at[0..count) begins with "&#". */
static meaning numeric(const int32_t *at, int64_t count)
{
    int64_t i = 2;
    int base = 10;
    if (i < count && (at[i] | 32) == 'x') base = 16, i++;
    int64_t first = i;
    int32_t value = 0;
    for (; i < count; i++) {
        int digit = digit_value(at[i]);
        if (digit < 0 || digit >= base) break;
        value = value * base + digit;
        if (value > 0x10ffff) value = 0x110000; /* too large stays too large */
    }
    if (i == first) return (meaning){0};
    if (i < count && at[i] == ';') i++;
    if (value == 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return meaning_of(i, 0xfffd);
    if (is_forbidden(value)) return (meaning){.used = i};
    return meaning_of(i, wd__windows_1252(value));
}

static const wd_html_entity *find(const char *name)
{
    int low = 0, high = wd_html_entity_count;
    while (low < high) {
        int middle = (low + high) / 2, order = strcmp(name, wd_html_entities[middle].name);
        if (order == 0) return &wd_html_entities[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static meaning meaning_of_entity(int64_t used, const wd_html_entity *entity)
{
    return (meaning){
        .used = used, .point = {entity->first, entity->second}, .points = entity->second ? 2 : 1};
}

/* Copies the letters and digits after '&' to `name`, at most `count_max`; returns their number. */
static int64_t name_behind(char *name, int64_t count_max, const int32_t *at, int64_t count)
{
    int64_t n = 0;
    while (n < count_max && n + 1 < count && (is_letter(at[n + 1]) || is_digit(at[n + 1])))
        name[n] = (char)at[n + 1], n++;
    name[n] = '\0';
    return n;
}

/* The longest name with which the text after '&' begins. */
static meaning named(const int32_t *at, int64_t count)
{
    char name[NAME_MAX_CHARS + 1];
    int64_t n = name_behind(name, NAME_MAX_CHARS, at, count);
    const wd_html_entity *entity = find(name);
    if (entity && n + 1 < count && at[n + 1] == ';') return meaning_of_entity(n + 2, entity);
    for (; n >= 2; n--) {
        name[n] = '\0';
        entity = find(name);
        if (entity && entity->bare) return meaning_of_entity(n + 1, entity);
    }
    return (meaning){0};
}

/* Decodes "&EACUTE;" as the capitals of "&eacute;". Only names of which HTML decodes no part are
 * decoded so: "&GTCC;" begins with "&GT", so it is not "&gtcc;" in capitals. */
static meaning named_in_capitals(char *name, int64_t used)
{
    for (char *c = name; *c; c++) {
        if (*c >= 'a' && *c <= 'z') return (meaning){0};
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c | 32);
    }
    const wd_html_entity *entity = find(name);
    if (!entity) return (meaning){0};
    meaning m = {.used = used};
    const int32_t parts[2] = {entity->first, entity->second};
    for (int i = 0; i < 2 && parts[i]; i++) {
        /* Ligatures have capitals only in pieces: "&FILIG;" is "FI". */
        utf8proc_int32_t piece[3] = {parts[i]};
        int boundary = 0, pieces = 1;
        if (parts[i] == 0xdf)
            piece[0] = piece[1] = 's', pieces = 2;
        else if ((parts[i] >= 0xfb00 && parts[i] <= 0xfb04) || parts[i] == 0x149)
            pieces = (int)utf8proc_decompose_char(parts[i], piece, 3,
                                                  UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE, &boundary);
        for (int k = 0; k < pieces; k++) m.point[m.points++] = utf8proc_toupper(piece[k]);
    }
    return m;
}

static meaning whole(const int32_t *at, int64_t count)
{
    if (count > 1 && at[1] == '#') {
        int64_t end = 2;
        while (end < count && end < 2 + WHOLE_MAX_CHARS &&
               (is_letter(at[end]) || is_digit(at[end])))
            end++;
        if (end == count || at[end] != ';') return (meaning){0};
        meaning m = numeric(at, end + 1);
        /* A reference that means a semicolon is not decoded, as in ftfy. */
        return m.used == end + 1 && !(m.points && m.point[0] == ';') ? m : (meaning){0};
    }
    char name[WHOLE_MAX_CHARS + 1];
    int64_t n = name_behind(name, WHOLE_MAX_CHARS, at, count);
    if (n == 0 || n + 1 == count || at[n + 1] != ';') return (meaning){0};
    const wd_html_entity *entity = find(name);
    if (entity) return meaning_of_entity(n + 2, entity);
    if (named(at, n + 2).used) return (meaning){0};
    return named_in_capitals(name, n + 2);
}

static meaning any(const int32_t *at, int64_t count)
{
    if (count > 1 && at[1] == '#') return numeric(at, count);
    return named(at, count);
}

/* `again`: a decoded ampersand may begin another reference ("&amp;amp;lt;"). */
static void decode(wd_points *text, meaning (*read)(const int32_t *, int64_t), bool again)
{
    int64_t to = 0;
    for (int64_t from = 0; from < text->count;) {
        meaning m = {0};
        if (text->at[from] == '&') m = read(text->at + from, text->count - from);
        if (m.used == 0) {
            text->at[to++] = text->at[from++];
        } else if (again && m.points == 1 && m.point[0] == '&') {
            from += m.used - 1;
            text->at[from] = '&';
        } else {
            from += m.used;
            WD_REQUIRE(m.points <= m.used, "a reference grows by what it stands for");
            for (int i = 0; i < m.points; i++) text->at[to++] = m.point[i];
        }
    }
    text->count = to;
}

void wd__html_unescape(wd_points *text)
{
    decode(text, any, false);
}

void wd__html_unescape_whole(wd_points *text)
{
    decode(text, whole, true);
}
