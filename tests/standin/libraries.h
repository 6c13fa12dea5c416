/* Tests: cuBLASLt and cuDNN without a GPU, behind the same tables of functions as NVIDIA's.
 *
 * A product or a graph is decoded from the descriptors that it was described with, number by
 * number, as the library would read it; what the library refuses, as far as that is known, is
 * refused, too. Products are then computed by the cpu device's kernels, graphs operation by
 * operation.
 *
 * lt.c: products; tensor_core.c: their sums as a GPU truncates them. cudnn.c: descriptors;
 * cudnn_program.c: graphs; cudnn_run.c: their numbers.
 */
#ifndef WD_TESTS_STANDIN_LIBRARIES_H
#define WD_TESTS_STANDIN_LIBRARIES_H

#include <stdatomic.h>
#include <stdint.h>

#include "dev/cuda/api.h"
#include "dev/cuda/product_key.h"

/* Puts a function on a stream: it runs later, with a copy of the `bytes` bytes at `argument`, when
 * device memory is accessible. wd_standin_enqueue of standin/driver.h is one. */
typedef wd_cu_result wd_standin_put_fn(wd_cu_stream stream, void (*run)(const void *argument),
                                       const void *argument, size_t bytes);

/* What the stand-ins do beside what they are told. */
typedef struct wd_standin_faults {
    bool lt_rows_matter; /* a product's last bits depend on its number of rows, unless these are
                          * WD_PRODUCT_CHUNK_ROWS */
    bool lt_always;      /* they differ from launch to launch */
    bool lt_gelu_erf[WD_PRODUCT_TYPES];  /* the epilogue GELU is the other form */
    bool lt_gelu_none[WD_PRODUCT_TYPES]; /* the heuristic finds nothing with that epilogue */
    float lt_gelu_rough;  /* the relative error of the tanh in the epilogue GELU, in either form as
                           * if that were 0.5 x (1 + tanh): a GPU's instruction has up to 2^-11 */
    bool lt_splits;       /* the heuristic's first algorithms share sums among blocks */
    bool lt_drops;        /* they leave out the last products, where k is no multiple of 64 */
    bool lt_says_little;  /* algorithms do not say how many parts their sums have */
    bool lt_no_reduction; /* they do not say how parts are added up */
    bool lt_truncates;    /* sums of bf16 products are truncated, as a GPU's tensor cores do */
    bool lt_no_mask;      /* the heuristic finds nothing of limited implementations */
    bool lt_tf32;         /* operands are rounded: results are off by 1e-3 */
    bool lt_none;         /* the heuristic finds nothing */
    bool lt_lines_matter; /* a product's last bits depend on its leading dimensions and alignment */
    int64_t lt_rows_least, lt_rows_most; /* algorithms of products whose `a` is not transposed do
                                          * not take fewer or more rows; 0: they take any */
    int lt_fail_matmul;        /* product number so many from now on is refused; 0: none is */
    wd_lt_status lt_fail_with; /* how; 0: CUBLAS_STATUS_EXECUTION_FAILED */
    bool lt_only_refuses;      /* a launch that breaks a rule is refused; else the process ends */
    bool cudnn_random;         /* the heuristic's first engine is not deterministic */
    size_t cudnn_version;      /* 0: 91900 */
    bool cudnn_none;           /* the heuristic finds nothing */
    bool cudnn_no_row;         /* plans of a bias [1, 1, 1, T] are refused */
    bool cudnn_no_many;        /* plans of more than one sample are refused */
    wd_cudnn_status cudnn_plan_status; /* that planning fails with; 0: it succeeds */
    int cudnn_fail_run;                /* run number so many from now on fails; 0: none does */
    wd_cudnn_status cudnn_run_status;  /* with this; 0: EXECUTION_FAILED */
} wd_standin_faults;

extern wd_standin_faults wd_the_standin_faults;

/* What was asked for since the last wd_standin_libraries, by all threads. */
typedef struct wd_standin_asked {
    atomic_llong heuristics, products;
    atomic_llong plans, runs; /* of cuDNN */
    atomic_llong descriptors; /* of either that are not destroyed */
} wd_standin_asked;

extern wd_standin_asked wd_the_standin_asked;

/* Fills the tables of cuBLASLt and cuDNN in `api`; `put` for all streams, NULL: work is done at
 * once. Clears faults and counts. */
void wd_standin_libraries(wd_cuda_api *api, wd_standin_put_fn *put);

/* Private: a product whose operands are bf16, with each sum made as tensor cores of sm_90 make it;
 * the formula of dev/ops.h else. */
void wd_standin_tensor_core_matmul(const wd_matmul_args *args);

/* Private: the tables. */
void wd_standin_lt_fill(wd_cuda_lt *lt, wd_standin_put_fn *put);
void wd_standin_cudnn_fill(wd_cuda_cudnn *cudnn, wd_standin_put_fn *put);

#endif
