/* The division of a convolution: see cpu/winograd_plan.h. */
#include "dev/cpu/winograd_plan.h"

#include "core/checked.h"
#include "dev/cpu/product_plan.h"

enum {
    CHANNELS = 16,           /* a multiple of these fills every instruction set's vectors */
    WEIGHT_BYTES = 16 << 20, /* of transformed weights of a block, which stay in the last cache */
    WIDTH_MIN = 64           /* with fewer the cost of the input's transformation matters */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t multiple)
{
    return ceil_div(a, multiple) * multiple;
}

/* At least half of the pixels that the tiles compute must be used. */
bool wd__winograd_takes(const wd_conv_args *a)
{
    int64_t side = WD_WINOGRAD_SIDE;
    int64_t tiles = ceil_div(a->out[1], side) * ceil_div(a->out[2], side);
    if (a->stride[0] != 1 || a->ci % CHANNELS || a->co % CHANNELS) return false;
    for (int i = 1; i < 3; i++)
        if (a->kernel[i] != 3 || a->stride[i] != 1) return false;
    return a->pad_before[0] == 0 && 2 * a->out[1] * a->out[2] >= tiles * side * side;
}

/* Rounds up to an odd number of cache lines of 16 floats, so that the points of a tile are in
 * different sets of the cache. */
static int64_t step_of(int64_t floats)
{
    return (ceil_div(floats, 16) | 1) * 16;
}

/* Places the points: rows have the length that products need; with few channels several points
 * share a row. */
static void place_points(wd_winograd_plan *p)
{
    int64_t abreast = WD_PRODUCT_LINE / p->depth;
    int64_t step = step_of((int64_t)WD_WINOGRAD_TILES * WD_PRODUCT_LINE);
    for (int64_t i = 0; i < WD_WINOGRAD_POINTS; i++)
        p->spread_at[i] = i / abreast * step + i % abreast * p->depth;
    p->spread_floats = ceil_div(WD_WINOGRAD_POINTS, abreast) * step;
}

wd_winograd_plan wd__winograd_plan_make(const wd_conv_args *a, int threads)
{
    int64_t taps = a->tap1 - a->tap0, side = WD_WINOGRAD_SIDE;
    wd_winograd_plan p = {.rows = ceil_div(a->out[1], side), .columns = ceil_div(a->out[2], side)};
    p.tiles = a->samples * a->out[0] * p.rows * p.columns;
    p.depths = ceil_div(a->ci, WD_PRODUCT_DEPTH);
    p.depth = round_up(ceil_div(a->ci, p.depths), CHANNELS);
    int64_t column_bytes = WD_WINOGRAD_POINTS * taps * p.depths * p.depth * (int64_t)sizeof(float);
    int64_t fit = WEIGHT_BYTES / column_bytes;
    fit = fit > WIDTH_MIN ? fit / WD_PRODUCT_WIDE_MAX * WD_PRODUCT_WIDE_MAX : WIDTH_MIN;
    p.width = round_up(ceil_div(a->co, ceil_div(a->co, fit)), WD_PRODUCT_WIDE_MAX);
    p.weight_bytes = (size_t)(column_bytes * p.width);
    place_points(&p);
    p.sums_step = step_of(WD_WINOGRAD_TILES * p.width);
    int64_t blocks = ceil_div(p.tiles, WD_WINOGRAD_TILES);
    p.parts = blocks < threads ? blocks : threads;
    int64_t floats = p.spread_floats + WD_WINOGRAD_POINTS * p.sums_step;
    p.part_bytes = (size_t)floats * sizeof(float);
    return p;
}
