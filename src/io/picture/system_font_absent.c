/* A build without the headers of FreeType and fontconfig: see io/picture/system_font.h. */
#include "io/picture/system_font.h"

wd_system_font *wd__system_font_open(void)
{
    return NULL;
}

void wd__system_font_close(wd_system_font *font)
{
    (void)font;
}

void wd__system_font_choose(wd_system_font *font, const int32_t *points, size_t count)
{
    (void)font, (void)points, (void)count;
}

int wd__system_font_advance(wd_system_font *font, int32_t point, int pixels)
{
    (void)font, (void)point, (void)pixels;
    return -1;
}

bool wd__system_font_render(wd_coverage *out, wd_system_font *font, int32_t point, int pixels)
{
    (void)out, (void)font, (void)point, (void)pixels;
    return false;
}
