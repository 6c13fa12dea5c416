/* wd_prompt_clean: see io/text/prompts.h.
 *
 * Data flow: UTF-8 -> code points -> per line: fixes of ftfy 6 until nothing changes -> character
 * references twice -> white space -> UTF-8. The order of the fixes is ftfy's, since a fix can
 * produce text that another one replaces in the next round. */
#include "io/text/prompts.h"

#include <string.h>
#include <utf8proc.h>

#include "core/memory.h"
#include "io/text/html.h"

enum {
    ROUNDS_MAX = 100,            /* ordinary text needs two; each further one undoes an escape */
    SEGMENT_POINTS_MAX = 1000000 /* ftfy's max_decode_length */
};

typedef struct cleaner {
    wd_points line, fixed, before; /* the current line, its next state, its previous state */
} cleaner;

/* The letters of a Latin ligature or digraph that ftfy expands; NULL: any other character. */
static const char *ligature(int32_t c)
{
    static const char *const digraphs[] = {"D\u017d", "D\u017e", "d\u017e", "LJ", "Lj",
                                           "lj",      "NJ",      "Nj",      "nj"};
    static const char *const digraphs_dz[] = {"DZ", "Dz", "dz"};
    static const char *const ligatures[] = {"ff", "fi", "fl", "ffi", "ffl", "\u017ft", "st"};
    if (c >= 0x1c4 && c <= 0x1cc) return digraphs[c - 0x1c4];
    if (c >= 0x1f1 && c <= 0x1f3) return digraphs_dz[c - 0x1f1];
    if (c >= 0xfb00 && c <= 0xfb06) return ligatures[c - 0xfb00];
    if (c == 0x132) return "IJ";
    if (c == 0x133) return "ij";
    if (c == 0x149) return "\u02bcn";
    return NULL;
}

static int32_t straight_quote(int32_t c)
{
    if (c == 0x2bc || (c >= 0x2018 && c <= 0x201b)) return '\'';
    return c >= 0x201c && c <= 0x201f ? '"' : c;
}

/* Appends `c` in its ordinary width; curly quotes become straight. */
static wd_status put_ordinary(wd_points *out, int32_t c, wd_err *err)
{
    if (c != 0x3000 && (c < 0xff01 || c > 0xffee))
        return wd_points_add(out, straight_quote(c), err);
    utf8proc_int32_t parts[4];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, parts, 4, UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < 4; i++)
        WD_TRY(wd_points_add(out, straight_quote(parts[i]), err));
    return WD_OK;
}

/* Replaces single characters: C1 controls by those of Windows-1252, ligatures, widths, quotes. */
static wd_status fix_characters(wd_points *out, const wd_points *in, wd_err *err)
{
    out->count = 0;
    for (int64_t i = 0; i < in->count; i++) {
        int32_t c = wd__windows_1252(in->at[i]);
        const char *letters = ligature(c);
        if (!letters) {
            WD_TRY(put_ordinary(out, c, err));
            continue;
        }
        while (*letters) {
            utf8proc_int32_t letter;
            letters += utf8proc_iterate((const uint8_t *)letters, -1, &letter);
            WD_TRY(put_ordinary(out, letter, err));
        }
    }
    return WD_OK;
}

/* CR LF, CR and Unicode's separators become LF. */
static void fix_line_breaks(wd_points *text)
{
    int64_t to = 0;
    for (int64_t i = 0; i < text->count; i++) {
        int32_t c = text->at[i];
        if (c == '\r' && i + 1 < text->count && text->at[i + 1] == '\n') continue;
        text->at[to++] = c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85 ? '\n' : c;
    }
    text->count = to;
}

/* Removes "ESC [ numbers letter", the escape sequences that set colours. */
static void remove_terminal_escapes(wd_points *text)
{
    const int32_t *at = text->at;
    int64_t to = 0, count = text->count;
    for (int64_t i = 0; i < count; i++) {
        if (at[i] == 0x1b && i + 1 < count && at[i + 1] == '[') {
            int64_t end = i + 2;
            while (end < count &&
                   (at[end] == ';' || utf8proc_category(at[end]) == UTF8PROC_CATEGORY_ND))
                end++;
            if (end < count && at[end] < 128 && (at[end] | 32) >= 'a' && (at[end] | 32) <= 'z') {
                i = end;
                continue;
            }
        }
        text->at[to++] = at[i];
    }
    text->count = to;
}

