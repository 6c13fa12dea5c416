/* Text that is safe to print: see core/terminal_safe.h. */
#include "core/terminal_safe.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct range {
    uint32_t first, last;
} range;

/* The code points that a terminal does not show as themselves. Newline and tab stay. */
static const range hidden[] = {
    {0x00, 0x1f},       /* controls: escape, carriage return, backspace, bell */
    {0x7f, 0x9f},       /* delete, and the controls of 8-bit terminals */
    {0xad, 0xad},       /* soft hyphen */
    {0x61c, 0x61c},     /* Arabic letter mark */
    {0x180e, 0x180e},   /* Mongolian vowel separator */
    {0x200b, 0x200b},   /* zero width space; the joiners after it shape letters and stay */
    {0x200e, 0x200f},   /* left-to-right and right-to-left marks */
    {0x2028, 0x202e},   /* separators of lines and paragraphs; embeddings and overrides */
    {0x2060, 0x206f},   /* word joiner, invisible operators, isolates, deprecated controls */
    {0xfeff, 0xfeff},   /* byte order mark */
    {0xfff9, 0xfffb},   /* annotations */
    {0xe0000, 0xe007f}, /* tags */
};

/* Sets *point to the code point at the start of `text` and returns its bytes; 0: not UTF-8. */
static int decode(uint32_t *point, const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char first = text[0];
    const int bytes = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (!bytes || first > 0xf4) return 0;
    *point = bytes == 1 ? first : first & (0x7fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0; /* so it does not read beyond the text's end */
        *point = *point << 6 | (text[i] & 0x3f);
    }
    const bool is_surrogate = *point >= 0xd800 && *point < 0xe000;
    return *point < least[bytes] || *point > 0x10ffff || is_surrogate ? 0 : bytes;
}

static bool is_shown(uint32_t point)
{
    if (point == '\n' || point == '\t') return true;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (point >= hidden[i].first && point <= hidden[i].last) return false;
    return true;
}

void wd_make_terminal_safe(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        uint32_t point = 0;
        const int bytes = decode(&point, (const unsigned char *)from);
        if (bytes && is_shown(point)) {
            for (int i = 0; i < bytes; i++) *to++ = from[i];
        } else {
            *to++ = '?';
        }
        from += bytes ? bytes : 1;
    }
    *to = '\0';
}

int wd_terminal_safe_bytes(const char *text, size_t bytes, int most)
{
    int n = 0;
    while (n < most && (size_t)n < bytes && (unsigned char)text[n] >= 0x20 && text[n] != 0x7f) n++;
    return n;
}
