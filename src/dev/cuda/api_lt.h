/* What the cuda device uses of cuBLASLt: opaque handles, numbers of attributes and types, the one
 * struct that callers see into, and functions.
 *
 * Written from the published interface, so that the cuda device compiles without NVIDIA's headers;
 * where these are there, abi_libraries_test.c compares everything here with theirs.
 */
#ifndef WD_DEV_CUDA_API_LT_H
#define WD_DEV_CUDA_API_LT_H

#include <stddef.h>
#include <stdint.h>

#include "dev/cuda/api_driver.h"

typedef void *wd_lt_handle;
typedef void *wd_lt_product;    /* cublasLtMatmulDesc_t: what a product computes */
typedef void *wd_lt_layout;     /* cublasLtMatrixLayout_t: how a matrix lies in memory */
typedef void *wd_lt_preference; /* cublasLtMatmulPreference_t: which algorithms are wanted */

/* Enumerations are `unsigned`: see dev/cuda/api_driver.h. */
typedef unsigned wd_lt_status, wd_lt_type, wd_lt_compute;
typedef unsigned wd_lt_layout_attr, wd_lt_product_attr, wd_lt_preference_attr, wd_lt_algorithm_attr;

/* cublasLtMatmulAlgo_t: an algorithm with its configuration. */
typedef struct wd_lt_algorithm {
    uint64_t data[8];
} wd_lt_algorithm;

/* cublasLtMatmulHeuristicResult_t: what the heuristic says of an algorithm. */
typedef struct wd_lt_candidate {
    wd_lt_algorithm algorithm;
    size_t workspace_bytes;
    wd_lt_status state; /* the rest means something only if this is SUCCESS */
    float waves;
    int reserved[4];
} wd_lt_candidate;

