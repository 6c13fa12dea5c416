/* What belongs to no job. */
#include "core/memory.h"
#include "wandistiller.h"

const char *wd_version(void)
{
    return WD_VERSION;
}

void wd_text_free(char *text)
{
    wd_free(text);
}
