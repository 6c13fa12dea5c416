/* Functions of the public interface that belong to no job. */
#include "core/memory.h"
#include "wandistiller.h"

const char *wd_version(void)
{
    return WD_VERSION;
}

int wd_version_number(void)
{
    return WD_VERSION_NUMBER;
}

void wd_text_free(char *text)
{
    wd_free(text);
}