/* X(our name, NVIDIA's name, value). */
#define WD_LT_VALUE_MAP(X)                                                                         \
    X(STATUS_SUCCESS, CUBLAS_STATUS_SUCCESS, 0)                                                    \
    X(STATUS_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED, 3)                                          \
    X(STATUS_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE, 7)                                        \
    X(STATUS_ARCH_MISMATCH, CUBLAS_STATUS_ARCH_MISMATCH, 8)                                        \
    X(STATUS_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED, 13)                                 \
    X(STATUS_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED, 15)                                       \
    X(TYPE_F32, CUDA_R_32F, 0)                                                                     \
    X(TYPE_BF16, CUDA_R_16BF, 14)                                                                  \
    X(COMPUTE_F32, CUBLAS_COMPUTE_32F, 68)                                                         \
    X(OP_N, CUBLAS_OP_N, 0)                                                                        \
    X(OP_T, CUBLAS_OP_T, 1)                                                                        \
    X(LAYOUT_COLS, CUBLASLT_MATRIX_LAYOUT_COLS, 3)                                                 \
    X(LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                   \
    X(LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                         \
    X(PRODUCT_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA, 3)                                              \
    X(PRODUCT_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB, 4)                                              \
    X(PRODUCT_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                          \
    X(PRODUCT_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                  \
    X(PRODUCT_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)                                  \
    X(EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT, 1)                                              \
    X(EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS, 4)                                                    \
    X(EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU, 32)                                                   \
    X(EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS, 36)                                         \
    X(PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                       \
    X(PREF_REDUCTION_SCHEME_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                   \
    X(PREF_MIN_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                         \
    X(PREF_MIN_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                         \
    X(PREF_MIN_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                         \
    X(PREF_MIN_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                         \
    X(PREF_IMPL_MASK, CUBLASLT_MATMUL_PREF_IMPL_MASK, 12)                                          \
    X(REDUCTION_NONE, CUBLASLT_REDUCTION_SCHEME_NONE, 0)                                           \
    X(REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                           \
    X(ALGORITHM_ID, CUBLASLT_ALGO_CONFIG_ID, 0)                                                    \
    X(ALGORITHM_TILE, CUBLASLT_ALGO_CONFIG_TILE_ID, 1)                                             \
    X(ALGORITHM_SPLITK_NUM, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2)                                    \
    X(ALGORITHM_REDUCTION, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 3)                               \
    X(ALGORITHM_STAGES, CUBLASLT_ALGO_CONFIG_STAGES_ID, 6)                                         \
    X(IMPL_FMA, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA, 0x1)                                            \
    X(IMPL_ACCUMULATOR_F32, CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F, 0x200)                  \
    X(IMPL_INPUT_F32, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F, 0x80000)

#define X(name, nvidia_name, value) WD_LT_##name = value,
enum { WD_LT_VALUE_MAP(X) };
#undef X

/* ---- functions ---- */

/* X(result type, field of wd_cuda_lt, exported symbol, parameters). */
#define WD_CUDA_LT_MAP(X)                                                                          \
    X(size_t, get_version, cublasLtGetVersion, (void))                                             \
    X(const char *, status_name, cublasLtGetStatusName, (wd_lt_status status))                     \
    X(wd_lt_status, create, cublasLtCreate, (wd_lt_handle * handle))                               \
    X(wd_lt_status, destroy, cublasLtDestroy, (wd_lt_handle handle))                               \
    X(wd_lt_status, matmul, cublasLtMatmul,                                                        \
      (wd_lt_handle handle, wd_lt_product product, const void *alpha, const void *a,               \
       wd_lt_layout a_layout, const void *b, wd_lt_layout b_layout, const void *beta,              \
       const void *c, wd_lt_layout c_layout, void *d, wd_lt_layout d_layout,                       \
       const wd_lt_algorithm *algorithm, void *workspace, size_t workspace_bytes,                  \
       wd_cu_stream stream))                                                                       \
    X(wd_lt_status, layout_create, cublasLtMatrixLayoutCreate,                                     \
      (wd_lt_layout * layout, wd_lt_type type, uint64_t rows, uint64_t columns, int64_t ld))       \
    X(wd_lt_status, layout_destroy, cublasLtMatrixLayoutDestroy, (wd_lt_layout layout))            \
    X(wd_lt_status, layout_set, cublasLtMatrixLayoutSetAttribute,                                  \
      (wd_lt_layout layout, wd_lt_layout_attr attribute, const void *value, size_t bytes))         \
    X(wd_lt_status, product_create, cublasLtMatmulDescCreate,                                      \
      (wd_lt_product * product, wd_lt_compute compute, wd_lt_type scale))                          \
    X(wd_lt_status, product_destroy, cublasLtMatmulDescDestroy, (wd_lt_product product))           \
    X(wd_lt_status, product_set, cublasLtMatmulDescSetAttribute,                                   \
      (wd_lt_product product, wd_lt_product_attr attribute, const void *value, size_t bytes))      \
    X(wd_lt_status, preference_create, cublasLtMatmulPreferenceCreate,                             \
      (wd_lt_preference * preference))                                                             \
    X(wd_lt_status, preference_destroy, cublasLtMatmulPreferenceDestroy,                           \
      (wd_lt_preference preference))                                                               \
    X(wd_lt_status, preference_set, cublasLtMatmulPreferenceSetAttribute,                          \
      (wd_lt_preference preference, wd_lt_preference_attr attribute, const void *value,            \
       size_t bytes))                                                                              \
    X(wd_lt_status, heuristic, cublasLtMatmulAlgoGetHeuristic,                                     \
      (wd_lt_handle handle, wd_lt_product product, wd_lt_layout a, wd_lt_layout b, wd_lt_layout c, \
       wd_lt_layout d, wd_lt_preference preference, int asked, wd_lt_candidate *candidate,         \
       int *found))                                                                                \
    X(wd_lt_status, algorithm_check, cublasLtMatmulAlgoCheck,                                      \
      (wd_lt_handle handle, wd_lt_product product, wd_lt_layout a, wd_lt_layout b, wd_lt_layout c, \
       wd_lt_layout d, const wd_lt_algorithm *algorithm, wd_lt_candidate *result))                 \
    X(wd_lt_status, algorithm_get, cublasLtMatmulAlgoConfigGetAttribute,                           \
      (const wd_lt_algorithm *algorithm, wd_lt_algorithm_attr attribute, void *value,              \
       size_t bytes, size_t *written))

#endif
