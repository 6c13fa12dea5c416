/* Folder dev/cpu/isa. The kernels of which there is one version for each instruction set.
 *
 * Kernels that exist once per instruction set. Each file of this folder is compiled for every set,
 * with WD_ISA as the suffix of its external symbols: wd_isa_layernorm_avx2.
 *
 * They are plain C loops that the compiler vectorises, without contraction to fused multiply-adds,
 * and with sums in 32 lanes for every width of vectors. So a result has the same bits on every
 * instruction set, and for every number of threads. Matrix products, attention and convolutions are
 * exceptions: they need fused multiply-adds for speed (isa/vec.h), and give the same bits for every
 * number of threads on one instruction set. */
#ifndef WD_DEV_CPU_ISA_ISA_H
#define WD_DEV_CPU_ISA_ISA_H

#include "dev/cpu/cpu.h"

/* X(OP, name, workspace): operations that have such a kernel, and their workspace function. */
#define WD_ISA_OP_MAP(X)                                                                           \
    X(MATMUL, matmul, wd_isa_matmul_workspace)                                                     \
    X(CONV, conv, wd_isa_conv_workspace)                                                           \
    X(ATTENTION, attention, wd_isa_attention_workspace)                                            \
    X(ATTENTION_BACKWARD, attention_backward, wd_isa_attention_backward_workspace)                 \
    X(LAYERNORM, layernorm, NULL)                                                                  \
    X(LAYERNORM_BACKWARD, layernorm_backward, wd_isa_layernorm_backward_workspace)                 \
    X(RMSNORM, rmsnorm, NULL)                                                                      \
    X(RMSNORM_BACKWARD, rmsnorm_backward, wd_isa_rmsnorm_backward_workspace)                       \
    X(CHANNELNORM, channelnorm, NULL)                                                              \
    X(RESIDUAL, residual, NULL)                                                                    \
    X(RESIDUAL_BACKWARD, residual_backward, wd_isa_residual_backward_workspace)                    \
    X(ACTIVATION, activation, NULL)                                                                \
    X(ACTIVATION_BACKWARD, activation_backward, NULL)                                              \
    X(MULTIPLY, multiply, NULL)                                                                    \
    X(ADD_TABLE, add_table, NULL)                                                                  \
    X(SUM_ROWS, sum_rows, wd_isa_sum_rows_workspace)                                               \
    X(STRIDED_COPY, strided_copy, NULL)                                                            \
    X(GATHER_ROWS, gather_rows, NULL)                                                              \
    X(CAST, cast, NULL)                                                                            \
    X(DEQUANTISE, dequantise, NULL)                                                                \
    X(FILL, fill, NULL)                                                                            \
    X(COMBINE, combine, NULL)                                                                      \
    X(GUIDANCE, guidance, NULL)                                                                    \
    X(STEP_SAMPLES, step_samples, NULL)                                                            \
    X(MSE, mse, wd_isa_mse_workspace)                                                              \
    X(SUM_SQUARES, sum_squares, wd_isa_sum_squares_workspace)                                      \
    X(SUM_SQUARES_CHUNKS, sum_squares_chunks, NULL)                                                \
    X(MOMENTS, moments, NULL)                                                                      \
    X(MASTERS, masters, NULL)                                                                      \
    X(ADAMW, adamw, NULL)                                                                          \
    X(EMA, ema, NULL)

/* Puts one instruction set's kernels into a table: see use.c. */
void wd_isa_use_generic(wd_cpu_table *table);
void wd_isa_use_avx2(wd_cpu_table *table);
void wd_isa_use_avx512(wd_cpu_table *table);
void wd_isa_use_avx512_bf16(wd_cpu_table *table);
void wd_isa_use_amx(wd_cpu_table *table);

/* Inside this folder: the name of this version of a kernel. */
#ifdef WD_ISA
#define WD_ISA_PASTE_(name, isa) wd_isa_##name##_##isa
#define WD_ISA_PASTE(name, isa) WD_ISA_PASTE_(name, isa)
#define KERNEL(name) WD_ISA_PASTE(name, WD_ISA)
#define X(op, name, workspace) wd_cpu_kernel KERNEL(name);
WD_ISA_OP_MAP(X)
#undef X
#endif

/* The same for all instruction sets: cpu/workspace.c. */
size_t wd_isa_matmul_workspace(const void *args);
size_t wd_isa_conv_workspace(const void *args); /* of one that wd__winograd_takes */
size_t wd_isa_attention_workspace(const void *args);
size_t wd_isa_attention_backward_workspace(const void *args);
size_t wd_isa_layernorm_backward_workspace(const void *args);
size_t wd_isa_rmsnorm_backward_workspace(const void *args);
size_t wd_isa_residual_backward_workspace(const void *args);
size_t wd_isa_sum_rows_workspace(const void *args);
size_t wd_isa_mse_workspace(const void *args);
size_t wd_isa_sum_squares_workspace(const void *args);

#endif
