/* The functions of cuBLASLt that the cuda device calls.
 * X(result type, field of wd_cuda_lt, exported symbol, parameters).
 */
#ifndef WD_DEV_CUDA_API_LT_H
#define WD_DEV_CUDA_API_LT_H

#include "dev/cuda/abi.h"
#include "dev/cuda/abi_lt.h"

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
