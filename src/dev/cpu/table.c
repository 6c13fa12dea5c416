/* Which kernel runs which operation on the cpu device: see cpu/cpu.h. */
#include <assert.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/reference.h"

void wd_cpu_table_reference(wd_cpu_table *table)
{
    *table = (wd_cpu_table){{
#define X(op, name) [WD_OP_##op] = {wd_ref_##name, NULL},
        WD_OP_MAP(X)
#undef X
    }};
    table->entry[WD_OP_ATTENTION].workspace = wd_ref_attention_workspace;
    table->entry[WD_OP_ATTENTION_BACKWARD].workspace = wd_ref_attention_backward_workspace;
}

void wd_cpu_table_fill(wd_cpu_table *table, wd_cpu_isa isa)
{
    wd_cpu_table_reference(table);
    (void)isa;
}

size_t wd_cpu_workspace_bytes(const wd_cpu_table *table, wd_op op, const void *args)
{
    wd_cpu_workspace *workspace = table->entry[op].workspace;
    return workspace ? workspace(args) : 0;
}
