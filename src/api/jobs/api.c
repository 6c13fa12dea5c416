/* Folder api/jobs. The public functions: train, sample, eval, convert, inspect, forward, bench.
 *
 * Functions of the public interface that belong to no job. */
#include "core/memory.h"
#include "wandistiller.h"

#ifndef WD_FEATURES
#define WD_FEATURES "" /* of the build: see cmake/library.cmake */
#endif

const char *wd_version(void)
{
    return WD_VERSION;
}

int wd_version_number(void)
{
    return WD_VERSION_NUMBER;
}

const char *wd_features(void)
{
    return WD_FEATURES;
}

void wd_text_free(char *text)
{
    wd_free(text);
}
