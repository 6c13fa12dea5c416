/* What the cuda device uses of cuDNN 9's graph interface: handles, numbers of attributes, types and
 * modes, and functions.
 *
 * Written from the published interface, so that the cuda device compiles without NVIDIA's headers;
 * where these are there, abi_libraries_test.c compares every number here with theirs.
 *
 * Each list names an item as cuDNN does behind its prefix: X(POINTWISE_MODE, 0) of the list of
 * attributes is CUDNN_ATTR_POINTWISE_MODE there and WD_CUDNN_ATTR_POINTWISE_MODE here.
 */
#ifndef WD_DEV_CUDA_API_CUDNN_H
#define WD_DEV_CUDA_API_CUDNN_H

#include <stddef.h>
#include <stdint.h>

#include "dev/cuda/api_driver.h"

typedef void *wd_cudnn_handle;
typedef void *wd_cudnn_descriptor; /* of any kind: an object inside cuDNN */

/* X(name, value): what calls return. Any other value is a failure, too. */
#define WD_CUDNN_STATUS_MAP(X)                                                                     \
    X(SUCCESS, 0)                                                                                  \
    X(SUBLIBRARY_LOADING_FAILED, 1008)                                                             \
    X(BAD_PARAM, 2000)                                                                             \
    X(BAD_PARAM_NOT_FINALIZED, 2004)                                                               \
    X(BAD_PARAM_SIZE_INSUFFICIENT, 2006)                                                           \
    X(BAD_PARAM_ATTRIBUTE_TYPE, 2010)                                                              \
    X(NOT_SUPPORTED, 3000)                                                                         \
    X(NOT_SUPPORTED_GRAPH_PATTERN, 3001)                                                           \
    X(NOT_SUPPORTED_SHAPE, 3002)                                                                   \
    X(NOT_SUPPORTED_LAYOUT, 3004)                                                                  \
    X(NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, 3008)                                            \
    X(INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)                                                 \
    X(INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)                                               \
    X(EXECUTION_FAILED, 5000)

/* X(name, value): element types of tensors, and of what an operation computes in. */
#define WD_CUDNN_DATA_MAP(X)                                                                       \
    X(FLOAT, 0)                                                                                    \
    X(BFLOAT16, 9)

