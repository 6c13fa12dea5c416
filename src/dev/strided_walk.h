/* A strided copy (dev/ops.h) as nested loops over index vectors: `outer` dimensions, then those
 * that add to the same output elements (`repeat`, to-stride 0) in their order, then `inner`, one
 * run of elements. Dimensions of one element are removed, and neighbours with matching strides are
 * merged. Outer and inner dimensions are sorted by the stride with which they write, the widest
 * first. C, C++ and CUDA. */
#ifndef WD_DEV_STRIDED_WALK_H
#define WD_DEV_STRIDED_WALK_H

#include "dev/ops.h"

typedef struct wd_stride {
    int64_t count, to, from; /* strides in elements */
} wd_stride;

typedef struct wd_strided_walk {
    wd_stride outer[6], repeat[6], inner;
    int outers, repeats;
    int64_t repeat_count; /* index vectors of `repeat` */
} wd_strided_walk;

/* False if there is nothing to copy. */
bool wd_strided_walk_plan(wd_strided_walk *w, const wd_strided_copy_args *a);

#endif
