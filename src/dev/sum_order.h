/* The order of sums, which is the same on every device, so that the kernels of dev/cpu/isa and of
 * dev/cuda/kernels give the same bits. C, C++ and CUDA.
 *
 * A row is summed in LANES partial sums: lane i takes the elements i, i + LANES, ... in turn; then
 * the lanes are added in pairs that are 16, 8, 4, 2 and 1 apart. Long arrays are summed in runs,
 * the sums of runs in chunks of WD_SUM_CHUNK elements, and the chunks' sums in order, both in
 * double.
 * Sums over rows are taken in groups of CHUNK_ROWS rows, then the groups' sums in order.
 */
#ifndef WD_DEV_SUM_ORDER_H
#define WD_DEV_SUM_ORDER_H

#include "dev/convert.h"
#include "dev/ops.h"

enum {
    LANES = 32,      /* partial sums of a row or run */
    SUM_RUN = 1024,  /* elements of a run */
    CHUNK_ROWS = 32, /* rows of a group */
    ROW_MAX = 5120 /* the widest row that is summed so, that of the 14B models: on a processor wider
                      rows use the plain C version, which sums in double. Buffers of three rows
                      are on the stack */
};

/* Chunks of an array. */
WD_ANYWHERE int64_t sum_chunks(int64_t count)
{
    return (count + WD_SUM_CHUNK - 1) / WD_SUM_CHUNK;
}

/* Groups of rows. */
WD_ANYWHERE int64_t column_sums_chunks(int64_t rows)
{
    return (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
}

#endif
