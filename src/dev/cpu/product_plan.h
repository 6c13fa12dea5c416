/* The division of a matrix product into tiles, for every instruction set: see isa/product.h. It
 * never changes a bit of the result. */
#ifndef WD_DEV_CPU_PRODUCT_PLAN_H
#define WD_DEV_CPU_PRODUCT_PLAN_H

#include <stddef.h>
#include <stdint.h>

enum {
    WD_PRODUCT_DEPTH = 256, /* units of k that are multiplied at a time */
    WD_PRODUCT_LINE =
        272, /* units from row to row of packed rows: no power of two, for the caches */
    WD_PRODUCT_WIDE_MAX = 32, /* columns of a panel, on any instruction set */
    WD_PRODUCT_ROWS_MAX = 14,
    WD_PRODUCT_TILE_ROWS =
        336, /* columns of the largest tile, which stay in the second-level cache when packed */
    WD_PRODUCT_TILE_COLUMNS = 384
};

typedef struct wd_product_plan {
    int64_t tiles_m, tiles_n, tile_m, tile_n; /* the last ones may be smaller */
    int64_t tiles;                            /* of all products of the batch */
    int64_t parts;                            /* threads among which tiles are divided */
    size_t part_bytes;                        /* workspace of each */
} wd_product_plan;

/* Units of k for which a tile's packed columns have memory; AMX fills up to whole steps of 16. */
int64_t wd__product_depth(int64_t k);

/* The plan for `threads` threads. */
wd_product_plan wd__product_plan_make(int64_t batch, int64_t m, int64_t n, int64_t k, int threads);

#endif
