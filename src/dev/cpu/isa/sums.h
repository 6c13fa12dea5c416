/* The fixed chunks in which long arrays are summed. */
#ifndef WD_DEV_CPU_ISA_SUMS_H
#define WD_DEV_CPU_ISA_SUMS_H

#include <stdint.h>

enum { SUM_CHUNK = 32768 };

static inline int64_t sum_chunks(int64_t count) { return (count + SUM_CHUNK - 1) / SUM_CHUNK; }

#endif
