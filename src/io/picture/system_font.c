/* The fonts of the system: see io/picture/system_font.h.
 *
 * Data flow: fontconfig sorts all fonts once per language, best first. For a text, the first font
 * that has all of its letters is the chosen one. A code point is then looked up in the chosen font,
 * else in the list; the font's file is opened as a face, and its outline is loaded and rendered.
 *
 * A configuration and a library of our own are opened and closed with the object, so nothing is
 * shared with other users of these libraries in the process. FreeType allocates by core/memory.h,
 * so that plans count what it takes, and at most MEMORY_MAX. What fontconfig takes is counted by a
 * constant. Fonts may be damaged: sizes of glyphs are checked before FreeType renders them. */
#include "io/picture/system_font.h"

#include <dlfcn.h>
#include <fontconfig/fontconfig.h>
#include <ft2build.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <utf8proc.h>
#include FT_FREETYPE_H
#include FT_MODULE_H
#include FT_OUTLINE_H

#include "core/memory.h"

enum {
    FACES_MAX = 8,         /* files that are open */
    TRIES_MAX = 8,         /* fonts that have a code point, as fontconfig says, but give no glyph */
    EMS_MAX = 4,           /* a larger glyph is none */
    MEMORY_MAX = 64 << 20, /* bytes that FreeType may have */
    CONFIG_BYTES = 1 << 19 /* more than fontconfig takes: 0.2 MB with 321 fonts, measured */
};

/* ---- the libraries ---- */

#define FREETYPE_MAP(X)                                                                            \
    X(FT_New_Library)                                                                              \
    X(FT_Done_Library)                                                                             \
    X(FT_Add_Default_Modules)                                                                      \
    X(FT_New_Face)                                                                                 \
    X(FT_Done_Face)                                                                                \
    X(FT_Set_Pixel_Sizes)                                                                          \
    X(FT_Get_Char_Index)                                                                           \
    X(FT_Load_Glyph)                                                                               \
    X(FT_Outline_Get_CBox)                                                                         \
    X(FT_Render_Glyph)
#define FONTCONFIG_MAP(X)                                                                          \
    X(FcConfigCreate)                                                                              \
    X(FcConfigDestroy)                                                                             \
    X(FcConfigParseAndLoad)                                                                        \
    X(FcConfigBuildFonts)                                                                          \
    X(FcConfigSubstitute)                                                                          \
    X(FcDefaultSubstitute)                                                                         \
    X(FcPatternCreate)                                                                             \
    X(FcPatternDestroy)                                                                            \
    X(FcPatternAddString)                                                                          \
    X(FcPatternGetBool)                                                                            \
    X(FcPatternGetInteger)                                                                         \
    X(FcPatternGetString)                                                                          \
    X(FcPatternGetCharSet)                                                                         \
    X(FcCharSetHasChar)                                                                            \
    X(FcFontSort)                                                                                  \
    X(FcFontSetDestroy)

/* The libraries' functions, under their own names. Opened once per process, never closed. */
static struct {
#define X(name) __typeof__(name) *name;
    FREETYPE_MAP(X)
    FONTCONFIG_MAP(X)
#undef X
} call;
static bool has_libraries;

