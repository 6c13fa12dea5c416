/* The fixed chunks in which long arrays are summed. */
#ifndef WD_DEV_CPU_ISA_SUMS_H
#define WD_DEV_CPU_ISA_SUMS_H

#include "dev/ops.h"

static inline int64_t sum_chunks(int64_t count)
{
    return (count + WD_SUM_CHUNK - 1) / WD_SUM_CHUNK;
}

#endif
