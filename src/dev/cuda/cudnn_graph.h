/* Opening cuDNN, graphs of its operations, and the plans that run them: a thin layer over its
 * backend interface, which knows nothing of attention or convolutions.
 *
 * A caller describes tensors and the operations between them, asks for a plan, and runs the plan
 * with the addresses of the tensors that it numbered. Failures while a graph is described are kept
 * in the graph; asking for the plan reports the first one.
 */
#ifndef WD_DEV_CUDA_CUDNN_GRAPH_H
#define WD_DEV_CUDA_CUDNN_GRAPH_H

#include "dev/cuda/api.h"
#include "dev/cuda/library.h"

enum {
    WD_CUDNN_DIMS_MAX = 5,
    WD_CUDNN_TENSORS_MAX = 16, /* that a plan is run with */
    WD_CUDNN_MADE_MAX = 192,   /* descriptors of one graph */
    WD_CUDNN_OPS_MAX = 24,
    WD_CUDNN_KNOBS_MAX = 32
};

/* ---- the library ---- */

/* What graphs are planned for: a GPU by its handle, or (tests) a GPU that is only described. */
typedef struct wd_cudnn_target {
    const wd_cuda_cudnn *cudnn;
    wd_cudnn_handle handle;     /* NULL: plans are made and cannot be run */
    wd_cudnn_descriptor device; /* finalized device properties, where handle is NULL */
} wd_cudnn_target;

/* Opens a handle of cuDNN for one GPU, as attention.c and conv.c each have one. *out is zeroed
 * where there is an error. `what` needs it: "attention on a GPU". WD_UNSUPPORTED, WD_OUT_OF_MEMORY.
 */
wd_status wd__cudnn_open(wd_cudnn_target *out, const wd_cuda_gpu *gpu, const char *what,
                         wd_err *err);
void wd__cudnn_close(wd_cudnn_target *target); /* of a zeroed one, too */

/* What runs from now on, runs on the stream. WD_INTERNAL. */
wd_status wd__cudnn_use_stream(const wd_cudnn_target *target, wd_cu_stream stream, wd_err *err);

/* ---- graphs ---- */

typedef struct wd_cudnn_graph {
    const wd_cudnn_target *target;
    wd_cudnn_descriptor made[WD_CUDNN_MADE_MAX], op[WD_CUDNN_OPS_MAX];
    int mades, ops;
    int64_t ids;            /* numbers given to tensors that nobody outside sees */
    wd_cudnn_status status; /* of the first call that failed */
    const char *failed;     /* what that call was for */
} wd_cudnn_graph;

/* How a tensor is known outside of its graph. */
typedef enum wd_cudnn_place {
    WD_CUDNN_REAL,    /* in device memory, at an address that the run names */
    WD_CUDNN_VIRTUAL, /* never in memory */
    WD_CUDNN_VALUE    /* one number in host memory, read when the plan is run */
} wd_cudnn_place;

typedef struct wd_cudnn_shape {
    wd_cudnn_data type;
    int ndim;
    int64_t dim[WD_CUDNN_DIMS_MAX], stride[WD_CUDNN_DIMS_MAX]; /* strides in elements */
} wd_cudnn_shape;

/* `shape` with dense strides, the last dimension the innermost. */
wd_cudnn_shape wd__cudnn_dense(wd_cudnn_data type, int ndim, const int64_t *dim);

/* An empty graph, undone by wd__cudnn_graph_close or by a plan that takes it over. */
void wd__cudnn_graph_open(wd_cudnn_graph *graph, const wd_cudnn_target *target);
void wd__cudnn_graph_close(wd_cudnn_graph *graph);

/* `id`: positive, the number by which a run names a real tensor or a value; ignored for virtual
 * ones. Real tensors of bf16 lie at multiples of 16 bytes, those of fp32 at multiples of 4. */
