/* How many threads a row gets, how many rows a block, and the shared memory that this takes: for
 * the kernels and for who launches them. C, C++ and CUDA. */
#ifndef WD_DEV_CUDA_KERNELS_ROW_SHAPE_H
#define WD_DEV_CUDA_KERNELS_ROW_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/convert.h"

enum {
    ROW_THREADS_MAX = 256,     /* of a row, and of a block */
    ROW_THREAD_ELEMENTS = 40,  /* about as many for each thread of a row */
    COLUMN_THREADS = 64,       /* of a block that goes down columns: kernels/columns.cuh */
    ROW_RESULTS = 4,           /* floats that a row's first warp tells the others */
    ROW_SHARED_MAX = 48 * 1024 /* bytes of shared memory that every GPU gives any block */
};

/* Threads of a row of `width` elements. They are few, for all but a warp of them wait while it sums
 * the row: a multiprocessor has the more rows under way. */
WD_ANYWHERE int row_threads(int64_t width)
{
    int threads = 32;
    while (threads < ROW_THREADS_MAX && threads * ROW_THREAD_ELEMENTS < width) threads *= 2;
    return threads;
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

/* Rows of a block that keeps `kept` arrays' rows: as many as shared memory holds, or one whose
 * rows it cannot hold. */
WD_ANYWHERE int row_block_rows(int64_t width, int kept)
{
    int rows = ROW_THREADS_MAX / row_threads(width);
    while (rows > 1 && !row_fits(width, rows, kept)) rows--;
    return rows;
}

#endif
