/* A small TrueType font, made of rectangles, whose metrics a test knows; and configurations of
 * fontconfig, so that a test sees the same fonts on every machine. */
#ifndef WD_TESTS_SMALL_FONT_H
#define WD_TESTS_SMALL_FONT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WD_SMALL_FONT_BYTES = 2048, WD_SMALL_FONT_EM = 1000 };

/* What the font has, with its advance in thousandths of the em. Glyphs are as wide as that. */
enum {
    WD_SMALL_HAN = 0x4e00,      /* to 0x4eff, 1000: as wide as the em */
    WD_SMALL_CYRILLIC = 0x430,  /* to 0x44f, 500; so have letters, digits and signs of ASCII */
    WD_SMALL_STOP = 0x3002,     /* 1000: the full stop of Chinese */
    WD_SMALL_MARK = 0x300,      /* to 0x36f, 500: marks, drawn to the right of the pen */
    WD_SMALL_LARGE = 0x5000,    /* a glyph of 18 ems */
    WD_SMALL_FAR_ON = 0x5001,   /* a glyph after which the pen goes 30 ems on */
    WD_SMALL_NOT_THERE = 0xac00 /* none */
};

typedef struct wd_small_font_ {
    uint8_t *at;
    size_t used;
} wd_small_font_;

static inline void wd_small_put_(wd_small_font_ *f, int bytes, int64_t value)
{
    if (f->used + (size_t)bytes > WD_SMALL_FONT_BYTES) abort();
    for (int i = bytes - 1; i >= 0; i--) f->at[f->used++] = (uint8_t)((uint64_t)value >> 8 * i);
}

/* One rectangle; of no width: a glyph without ink, which takes no bytes. */
typedef struct wd_small_glyph_ {
    int advance, x, y, x_end, y_end;
} wd_small_glyph_;

enum { WD_SMALL_GLYPHS_ = 8, WD_SMALL_GLYPH_BYTES_ = 36 };

static inline const wd_small_glyph_ *wd_small_glyphs_(void)
{
    static const wd_small_glyph_ glyphs[WD_SMALL_GLYPHS_] = {
        {500, 0, 0, 0, 0},       {1000, 0, -120, 1000, 880}, {500, 0, 0, 500, 700},
        {500, 0, 0, 0, 0},       {500, 100, 750, 400, 850},  {1000, -9000, -9000, 9000, 9000},
        {30000, 0, 0, 500, 700}, {1000, 100, 0, 300, 200},
    };
    return glyphs;
}

static inline void wd_small_put_glyphs_(wd_small_font_ *f)
{
    const wd_small_glyph_ *g = wd_small_glyphs_();
    for (int i = 0; i < WD_SMALL_GLYPHS_; i++, g++) {
        if (g->x_end == g->x) continue;
        const int numbers[] = {1,
                               g->x,
                               g->y,
                               g->x_end,
                               g->y_end,
                               3,
                               0,
                               0x0101,
                               0x0101, /* four points of the outline */
                               g->x,
                               0,
                               g->x_end - g->x,
                               0,
                               g->y,
                               g->y_end - g->y,
                               0,
                               g->y - g->y_end,
                               0};
        for (int k = 0; k < WD_SMALL_GLYPH_BYTES_ / 2; k++) wd_small_put_(f, 2, numbers[k]);
    }
}

/* Which code points have which glyph: a table of format 13, of ranges with one glyph each. */
static inline void wd_small_put_map_(wd_small_font_ *f)
{
    static const int ranges[][3] = {
        {' ', ' ', 3},
        {'!', '~', 2},
        {WD_SMALL_MARK, 0x36f, 4},
        {WD_SMALL_CYRILLIC, 0x44f, 2},
        {WD_SMALL_STOP, WD_SMALL_STOP, 7},
        {WD_SMALL_HAN, 0x4eff, 1},
        {WD_SMALL_LARGE, WD_SMALL_LARGE, 5},
        {WD_SMALL_FAR_ON, WD_SMALL_FAR_ON, 6},
    };
    const int count = sizeof ranges / sizeof *ranges;
    const int64_t words[] = {0x00000001, 0x0003000a, 12, 0x000d0000, 16 + 12 * count, 0, count};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) wd_small_put_(f, 4, words[i]);
    for (int i = 0; i < 3 * count; i++) wd_small_put_(f, 4, ranges[i / 3][i % 3]);
}

