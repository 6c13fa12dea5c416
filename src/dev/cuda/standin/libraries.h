/* Tests: cuBLASLt without a GPU, behind the same table of functions as NVIDIA's.
 *
 * A product is decoded from the descriptors that it was described with, number by number, as the
 * library would read it; what the library refuses, as far as that is known, is refused, too. It is
 * then computed by the cpu device's kernels.
 *
 * lt.c: products.
 */
#ifndef WD_DEV_CUDA_STANDIN_LIBRARIES_H
#define WD_DEV_CUDA_STANDIN_LIBRARIES_H

#include <stdint.h>

#include "dev/cuda/api.h"

/* Puts a function on a stream: it runs later, with a copy of the `bytes` bytes at `argument`, when
 * device memory is accessible. wd_standin_enqueue of standin/driver.h is one. */
typedef wd_cu_result wd_standin_put_fn(wd_cu_stream stream, void (*run)(const void *argument),
                                       const void *argument, size_t bytes);

/* What the stand-ins do beside what they are told. */
typedef struct wd_standin_faults {
    bool lt_rows_matter; /* a product's last bits depend on its number of rows, unless these are
                          * WD_PRODUCT_CHUNK_ROWS */
    bool lt_always;      /* they differ from launch to launch */
    bool lt_gelu_erf;    /* the epilogue GELU is the other form */
    bool lt_splits;      /* the heuristic's first algorithms share sums among blocks */
    bool lt_none;        /* the heuristic finds nothing */
    int lt_fail_matmul;  /* product number so many from now on is refused; 0: none is */
} wd_standin_faults;

extern wd_standin_faults wd_the_standin_faults;

/* What was asked for since the last wd_standin_libraries. */
typedef struct wd_standin_asked {
    int64_t heuristics, products;
    int64_t descriptors; /* that are not destroyed */
} wd_standin_asked;

extern wd_standin_asked wd_the_standin_asked;

/* Fills the table of cuBLASLt in `api`; `put` for all streams, NULL: work is done at
 * once. Clears faults and counts. */
void wd_standin_libraries(wd_cuda_api *api, wd_standin_put_fn *put);

/* Private: the table. */
void wd_standin_lt_fill(wd_cuda_lt *lt, wd_standin_put_fn *put);

#endif
