/* Puts this instruction set's kernels into a table. */
#include "dev/cpu/isa/isa.h"

void KERNEL(use)(wd_cpu_table *table)
{
#define X(op, name, workspace_of)                                                                  \
    table->entry[WD_OP_##op] = (wd_cpu_entry){KERNEL(name), workspace_of};
    WD_ISA_OP_MAP(X)
#undef X
}
