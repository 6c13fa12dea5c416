/* oneDNN: matrix products, convolutions and layout changes, as cached primitives. Only onednn.c
 * uses oneDNN's interface, in its versions 2 and 3.
 *
 * A primitive is made once per shape and number of threads and kept until the process ends, so a
 * steady-state step makes none. The caller provides scratch memory. The value of a row does not
 * depend on the number of rows or threads; matmul_test.c tests that. */
#ifndef WD_DEV_CPU_ONEDNN_H
#define WD_DEV_CPU_ONEDNN_H

#include "dev/cpu/cpu.h"

/* Limits the instruction set that oneDNN uses. Call it before the first use of oneDNN in this
 * process. */
void wd__onednn_limit_isa(wd_cpu_isa isa);

/* "oneDNN 2.6.3": the library that the process has loaded. */
void wd__onednn_version(char out[32]);

/* Returns WD_OUT_OF_MEMORY if, since its last call, a primitive that the calling thread asked about
 * could not be made. The answers about it (no scratch, not exact) are then not valid, and running
 * it ends the process. */
wd_status wd__onednn_take_miss(wd_err *err);

/* The key of a product: all its arguments but pointers. All members have 8 bytes, so that keys can
 * be compared as bytes. */
typedef struct wd_onednn_product {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t type, c_type, bias_type; /* wd_dtype; bias_type -1: none */
    int64_t transpose_a, transpose_b, add, gelu, threads;
} wd_onednn_product;

/* Whether the bits of the product are the same for any number of threads. */
bool wd__onednn_product_is_exact(const wd_onednn_product *product);
size_t wd__onednn_product_scratch(const wd_onednn_product *product);
void wd__onednn_product_run(void *c, const void *a, const void *b, const void *bias,
                            const wd_onednn_product *product, void *scratch);

/* A fp32 convolution, channels last, with `taps` of the kernel's kt time taps. */
typedef struct wd_onednn_conv {
    int64_t samples, in[3], out[3], ci, co;
    int64_t kernel[3], stride[3], pad_before[3], pad_after[3], taps;
    int64_t has_bias, threads;
} wd_onednn_conv;

/* Scratch bytes of a convolution; each run packs the weights into it. */
size_t wd__onednn_conv_scratch(const wd_onednn_conv *conv);
/* w: the first of the taps, in PyTorch's layout [CO, CI, kt, kh, kw]. */
void wd__onednn_conv_run(float *y, const float *x, const float *w, const float *bias,
                         const wd_onednn_conv *conv, void *scratch);

#endif
