/* How a convolution of 3x3 taps is cut up for isa/winograd.c, the same for every instruction set.
 *
 * Which convolutions are made that way follows from the shape of one picture alone: its bits depend
 * neither on the pictures beside it nor on the number of threads. */
#ifndef WD_DEV_CPU_WINOGRAD_PLAN_H
#define WD_DEV_CPU_WINOGRAD_PLAN_H

#include <stdbool.h>

#include "dev/ops.h"

enum {
    WD_WINOGRAD_SIDE = 4,    /* a tile of the result is 4 x 4 pixels, */
    WD_WINOGRAD_WINDOW = 6,  /* made of 6 x 6 pixels */
    WD_WINOGRAD_POINTS = 36, /* products per tile, channel and channel */
    WD_WINOGRAD_TILES = 24   /* that a thread has in work: they stay in its second-level cache */
};

typedef struct wd_winograd_plan {
    int64_t rows, columns;                 /* tiles of a picture */
    int64_t tiles;                         /* of all pictures of the result */
    int64_t depth, depths;                 /* input channels at a time; how often, per time tap */
    int64_t width;                         /* output channels at a time, whole panels */
    int64_t spread_at[WD_WINOGRAD_POINTS]; /* where a thread's tiles of input begin, in floats, */
    int64_t spread_floats;                 /* and what all take */
    int64_t sums_step;                     /* floats from point to point of its sums */
    size_t weight_bytes;                   /* of `width` output channels, transformed */
    int64_t parts;                         /* threads that share the tiles */
    size_t part_bytes;                     /* workspace of each */
} wd_winograd_plan;

/* fp32 alone; the dtypes are not looked at. */
bool wd_winograd_takes(const wd_conv_args *args);
wd_winograd_plan wd_winograd_plan_make(const wd_conv_args *args, int threads);

#endif
