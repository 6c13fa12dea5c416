/* oneDNN: matrix products, convolutions and layout changes, as cached primitives. The one file that
 * knows oneDNN's interface is onednn.c, in its versions 2 and 3.
 *
 * A primitive is made once per shape (and number of threads) and kept for the process: in a steady
 * state nothing is made. Scratch memory is the caller's. The value of a row does not depend on how
 * many rows there are, nor on the number of threads: matmul_test.c holds oneDNN to that. */
#ifndef WD_DEV_CPU_ONEDNN_H
#define WD_DEV_CPU_ONEDNN_H

#include "dev/cpu/cpu.h"

/* Lowers the instruction set that oneDNN uses; before its first use in this process. */
void wd_onednn_limit_isa(wd_cpu_isa isa);

/* "oneDNN 2.6.3": the library that the process has loaded. */
void wd_onednn_version(char out[32]);

/* WD_OUT_OF_MEMORY if a primitive that the calling thread has asked about since its last call could
 * not be made: what was said of it (no scratch, not exact) is void. A run of such a one ends the
 * process. */
wd_status wd_onednn_take_miss(wd_err *err);

/* Everything that tells one product from another but its pointers. All members are 8 bytes wide, so
 * that keys compare as bytes. */
typedef struct wd_onednn_product {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t type, c_type, bias_type; /* wd_dtype; bias_type -1: none */
    int64_t transpose_a, transpose_b, add, gelu, threads;
} wd_onednn_product;

/* Whether its bits are the same for any number of threads. */
bool wd_onednn_product_is_exact(const wd_onednn_product *product);
size_t wd_onednn_product_scratch(const wd_onednn_product *product);
void wd_onednn_product_run(void *c, const void *a, const void *b, const void *bias,
                           const wd_onednn_product *product, void *scratch);

/* A fp32 convolution, channels last, with `taps` of the kernel's kt time taps. */
typedef struct wd_onednn_conv {
    int64_t samples, in[3], out[3], ci, co;
    int64_t kernel[3], stride[3], pad_before[3], pad_after[3], taps;
    int64_t has_bias, threads;
} wd_onednn_conv;

/* The weights are packed into the scratch memory by each run. */
size_t wd_onednn_conv_scratch(const wd_onednn_conv *conv);
/* w: the first of the taps, in PyTorch's layout [CO, CI, kt, kh, kw]. */
void wd_onednn_conv_run(float *y, const float *x, const float *w, const float *bias,
                        const wd_onednn_conv *conv, void *scratch);

#endif
