/* Transformers with random weights, of any size: what placements are measured with, where only
 * sizes and times count. */
#ifndef WD_BENCH_RANDOM_TRANSFORMER_H
#define WD_BENCH_RANDOM_TRANSFORMER_H

#include "core/dtype.h"
#include "wan/config.h"

/* Writes <folder>/config.json and its weights in `dtype` (islands F32), one file, as a stream: some
 * MiB of normal values of deviation 0.02, over and over. The folder is made if missing. */
wd_status wd_bench_write_transformer(const char *folder, const wd_dit_config *config,
                                     wd_dtype dtype, wd_err *err);

#endif