/* X(name, value): kinds of descriptors. */
#define WD_CUDNN_BACKEND_MAP(X)                                                                    \
    X(POINTWISE_DESCRIPTOR, 0)                                                                     \
    X(CONVOLUTION_DESCRIPTOR, 1)                                                                   \
    X(ENGINE_DESCRIPTOR, 2)                                                                        \
    X(ENGINECFG_DESCRIPTOR, 3)                                                                     \
    X(ENGINEHEUR_DESCRIPTOR, 4)                                                                    \
    X(EXECUTION_PLAN_DESCRIPTOR, 5)                                                                \
    X(KNOB_CHOICE_DESCRIPTOR, 7)                                                                   \
    X(OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                                                \
    X(OPERATION_POINTWISE_DESCRIPTOR, 13)                                                          \
    X(OPERATIONGRAPH_DESCRIPTOR, 15)                                                               \
    X(VARIANT_PACK_DESCRIPTOR, 16)                                                                 \
    X(TENSOR_DESCRIPTOR, 17)                                                                       \
    X(MATMUL_DESCRIPTOR, 18)                                                                       \
    X(OPERATION_MATMUL_DESCRIPTOR, 19)                                                             \
    X(REDUCTION_DESCRIPTOR, 21)                                                                    \
    X(OPERATION_REDUCTION_DESCRIPTOR, 22)                                                          \
    X(OPERATION_RESHAPE_DESCRIPTOR, 31)                                                            \
    X(DEVICEPROP_DESCRIPTOR, 38)

/* X(name, value): the type of an attribute's elements. */
#define WD_CUDNN_TYPE_MAP(X)                                                                       \
    X(HANDLE, 0)                                                                                   \
    X(DATA_TYPE, 1)                                                                                \
    X(BOOLEAN, 2)                                                                                  \
    X(INT64, 3)                                                                                    \
    X(FLOAT, 4)                                                                                    \
    X(VOID_PTR, 6)                                                                                 \
    X(CONVOLUTION_MODE, 7)                                                                         \
    X(HEUR_MODE, 8)                                                                                \
    X(KNOB_TYPE, 9)                                                                                \
    X(NUMERICAL_NOTE, 11)                                                                          \
    X(POINTWISE_MODE, 14)                                                                          \
    X(BACKEND_DESCRIPTOR, 15)                                                                      \
    X(REDUCTION_OPERATOR_TYPE, 18)                                                                 \
    X(CHAR, 24)

/* X(name, value): attributes of descriptors. */
#define WD_CUDNN_ATTR_MAP(X)                                                                       \
    X(POINTWISE_MODE, 0)                                                                           \
    X(POINTWISE_MATH_PREC, 1)                                                                      \
    X(CONVOLUTION_COMP_TYPE, 100)                                                                  \
    X(CONVOLUTION_CONV_MODE, 101)                                                                  \
    X(CONVOLUTION_DILATIONS, 102)                                                                  \
    X(CONVOLUTION_FILTER_STRIDES, 103)                                                             \
    X(CONVOLUTION_POST_PADDINGS, 104)                                                              \
    X(CONVOLUTION_PRE_PADDINGS, 105)                                                               \
    X(CONVOLUTION_SPATIAL_DIMS, 106)                                                               \
    X(ENGINEHEUR_MODE, 200)                                                                        \
    X(ENGINEHEUR_OPERATION_GRAPH, 201)                                                             \
    X(ENGINEHEUR_RESULTS, 202)                                                                     \
    X(ENGINEHEUR_DEVICEPROP, 204)                                                                  \
    X(ENGINECFG_ENGINE, 300)                                                                       \
    X(ENGINECFG_KNOB_CHOICES, 302)                                                                 \
    X(EXECUTION_PLAN_HANDLE, 400)                                                                  \
    X(EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                           \
    X(EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                          \
    X(EXECUTION_PLAN_DEVICEPROP, 407)                                                              \
    X(KNOB_CHOICE_KNOB_TYPE, 600)                                                                  \
    X(KNOB_CHOICE_KNOB_VALUE, 601)                                                                 \
    X(OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                                    \
    X(OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                                     \
    X(OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                                                \
    X(OPERATION_CONVOLUTION_FORWARD_W, 703)                                                        \
    X(OPERATION_CONVOLUTION_FORWARD_X, 704)                                                        \
    X(OPERATION_CONVOLUTION_FORWARD_Y, 705)                                                        \
    X(OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                      \
    X(OPERATION_POINTWISE_XDESC, 751)                                                              \
    X(OPERATION_POINTWISE_BDESC, 752)                                                              \
    X(OPERATION_POINTWISE_YDESC, 753)                                                              \
    X(OPERATIONGRAPH_HANDLE, 800)                                                                  \
    X(OPERATIONGRAPH_OPS, 801)                                                                     \
    X(TENSOR_BYTE_ALIGNMENT, 900)                                                                  \
    X(TENSOR_DATA_TYPE, 901)                                                                       \
    X(TENSOR_DIMENSIONS, 902)                                                                      \
    X(TENSOR_STRIDES, 903)                                                                         \
    X(TENSOR_UNIQUE_ID, 906)                                                                       \
    X(TENSOR_IS_VIRTUAL, 907)                                                                      \
    X(TENSOR_IS_BY_VALUE, 908)                                                                     \
    X(VARIANT_PACK_UNIQUE_IDS, 1000)                                                               \
    X(VARIANT_PACK_DATA_POINTERS, 1001)                                                            \
    X(VARIANT_PACK_WORKSPACE, 1003)                                                                \
    X(ENGINE_OPERATION_GRAPH, 1300)                                                                \
    X(ENGINE_GLOBAL_INDEX, 1301)                                                                   \
    X(ENGINE_NUMERICAL_NOTE, 1303)                                                                 \
    X(ENGINE_DEVICEPROP, 1307)                                                                     \
    X(MATMUL_COMP_TYPE, 1500)                                                                      \
    X(OPERATION_MATMUL_ADESC, 1520)                                                                \
    X(OPERATION_MATMUL_BDESC, 1521)                                                                \
    X(OPERATION_MATMUL_CDESC, 1522)                                                                \
    X(OPERATION_MATMUL_DESC, 1523)                                                                 \
    X(REDUCTION_OPERATOR, 1600)                                                                    \
    X(REDUCTION_COMP_TYPE, 1601)                                                                   \
    X(OPERATION_REDUCTION_XDESC, 1610)                                                             \
    X(OPERATION_REDUCTION_YDESC, 1611)                                                             \
    X(OPERATION_REDUCTION_DESC, 1612)                                                              \
    X(OPERATION_RESHAPE_XDESC, 2200)                                                               \
    X(OPERATION_RESHAPE_YDESC, 2201)                                                               \
    X(DEVICEPROP_HANDLE, 2701)                                                                     \
    X(DEVICEPROP_JSON_REPRESENTATION, 2702)

/* X(name, value): elementwise operations. */
#define WD_CUDNN_POINTWISE_MAP(X)                                                                  \
    X(ADD, 0)                                                                                      \
    X(MUL, 1)                                                                                      \
    X(DIV, 6)                                                                                      \
    X(SUB, 9)                                                                                      \
    X(EXP, 13)                                                                                     \
    X(LOG, 15)

/* X(name, value): reductions. */
#define WD_CUDNN_REDUCE_TENSOR_MAP(X)                                                              \
    X(ADD, 0)                                                                                      \
    X(MAX, 3)

/* X(name, value): what is known of how an engine computes. */
#define WD_CUDNN_NUMERICAL_NOTE_MAP(X)                                                             \
    X(TENSOR_CORE, 0)                                                                              \
    X(DOWN_CONVERT_INPUTS, 1)                                                                      \
    X(REDUCED_PRECISION_REDUCTION, 2)                                                              \
    X(FFT, 3)                                                                                      \
    X(NONDETERMINISTIC, 4)                                                                         \
    X(WINOGRAD, 5)

/* X(name, value): what a heuristic is asked for. */
#define WD_CUDNN_HEUR_MODE_MAP(X)                                                                  \
    X(FALLBACK, 2)                                                                                 \
    X(A, 3)

/* Enumerations are `unsigned`: see dev/cuda/api_driver.h. */
typedef unsigned wd_cudnn_status, wd_cudnn_data, wd_cudnn_backend, wd_cudnn_type, wd_cudnn_attr;

#define X(name, value) WD_CUDNN_STATUS_##name = value,
enum { WD_CUDNN_STATUS_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_DATA_##name = value,
enum { WD_CUDNN_DATA_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_BACKEND_##name = value,
enum { WD_CUDNN_BACKEND_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_TYPE_##name = value,
enum { WD_CUDNN_TYPE_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_ATTR_##name = value,
enum { WD_CUDNN_ATTR_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_POINTWISE_##name = value,
enum { WD_CUDNN_POINTWISE_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_REDUCE_TENSOR_##name = value,
enum { WD_CUDNN_REDUCE_TENSOR_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_NUMERICAL_NOTE_##name = value,
enum { WD_CUDNN_NUMERICAL_NOTE_MAP(X) };
#undef X
#define X(name, value) WD_CUDNN_HEUR_MODE_##name = value,
enum { WD_CUDNN_HEUR_MODE_MAP(X) };
#undef X

enum { WD_CUDNN_CROSS_CORRELATION = 1 };

/* ---- functions ---- */

/* X(result type, field of wd_cuda_cudnn, exported symbol, parameters). */
#define WD_CUDA_CUDNN_MAP(X)                                                                       \
    X(size_t, get_version, cudnnGetVersion, (void))                                                \
    X(const char *, error_string, cudnnGetErrorString, (wd_cudnn_status status))                   \
    X(void, last_error, cudnnGetLastErrorString, (char *message, size_t bytes))                    \
    X(wd_cudnn_status, create, cudnnCreate, (wd_cudnn_handle * handle))                            \
    X(wd_cudnn_status, destroy, cudnnDestroy, (wd_cudnn_handle handle))                            \
    X(wd_cudnn_status, set_stream, cudnnSetStream, (wd_cudnn_handle handle, wd_cu_stream stream))  \
    X(wd_cudnn_status, descriptor_create, cudnnBackendCreateDescriptor,                            \
      (wd_cudnn_backend kind, wd_cudnn_descriptor * descriptor))                                   \
    X(wd_cudnn_status, descriptor_destroy, cudnnBackendDestroyDescriptor,                          \
      (wd_cudnn_descriptor descriptor))                                                            \
    X(wd_cudnn_status, finalize, cudnnBackendFinalize, (wd_cudnn_descriptor descriptor))           \
    X(wd_cudnn_status, set, cudnnBackendSetAttribute,                                              \
      (wd_cudnn_descriptor descriptor, wd_cudnn_attr attribute, wd_cudnn_type type, int64_t count, \
       const void *elements))                                                                      \
    X(wd_cudnn_status, get, cudnnBackendGetAttribute,                                              \
      (wd_cudnn_descriptor descriptor, wd_cudnn_attr attribute, wd_cudnn_type type,                \
       int64_t requested, int64_t * count, void *elements))                                        \
    X(wd_cudnn_status, execute, cudnnBackendExecute,                                               \
      (wd_cudnn_handle handle, wd_cudnn_descriptor plan, wd_cudnn_descriptor variant_pack))

#endif
