/* The division of a convolution of 3x3 taps for isa/winograd.c, for every instruction set.
 *
 * Whether a convolution uses this algorithm follows from the shape of one picture alone, so its
 * bits do not depend on other pictures or on the number of threads. */
#ifndef WD_DEV_CPU_WINOGRAD_PLAN_H
#define WD_DEV_CPU_WINOGRAD_PLAN_H

#include <stdbool.h>

#include "dev/ops.h"

enum {
    WD_WINOGRAD_SIDE = 4,    /* a tile of the result is 4 x 4 pixels, */
    WD_WINOGRAD_WINDOW = 6,  /* computed from 6 x 6 pixels */
    WD_WINOGRAD_POINTS = 36, /* products per tile, channel and channel */
    WD_WINOGRAD_TILES = 24   /* tiles that a thread computes together, in its second-level cache */
};

typedef struct wd_winograd_plan {
    int64_t rows, columns;                 /* tiles of a picture */
    int64_t tiles;                         /* of all pictures of the result */
    int64_t depth, depths;                 /* input channels of a block; blocks per time tap */
    int64_t width;                         /* output channels of a block, whole panels */
    int64_t spread_at[WD_WINOGRAD_POINTS]; /* offsets of a thread's tiles of input, in floats, */
    int64_t spread_floats;                 /* and their total size */
    int64_t sums_step;                     /* floats between two points of a thread's sums */
    size_t weight_bytes;                   /* of `width` output channels, transformed */
    int64_t parts;                         /* threads among which tiles are divided */
    size_t part_bytes;                     /* workspace of each */
} wd_winograd_plan;

/* Whether the algorithm takes this convolution. It computes in fp32; dtypes are not checked. */
bool wd__winograd_takes(const wd_conv_args *args);
wd_winograd_plan wd__winograd_plan_make(const wd_conv_args *args, int threads);

#endif