wd_cudnn_descriptor wd__cudnn_tensor(wd_cudnn_graph *graph, wd_cudnn_place place, int64_t id,
                                     const wd_cudnn_shape *shape);

/* c = a b over the last two dimensions, summed in fp32. */
void wd__cudnn_matmul(wd_cudnn_graph *graph, wd_cudnn_descriptor c, wd_cudnn_descriptor a,
                      wd_cudnn_descriptor b);
/* y = mode(x, b) in fp32, elementwise; dimensions of 1 of b are repeated; b NULL: of one operand.
 */
void wd__cudnn_pointwise(wd_cudnn_graph *graph, int mode, wd_cudnn_descriptor y,
                         wd_cudnn_descriptor x, wd_cudnn_descriptor b);
/* y = x reduced over the dimensions that are 1 in y. */
void wd__cudnn_reduce(wd_cudnn_graph *graph, int mode, wd_cudnn_descriptor y,
                      wd_cudnn_descriptor x);
/* y = x seen with other dimensions and strides. */
void wd__cudnn_reshape(wd_cudnn_graph *graph, wd_cudnn_descriptor y, wd_cudnn_descriptor x);

typedef struct wd_cudnn_window {
    int axes; /* 2 or 3 */
    int64_t stride[3], pad_before[3], pad_after[3];
} wd_cudnn_window;

/* y = x convolved with w, summed in fp32: x [N, C, axes..], w [K, C, axes..], y [N, K, axes..]. */
void wd__cudnn_convolution(wd_cudnn_graph *graph, wd_cudnn_descriptor y, wd_cudnn_descriptor x,
                           wd_cudnn_descriptor w, const wd_cudnn_window *window);

/* ---- plans (cudnn_plan.c) ---- */

/* An engine of cuDNN's with its settings: what decides the bits of a result, beside the graph. */
typedef struct wd_cudnn_choice {
    int64_t engine;
    int knobs;
    unsigned knob[WD_CUDNN_KNOBS_MAX];
    int64_t value[WD_CUDNN_KNOBS_MAX];
} wd_cudnn_choice;

enum { WD_CUDNN_CANDIDATES_MAX = 32 };

/* The engines with settings that cuDNN's heuristics name for `graph`, in their order, but for those
 * with a note of `notes_refused` (bits 1 << WD_CUDNN_NUMERICAL_NOTE_x). Nothing is planned, and the
 * graph remains the caller's. *count: from 1 to WD_CUDNN_CANDIDATES_MAX. Fails as
 * wd__cudnn_plan_open does. */
wd_status wd__cudnn_candidates(wd_cudnn_choice *out, int *count, wd_cudnn_graph *graph,
                               unsigned notes_refused, const char *what, wd_err *err);

typedef struct wd_cudnn_plan {
    wd_cudnn_graph graph;
    wd_cudnn_descriptor plan;
    int64_t workspace_bytes;
    wd_cudnn_choice choice;
} wd_cudnn_plan;

/* Plans `graph`, which the plan takes over (in case of failure it is closed), with this engine and
 * at most so many bytes of workspace. `what` names the operation in the message. WD_UNSUPPORTED:
 * cuDNN refuses it, as it would each time. WD_OUT_OF_MEMORY, WD_INTERNAL: another failure, maybe a
 * temporary one. */
wd_status wd__cudnn_plan_open(wd_cudnn_plan *out, wd_cudnn_graph *graph,
                              const wd_cudnn_choice *choice, int64_t workspace_max,
                              const char *what, wd_err *err);
void wd__cudnn_plan_close(wd_cudnn_plan *plan); /* of a zeroed plan, too */

/* Runs it on the stream of the target's handle: tensor id[i] lies at address[i]. Returns before it
 * is done. Fails as wd__cudnn_plan_open does. */
wd_status wd__cudnn_plan_run(const wd_cudnn_plan *plan, int count, const int64_t *id,
                             void *const *address, void *workspace, wd_err *err);

#endif
