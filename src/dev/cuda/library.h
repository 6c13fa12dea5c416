/* Operations that NVIDIA's libraries compute: matrix products by cuBLASLt (products.c), attention
 * and convolutions by cuDNN (attention.c, conv.c). What they cannot do, our own kernels do.
 *
 * For each kind of operation the device asks three questions: whether the library can do it
 * (`can`), how much workspace it takes (`workspace`), and to put it on a stream (`launch`). cuDNN
 * plans each shape once, which takes up to a second: `prepare` does so ahead of launches. The
 * answers of the first two depend on the arguments' shapes, dtypes and alignment only, so that a
 * dry run asks with made-up addresses; they are the same before every launch of the same shape.
 * All functions may be called by several threads at once.
 */
#ifndef WD_DEV_CUDA_LIBRARY_H
#define WD_DEV_CUDA_LIBRARY_H

#include "dev/cuda/api.h"
#include "dev/ops.h"

/* The GPU that an opened device computes on. */
typedef struct wd_cuda_gpu {
    const wd_cuda_api *api; /* with the driver, cuBLASLt and cuDNN */
    wd_cu_device number;
    wd_cu_context context; /* the primary one, retained */
    int shares;            /* devices that have the GPU's memory in equal parts; 1: see cuda.c */
    int capability;        /* 10 times the compute capability: 90 is sm_90 */
    int multiprocessors;
} wd_cuda_gpu;

/* Where an operation runs: the context of the GPU is the current one of the calling thread. */
typedef struct wd_cuda_work {
    const wd_cuda_gpu *gpu;
    wd_cu_stream stream;
    void *workspace;        /* device memory, 256-byte aligned; NULL: none */
    size_t workspace_bytes; /* at least what `workspace` of the same arguments said */
    wd_device *device;      /* for wd__cuda_kernels_launch */
} wd_cuda_work;

/* Puts operation `op` on the stream of `work` as our own kernels do it, such as a cast before a
 * product. Fails as launches fail (see below). */
wd_status wd__cuda_kernels_launch(const wd_cuda_work *work, wd_op op, const void *args,
                                  wd_err *err);

/* ---- the libraries of one GPU: handles, cached plans, chosen algorithms ---- */

typedef struct wd_cuda_products wd_cuda_products;   /* products.c */
typedef struct wd_cuda_attention wd_cuda_attention; /* attention.c */
typedef struct wd_cuda_conv wd_cuda_conv;           /* conv.c */

/* `gpu` is borrowed until it is closed, and its context is the current one. `device` launches our
 * own kernels, which are loaded, while the products are checked. WD_UNSUPPORTED: the library does
 * not work on this GPU; WD_OUT_OF_MEMORY. */
wd_status wd__cuda_products_open(wd_cuda_products **out, const wd_cuda_gpu *gpu, wd_device *device,
                                 wd_err *err);
wd_status wd__cuda_attention_open(wd_cuda_attention **out, const wd_cuda_gpu *gpu, wd_err *err);
wd_status wd__cuda_conv_open(wd_cuda_conv **out, const wd_cuda_gpu *gpu, wd_err *err);
void wd__cuda_products_close(wd_cuda_products *products);    /* NULL is allowed */
void wd__cuda_attention_close(wd_cuda_attention *attention); /* NULL is allowed */
void wd__cuda_conv_close(wd_cuda_conv *conv);                /* NULL is allowed */

/* Appends what decides the bits of results to `out`, such as "cuBLASLt 13.1.0". */
void wd__cuda_products_version(const wd_cuda_products *products, char *out, size_t bytes);
void wd__cuda_attention_version(const wd_cuda_attention *attention, char *out, size_t bytes);

/* Writes how shape number `i`, in the order of their first use, is computed, such as "attention,
 * 1 x 12 heads of 128, 1560 x 512: engine 2, knobs 24=7, 256 bytes of workspace, planned in 812
 * ms". False: there are fewer shapes. */
bool wd__cuda_attention_describe(wd_cuda_attention *attention, int64_t i, char *out, size_t bytes);
bool wd__cuda_conv_describe(wd_cuda_conv *conv, int64_t i, char *out, size_t bytes);

/* Writes into `out`, of `bytes` bytes, the i-th kind of product that this GPU was asked for and the
 * algorithm that makes it: "BF16 x BF16 -> BF16, n 5120, k 5120, b transposed, lines of 5120 5120
 * 5120, bias: algorithm 66, tile 24, stages 0, split 1, workspace 0". False: there are only i. */
bool wd__cuda_products_describe(wd_cuda_products *products, int64_t i, char *out, size_t bytes);

/* ---- operations ----
 *
 * What cuDNN refuses when a shape is planned or first launched, our own kernels do from then on, in
 * the workspace of the library, after a warning in the log (cudnn_shapes.h).
 *
 * launch: WD_INTERNAL where the library or the driver fails otherwise; the device then keeps the
 * message as its fault. What `can` denies is not launched. */

bool wd__cuda_products_can(wd_cuda_products *products, const wd_matmul_args *args);
size_t wd__cuda_products_workspace(wd_cuda_products *products, const wd_matmul_args *args);
wd_status wd__cuda_products_launch(wd_cuda_products *products, const wd_cuda_work *work,
                                   const wd_matmul_args *args, wd_err *err);

bool wd__cuda_attention_can(wd_cuda_attention *attention, const wd_attention_args *args);
size_t wd__cuda_attention_workspace(wd_cuda_attention *attention, const wd_attention_args *args);
wd_status wd__cuda_attention_prepare(wd_cuda_attention *attention, const wd_attention_args *args,
                                     wd_err *err);
wd_status wd__cuda_attention_launch(wd_cuda_attention *attention, const wd_cuda_work *work,
                                    const wd_attention_args *args, wd_err *err);

bool wd__cuda_attention_backward_can(wd_cuda_attention *attention,
                                     const wd_attention_backward_args *args);
size_t wd__cuda_attention_backward_workspace(wd_cuda_attention *attention,
                                             const wd_attention_backward_args *args);
wd_status wd__cuda_attention_backward_prepare(wd_cuda_attention *attention,
                                              const wd_attention_backward_args *args, wd_err *err);
wd_status wd__cuda_attention_backward_launch(wd_cuda_attention *attention, const wd_cuda_work *work,
                                             const wd_attention_backward_args *args, wd_err *err);

/* Tests: the backward pass goes in pieces whose scores take at most so many bytes. Before anything
 * else is asked of it. */
void wd__cuda_attention_cut(wd_cuda_attention *attention, size_t piece_bytes);

bool wd__cuda_conv_can(wd_cuda_conv *conv, const wd_conv_args *args);
size_t wd__cuda_conv_workspace(wd_cuda_conv *conv, const wd_conv_args *args);
wd_status wd__cuda_conv_prepare(wd_cuda_conv *conv, const wd_conv_args *args, wd_err *err);
wd_status wd__cuda_conv_launch(wd_cuda_conv *conv, const wd_cuda_work *work,
                               const wd_conv_args *args, wd_err *err);

#endif