static void open_libraries(void)
{
#define X(name) {#name, &call.name},
    static const struct {
        const char *name;
        void *to; /* a pointer to a function, which ISO C cannot convert from what dlsym returns */
    } freetype[] = {FREETYPE_MAP(X)}, fontconfig[] = {FONTCONFIG_MAP(X)};
#undef X
    void *const ft = dlopen("libfreetype.so.6", RTLD_NOW | RTLD_LOCAL);
    void *const fc = dlopen("libfontconfig.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!ft || !fc) return;
    for (size_t i = 0; i < sizeof freetype / sizeof *freetype; i++)
        if (!(*(void **)freetype[i].to = dlsym(ft, freetype[i].name))) return;
    for (size_t i = 0; i < sizeof fontconfig / sizeof *fontconfig; i++)
        if (!(*(void **)fontconfig[i].to = dlsym(fc, fontconfig[i].name))) return;
    has_libraries = true;
}

/* ---- FreeType's memory ---- */

/* Before each block of FreeType. */
typedef union header {
    size_t bytes;
    max_align_t aligned;
} header;

struct wd_system_font {
    struct FT_MemoryRec_ memory;
    size_t held; /* by FreeType, with headers */
    FT_Library library;
    FcConfig *config;
    FcFontSet *sorted[4];   /* by language; NULL: not sorted yet */
    const FcFontSet *fonts; /* for the text; NULL: there are none */
    int chosen;             /* of `fonts`, or -1 */
    struct {
        const FcPattern *font;
        FT_Face face; /* NULL: the file cannot be used */
    } open[FACES_MAX];
    int next; /* of `open`, to be replaced */
};

static void *resize(FT_Memory memory, long before, long bytes, void *block)
{
    (void)before;
    wd_system_font *f = memory->user;
    void *start = block ? (header *)block - 1 : NULL;
    const size_t had = block ? ((header *)start)->bytes : 0, want = (size_t)bytes + sizeof(header);
    if (bytes < 0 || bytes > MEMORY_MAX || f->held - had + want > MEMORY_MAX) return NULL;
    if (wd_resize(&start, want, 1, "a font", NULL) != WD_OK) return NULL;
    ((header *)start)->bytes = want;
    f->held += want - had;
    return (header *)start + 1;
}

static void *allocate(FT_Memory memory, long bytes)
{
    return resize(memory, 0, bytes, NULL);
}

static void release(FT_Memory memory, void *block)
{
    if (!block) return;
    wd_system_font *f = memory->user;
    header *start = (header *)block - 1;
    f->held -= start->bytes;
    wd_free(start);
}

/* ---- opening ---- */

/* A missing configuration is no reason to say anything: then there are no fonts. */
static bool open_both(wd_system_font *f)
{
    f->memory =
        (struct FT_MemoryRec_){.user = f, .alloc = allocate, .free = release, .realloc = resize};
    f->config = call.FcConfigCreate();
    if (!f->config || !call.FcConfigParseAndLoad(f->config, NULL, FcFalse)) return false;
    if (!call.FcConfigBuildFonts(f->config)) return false;
    if (call.FT_New_Library(&f->memory, &f->library)) return f->library = NULL, false;
    call.FT_Add_Default_Modules(f->library);
    return true;
}

wd_system_font *wd__system_font_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    wd_system_font *f;
    pthread_once(&once, open_libraries);
    if (!has_libraries || wd_alloc((void **)&f, 1, sizeof *f, "fonts", NULL) != WD_OK) return NULL;
    wd_memory_hold_elsewhere(CONFIG_BYTES, true);
    if (open_both(f)) return f;
    wd__system_font_close(f);
    return NULL;
}

void wd__system_font_close(wd_system_font *f)
{
    if (!f) return;
    if (f->library) call.FT_Done_Library(f->library); /* with its faces */
    for (size_t i = 0; i < sizeof f->sorted / sizeof *f->sorted; i++)
        if (f->sorted[i]) call.FcFontSetDestroy(f->sorted[i]);
    if (f->config) call.FcConfigDestroy(f->config);
    wd_memory_hold_elsewhere(CONFIG_BYTES, false);
    wd_free(f);
}

/* ---- which font ---- */

static bool is_true(const FcPattern *font, const char *object)
{
    FcBool value = FcFalse;
    return call.FcPatternGetBool(font, object, 0, &value) == FcResultMatch && value == FcTrue;
}

/* Whether the font has the code point, and outlines of one colour. */
static bool has(const FcPattern *font, int32_t point)
{
    FcCharSet *points;
    return is_true(font, FC_OUTLINE) && !is_true(font, FC_COLOR) &&
           call.FcPatternGetCharSet(font, FC_CHARSET, 0, &points) == FcResultMatch &&
           call.FcCharSetHasChar(points, (FcChar32)point);
}

static bool is_within(int32_t c, int32_t first, int32_t last)
{
    return c >= first && c <= last;
}

/* The language that a text seems to be in, of those that write one code point in several ways. */
static int language_of(const int32_t *points, size_t count)
{
    enum { OTHER, CHINESE, KOREAN, JAPANESE };
    int language = OTHER;
    for (size_t i = 0; i < count; i++) {
        const int32_t c = points[i];
        int now = OTHER;
        if (is_within(c, 0x2e80, 0x2fdf) || is_within(c, 0x3400, 0x9fff) ||
            is_within(c, 0xf900, 0xfaff) || is_within(c, 0x20000, 0x3ffff))
            now = CHINESE;
        if (is_within(c, 0x1100, 0x11ff) || is_within(c, 0x3130, 0x318f) ||
            is_within(c, 0xac00, 0xd7ff))
            now = KOREAN;
        if (is_within(c, 0x3041, 0x30ff) || is_within(c, 0x31f0, 0x31ff) ||
            is_within(c, 0xff66, 0xff9f))
            now = JAPANESE;
        if (now > language) language = now;
    }
    return language;
}

/* All fonts, in the order in which they suit the language; NULL: there are none. */
static FcFontSet *sorted_for(wd_system_font *f, int language)
{
    static const char *const names[] = {"en", "zh-cn", "ko", "ja"};
    FcResult result;
    if (f->sorted[language]) return f->sorted[language];
    FcPattern *wanted = call.FcPatternCreate();
    if (!wanted) return NULL;
    call.FcPatternAddString(wanted, FC_FAMILY, (const FcChar8 *)"sans-serif");
    call.FcPatternAddString(wanted, FC_LANG, (const FcChar8 *)names[language]);
    call.FcConfigSubstitute(f->config, wanted, FcMatchPattern);
    call.FcDefaultSubstitute(wanted);
    f->sorted[language] = call.FcFontSort(f->config, wanted, FcFalse, NULL, &result);
    call.FcPatternDestroy(wanted);
    return f->sorted[language];
}

