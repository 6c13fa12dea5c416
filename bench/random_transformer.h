/* Transformers of any size with random weights, for measurements in which values do not matter. */
#ifndef WD_BENCH_RANDOM_TRANSFORMER_H
#define WD_BENCH_RANDOM_TRANSFORMER_H

#include "core/dtype.h"
#include "model/tables/config.h"

/* Writes <folder>/config.json and one file of weights in `dtype` (keep_f32 tensors in F32): some
 * MiB of normal values with deviation 0.02, repeated. The folder is created if it is missing. */
wd_status wd_bench_write_transformer(const char *folder, const wd_dit_config *config,
                                     wd_dtype dtype, wd_err *err);

#endif
