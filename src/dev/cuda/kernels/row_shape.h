/* How many threads a row gets, how many rows a block, and the shared memory that this takes: for
 * the kernels and for who launches them. C, C++ and CUDA. */
#ifndef WD_DEV_CUDA_KERNELS_ROW_SHAPE_H
#define WD_DEV_CUDA_KERNELS_ROW_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/convert.h"

enum {
    ROW_THREADS_MAX = 256,     /* of a row, and of a block */
    COLUMN_THREADS = 64,       /* of a block that goes down columns: kernels/columns.cuh */
    ROW_RESULTS = 4,           /* floats that a row's first warp tells the others */
    ROW_SHARED_MAX = 48 * 1024 /* bytes of shared memory that every GPU gives any block */
};

/* Threads of a row of `width` elements, eight each, until there are ROW_THREADS_MAX. */
WD_ANYWHERE int row_threads(int64_t width)
{
    int threads = 32;
    while (threads < ROW_THREADS_MAX && threads * 8 < width) threads *= 2;
    return threads;
}

WD_ANYWHERE int row_block_rows(int64_t width)
{
    return ROW_THREADS_MAX / row_threads(width);
}

/* Floats in shared memory before the rows, and from row to row: whole eights. */
WD_ANYWHERE int row_shared_head(int block_rows)
{
    return block_rows * ROW_RESULTS;
}
WD_ANYWHERE int64_t row_shared_width(int64_t width)
{
    return (width + 7) / 8 * 8;
}

WD_ANYWHERE int64_t row_shared_bytes(int64_t width, int block_rows, int kept)
{
    return (row_shared_head(block_rows) + block_rows * kept * row_shared_width(width)) * 4;
}

/* Whether shared memory holds `kept` arrays' rows of a block. */
WD_ANYWHERE bool row_fits(int64_t width, int block_rows, int kept)
{
    return row_shared_bytes(width, block_rows, kept) <= ROW_SHARED_MAX;
}

#endif