/* Whether `c` is a control that ftfy removes; joiners, directions and white space stay. */
static bool is_unwanted(int32_t c)
{
    return c <= 0x08 || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
           (c >= 0x206a && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffc);
}

static void remove_controls(wd_points *text)
{
    int64_t to = 0;
    for (int64_t i = 0; i < text->count; i++)
        if (!is_unwanted(text->at[i])) text->at[to++] = text->at[i];
    text->count = to;
}

static bool equal(const wd_points *a, const wd_points *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->at, b->at, (size_t)a->count * sizeof *a->at) == 0);
}

static wd_status copy(wd_points *out, const int32_t *at, int64_t count, wd_err *err)
{
    out->count = 0;
    for (int64_t i = 0; i < count; i++) WD_TRY(wd_points_add(out, at[i], err));
    return WD_OK;
}

/* Applies ftfy's fix_and_explain to c->line. */
static wd_status fix_line(cleaner *c, bool unescape, wd_err *err)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        WD_TRY(copy(&c->before, c->line.at, c->line.count, err));
        if (unescape) wd__html_unescape_whole(&c->line);
        WD_TRY(fix_characters(&c->fixed, &c->line, err));
        fix_line_breaks(&c->fixed);
        remove_terminal_escapes(&c->fixed);
        remove_controls(&c->fixed);
        WD_TRY(wd_points_compose(&c->fixed, &c->line, err));
        wd_points swap = c->line;
        c->line = c->fixed;
        c->fixed = swap;
        if (equal(&c->line, &c->before)) return WD_OK;
    }
    return wd_fail(err, WD_UNSUPPORTED,
                   "the prompt escapes its characters more than %d times over; write them plainly",
                   ROUNDS_MAX);
}

/* Applies ftfy's fix_text line by line; from the first line with a '<' on, references stay. */
static wd_status fix_text(wd_points *out, cleaner *c, const wd_points *text, wd_err *err)
{
    bool unescape = true;
    out->count = 0;
    for (int64_t begin = 0, end; begin < text->count; begin = end) {
        for (end = begin; end < text->count && end - begin < SEGMENT_POINTS_MAX;) {
            if (text->at[end] == '<') unescape = false;
            if (text->at[end++] == '\n') break;
        }
        WD_TRY(copy(&c->line, text->at + begin, end - begin, err));
        WD_TRY(fix_line(c, unescape, err));
        for (int64_t i = 0; i < c->line.count; i++) WD_TRY(wd_points_add(out, c->line.at[i], err));
    }
    return WD_OK;
}

static void collapse_white_space(wd_points *text)
{
    int64_t to = 0;
    for (int64_t i = 0; i < text->count; i++) {
        bool space = wd_point_is_space(text->at[i]);
        if (space && (to == 0 || text->at[to - 1] == ' ')) continue;
        text->at[to++] = space ? ' ' : text->at[i];
    }
    text->count = to > 0 && text->at[to - 1] == ' ' ? to - 1 : to;
}

wd_status wd_prompt_clean(char **out, const char *text, wd_err *err)
{
    cleaner c = {0};
    wd_points raw = {0}, clean = {0};
    wd_status status;
    size_t bytes = strlen(text);
    if (bytes > WD_PROMPT_BYTES_MAX)
        return wd_fail(err, WD_UNSUPPORTED, "a prompt of %zu bytes: at most %d are taken", bytes,
                       WD_PROMPT_BYTES_MAX);
    WD_TRY_OUT(wd_points_from_utf8(&raw, text, bytes, err));
    WD_TRY_OUT(fix_text(&clean, &c, &raw, err));
    wd__html_unescape(&clean);
    wd__html_unescape(&clean);
    collapse_white_space(&clean);
    WD_TRY_OUT(wd_points_to_utf8(out, &clean, err));
out:
    wd_points_close(&c.line);
    wd_points_close(&c.fixed);
    wd_points_close(&c.before);
    wd_points_close(&raw);
    wd_points_close(&clean);
    return status;
}
