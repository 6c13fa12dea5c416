/* Compares our own declarations of the interfaces of cuBLASLt and cuDNN with NVIDIA's headers where
 * these are: values, sizes, and types of functions. The compiler does all of it. */
#include "testing.h"

#include <cublasLt.h>
#include <cudnn.h>

#include "dev/cuda/api_cudnn.h"
#include "dev/cuda/api_lt.h"

#define X(name, nvidia_name, value) _Static_assert((value) == (nvidia_name), #nvidia_name);
WD_LT_VALUE_MAP(X)
#undef X

_Static_assert(sizeof(wd_lt_algorithm) == sizeof(cublasLtMatmulAlgo_t), "an algorithm");
_Static_assert(sizeof(wd_lt_candidate) == sizeof(cublasLtMatmulHeuristicResult_t), "a candidate");
_Static_assert(offsetof(wd_lt_candidate, workspace_bytes) ==
                       offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
                   offsetof(wd_lt_candidate, state) ==
                       offsetof(cublasLtMatmulHeuristicResult_t, state) &&
                   offsetof(wd_lt_candidate, waves) ==
                       offsetof(cublasLtMatmulHeuristicResult_t, wavesCount),
               "members of a candidate");

#define X(name, value) _Static_assert((value) == CUDNN_STATUS_##name, #name);
WD_CUDNN_STATUS_MAP(X)
#undef X
#define X(name, value) _Static_assert((value) == CUDNN_DATA_##name, #name);
WD_CUDNN_DATA_MAP(X)
#undef X
#define X(name, value) _Static_assert((value) == CUDNN_BACKEND_##name, #name);
WD_CUDNN_BACKEND_MAP(X)
#undef X
#define X(name, value) _Static_assert((value) == CUDNN_TYPE_##name, #name);
WD_CUDNN_TYPE_MAP(X)
#undef X
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* handles, which all versions take */
#define X(name, value) _Static_assert((value) == CUDNN_ATTR_##name, #name);
WD_CUDNN_ATTR_MAP(X)
#undef X
#define X(name, value) _Static_assert((value) == CUDNN_POINTWISE_##name, #name);
WD_CUDNN_POINTWISE_MAP(X)
#undef X
#define X(name, value) _Static_assert((value) == CUDNN_REDUCE_TENSOR_##name, #name);
WD_CUDNN_REDUCE_TENSOR_MAP(X)
#undef X
#define X(name, value) _Static_assert((value) == CUDNN_NUMERICAL_NOTE_##name, #name);
WD_CUDNN_NUMERICAL_NOTE_MAP(X)
#undef X
#define X(name, value) _Static_assert((value) == CUDNN_HEUR_MODE_##name, #name);
WD_CUDNN_HEUR_MODE_MAP(X)
#undef X
_Static_assert((int)WD_CUDNN_CROSS_CORRELATION == (int)CUDNN_CROSS_CORRELATION,
               "CROSS_CORRELATION");

/* The lists once more, with NVIDIA's names for types that are handles or enumerations. */
#define wd_cu_stream cudaStream_t
#define wd_lt_status cublasStatus_t
#define wd_lt_handle cublasLtHandle_t
#define wd_lt_product cublasLtMatmulDesc_t
#define wd_lt_layout cublasLtMatrixLayout_t
#define wd_lt_preference cublasLtMatmulPreference_t
#define wd_lt_algorithm cublasLtMatmulAlgo_t
#define wd_lt_candidate cublasLtMatmulHeuristicResult_t
#define wd_lt_type cudaDataType_t
#define wd_lt_compute cublasComputeType_t
#define wd_cudnn_status cudnnStatus_t
#define wd_cudnn_handle cudnnHandle_t
#define wd_cudnn_descriptor cudnnBackendDescriptor_t
#define wd_cudnn_backend cudnnBackendDescriptorType_t
#define wd_cudnn_type cudnnBackendAttributeType_t
#define wd_cudnn_attr cudnnBackendAttributeName_t
#define wd_cudnn_data cudnnDataType_t

#define wd_lt_layout_attr cublasLtMatrixLayoutAttribute_t
#define wd_lt_product_attr cublasLtMatmulDescAttributes_t
#define wd_lt_preference_attr cublasLtMatmulPreferenceAttributes_t
#define wd_lt_algorithm_attr cublasLtMatmulAlgoConfigAttributes_t

#define X(result, field, symbol, parameters)                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), result parameters),            \
                   #symbol " has other parameters or another result");
WD_CUDA_LT_MAP(X)
WD_CUDA_CUDNN_MAP(X)
#undef X

static void declarations_are_nvidias(void **state)
{
    (void)state; /* it was compiled */
    assert_true(CUDNN_MAJOR == 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(declarations_are_nvidias)};
    return cmocka_run_group_tests_name("abi_libraries", tests, NULL, NULL);
}