static inline void wd_small_put_table_(wd_small_font_ *f, const char *name)
{
    const wd_small_glyph_ *g = wd_small_glyphs_();
    static const int head[] = {1,    0,    1, 0, 0, 0, 0x5f0f, 0x3cf5, 0,     WD_SMALL_FONT_EM,
                               0,    0,    0, 0, 0, 0, 0,      0,      -9000, -9000,
                               9000, 9000, 0, 8, 2, 1, 0};
    static const int hhea[] = {1, 0, 900, -200, 0, 30000, -9000, 0, 9000,
                               1, 0, 0,   0,    0, 0,     0,     0, WD_SMALL_GLYPHS_};
    static const int maxp[] = {1, 0, WD_SMALL_GLYPHS_, 4, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    if (!strcmp(name, "cmap")) wd_small_put_map_(f);
    if (!strcmp(name, "glyf")) wd_small_put_glyphs_(f);
    for (int i = 0; i < 27 && !strcmp(name, "head"); i++) wd_small_put_(f, 2, head[i]);
    for (int i = 0; i < 18 && !strcmp(name, "hhea"); i++) wd_small_put_(f, 2, hhea[i]);
    for (int i = 0; i < 16 && !strcmp(name, "maxp"); i++) wd_small_put_(f, 2, maxp[i]);
    for (int i = 0; i < WD_SMALL_GLYPHS_ && !strcmp(name, "hmtx"); i++)
        wd_small_put_(f, 4, ((int64_t)g[i].advance << 16) | (g[i].x & 0xffff));
    for (int i = 0, at = 0; i <= WD_SMALL_GLYPHS_ && !strcmp(name, "loca"); i++) {
        wd_small_put_(f, 4, at);
        at += i < WD_SMALL_GLYPHS_ && g[i].x_end > g[i].x ? WD_SMALL_GLYPH_BYTES_ : 0;
    }
}

/* The font's file; returns its bytes. */
static inline size_t wd_small_font(uint8_t out[WD_SMALL_FONT_BYTES])
{
    static const char *const tables[] = {"cmap", "glyf", "head", "hhea", "hmtx", "loca", "maxp"};
    enum { TABLES = sizeof tables / sizeof *tables };
    wd_small_font_ f = {.at = out};
    size_t begin[TABLES + 1];
    memset(out, 0, WD_SMALL_FONT_BYTES);
    f.used = 12 + 16 * TABLES;
    for (int i = 0; i < TABLES; i++) {
        f.used = (f.used + 3) & ~(size_t)3;
        begin[i] = f.used;
        wd_small_put_table_(&f, tables[i]);
        begin[i + 1] = f.used;
        const size_t end = f.used;
        f.used = 12 + 16 * (size_t)i;
        for (int k = 0; k < 4; k++) wd_small_put_(&f, 1, tables[i][k]);
        wd_small_put_(&f, 4, 0);
        wd_small_put_(&f, 4, (int64_t)begin[i]);
        wd_small_put_(&f, 4, (int64_t)(end - begin[i]));
        f.used = end;
    }
    const size_t bytes = f.used;
    f.used = 0;
    wd_small_put_(&f, 4, 0x00010000);
    wd_small_put_(&f, 2, TABLES);
    return bytes;
}

static inline void wd_small_write_(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, count, file) != count || fclose(file)) abort();
}

/* From now on the fonts of this process are what `bytes` of a font's file say; 0: there are none.
 * The files are written into `folder`, which exists; every font into a folder of its own there,
 * since fontconfig keeps what it has read of a folder in its cache. */
static inline void wd_small_font_only(const char *folder, const uint8_t *font, size_t bytes)
{
    static int calls;
    char fonts[256], path[300], text[1024];
    snprintf(fonts, sizeof fonts, "%s/fonts-%d", folder, calls++);
    snprintf(path, sizeof path, "%s/small.ttf", fonts);
    if (mkdir(fonts, 0700)) abort();
    if (bytes) wd_small_write_(path, font, bytes);
    const int n = snprintf(text, sizeof text,
                           "<fontconfig><dir>%s</dir><cachedir>%s/cache</cachedir></fontconfig>",
                           fonts, folder);
    snprintf(path, sizeof path, "%s/fonts.conf", folder);
    wd_small_write_(path, text, (size_t)n);
    setenv("FONTCONFIG_FILE", path, 1);
}

#endif
