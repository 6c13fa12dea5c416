/* See api/options/parts.h. */
#include "api/options/parts.h"

bool wd_parts_any(const wd_pipeline_parts *parts)
{
    for (int c = 0; c < WD_COMPONENT_COUNT; c++)
        if (parts->part[c]) return true;
    return false;
}
