/* Matrix products and convolutions through oneDNN: entries of the cpu device's table.
 *
 * A row's bits must not depend on the other rows of a launch, nor on the number of threads: that is
 * how any window, micro-batch and number of threads gives the same student. oneDNN's AVX-512
 * products keep that, its AVX2 and SSE ones do not (2.6: a row's sums are added in another order in
 * the last 1 to 3 of every 6 rows), so on those sets isa/matmul.c makes the products. On AVX-512 it
 * makes those that oneDNN has no dtypes for, fp32 operands with a narrower result or bias, and,
 * where the processor does not multiply bf16 itself, those of bf16: oneDNN's take three times as
 * long, and their bits depend on the number of threads (3.2).
 *
 * Convolutions of 3x3 taps are isa/winograd.c's on every set, others oneDNN's. */
#ifndef WD_DEV_CPU_MATMUL_H
#define WD_DEV_CPU_MATMUL_H

#include "dev/cpu/cpu.h"

/* Over the entries that isa/use.c made. */
void wd_cpu_use_onednn(wd_cpu_table *table, wd_cpu_isa isa);

#endif
