/* Matrix products and convolutions through oneDNN: entries of the cpu device's table. */
#ifndef WD_DEV_CPU_MATMUL_H
#define WD_DEV_CPU_MATMUL_H

#include "dev/cpu/cpu.h"

/* Puts them into the table; what `isa` cannot do in bf16 is widened to fp32 in the workspace. */
void wd_cpu_use_onednn(wd_cpu_table *table, wd_cpu_isa isa);

#endif