static bool is_letter(int32_t point)
{
    const utf8proc_category_t k = utf8proc_category(point);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || k == UTF8PROC_CATEGORY_MC ||
           k == UTF8PROC_CATEGORY_ND;
}

void wd__system_font_choose(wd_system_font *f, const int32_t *points, size_t count)
{
    f->fonts = sorted_for(f, language_of(points, count));
    f->chosen = -1;
    for (int i = 0; f->fonts && i < f->fonts->nfont && f->chosen < 0; i++) {
        size_t k = 0;
        while (k < count && (!is_letter(points[k]) || has(f->fonts->fonts[i], points[k]))) k++;
        if (k == count) f->chosen = i;
    }
}

/* ---- glyphs ---- */

/* Opens the font's file, unless it is open; NULL: it cannot be used. */
static FT_Face face_of(wd_system_font *f, const FcPattern *font)
{
    FcChar8 *file;
    int index = 0;
    for (int i = 0; i < FACES_MAX; i++)
        if (f->open[i].font == font) return f->open[i].face;
    const int slot = f->next++ % FACES_MAX;
    if (f->open[slot].face) call.FT_Done_Face(f->open[slot].face);
    f->open[slot].font = font;
    f->open[slot].face = NULL;
    if (call.FcPatternGetString(font, FC_FILE, 0, &file) != FcResultMatch) return NULL;
    call.FcPatternGetInteger(font, FC_INDEX, 0, &index);
    if (is_true(font, FC_VARIABLE)) index &= 0xffff; /* the rest stands for "any instance" */
    FT_Face face = NULL;
    if (call.FT_New_Face(f->library, (const char *)file, index, &face)) return NULL;
    if (FT_IS_SCALABLE(face)) return f->open[slot].face = face;
    call.FT_Done_Face(face);
    return NULL;
}

/* Loads the outline of a glyph; NULL: the font has none, or a very large one. Light hinting runs no
 * program of the font. */
static FT_GlyphSlot load(wd_system_font *f, const FcPattern *font, int32_t point, int pixels)
{
    const FT_Pos most = (FT_Pos)EMS_MAX * pixels * 64;
    FT_BBox box;
    FT_Face face = face_of(f, font);
    const FT_UInt glyph = face ? call.FT_Get_Char_Index(face, (FT_ULong)point) : 0;
    if (!glyph || call.FT_Set_Pixel_Sizes(face, 0, (FT_UInt)pixels)) return NULL;
    if (call.FT_Load_Glyph(face, glyph, FT_LOAD_NO_BITMAP | FT_LOAD_TARGET_LIGHT)) return NULL;
    FT_GlyphSlot slot = face->glyph;
    if (slot->format != FT_GLYPH_FORMAT_OUTLINE) return NULL;
    call.FT_Outline_Get_CBox(&slot->outline, &box);
    const bool fits = box.xMin >= -most && box.xMax <= most && box.yMin >= -most &&
                      box.yMax <= most && slot->advance.x >= 0 && slot->advance.x <= most;
    return fits ? slot : NULL;
}

/* The glyph of the chosen font, else of the first that has one. */
static FT_GlyphSlot find(wd_system_font *f, int32_t point, int pixels)
{
    FT_GlyphSlot slot = NULL;
    if (!f->fonts) return NULL;
    if (f->chosen >= 0 && has(f->fonts->fonts[f->chosen], point))
        slot = load(f, f->fonts->fonts[f->chosen], point, pixels);
    for (int i = 0, tries = 0; !slot && i < f->fonts->nfont && tries < TRIES_MAX; i++) {
        if (i == f->chosen || !has(f->fonts->fonts[i], point)) continue;
        slot = load(f, f->fonts->fonts[i], point, pixels);
        tries++;
    }
    return slot;
}

int wd__system_font_advance(wd_system_font *f, int32_t point, int pixels)
{
    const FT_GlyphSlot slot = find(f, point, pixels);
    return slot ? (int)((slot->advance.x + 32) / 64) : -1;
}

bool wd__system_font_render(wd_coverage *out, wd_system_font *f, int32_t point, int pixels)
{
    const FT_GlyphSlot slot = find(f, point, pixels);
    if (!slot || call.FT_Render_Glyph(slot, FT_RENDER_MODE_NORMAL)) return false;
    const FT_Bitmap *b = &slot->bitmap;
    const int most = 2 * EMS_MAX * pixels + 2; /* edges are rounded outwards */
    if (b->pixel_mode != FT_PIXEL_MODE_GRAY || (int)b->rows > most || (int)b->width > most)
        return false;
    if (b->rows && b->width && (!b->buffer || b->pitch < (int)b->width)) return false;
    *out = (wd_coverage){.at = b->buffer,
                         .height = (int)b->rows,
                         .width = (int)b->width,
                         .pitch = b->pitch,
                         .left = slot->bitmap_left,
                         .top = slot->bitmap_top};
    return true;
}
