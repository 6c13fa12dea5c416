/* Matrix products and convolutions through oneDNN: entries of the cpu device's table.
 *
 * A row's bits must not depend on the other rows of a launch, nor on the number of threads, so that
 * every window, micro-batch and number of threads gives the same student. This holds for oneDNN's
 * AVX-512 products, but not for its AVX2 and SSE products (2.6: the last 1 to 3 of every 6 rows are
 * summed in another order), so on these sets isa/matmul.c computes products. On AVX-512 it computes
 * those for which oneDNN lacks the dtypes (fp32 operands with a narrower result or bias), and, if
 * the processor has no bf16 products, those of bf16: oneDNN takes three times as long for them, and
 * their bits depend on the number of threads (3.2). With AMX it computes those of bf16, too, as
 * fast as oneDNN where they are large, since the bits of oneDNN's (2.6) depend on the number of
 * rows.
 *
 * isa/winograd.c computes convolutions of 3x3 taps on every set, and oneDNN others. */
#ifndef WD_DEV_CPU_MATMUL_H
#define WD_DEV_CPU_MATMUL_H

#include "dev/cpu/cpu.h"

/* Replaces entries of isa/use.c by oneDNN's. */
void wd__cpu_use_onednn(wd_cpu_table *table, wd_cpu_isa isa);

#endif
