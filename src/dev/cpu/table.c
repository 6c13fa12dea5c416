/* The table of kernels of the cpu device: see cpu/cpu.h. */
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/matmul.h"
#include "dev/cpu/reference.h"

static void use_isa(wd_cpu_table *table, wd_cpu_isa isa)
{
    switch (isa) {
#if defined(__x86_64__)
    case WD_CPU_ISA_amx:
        wd_isa_use_amx(table);
        break;
    case WD_CPU_ISA_avx512_bf16:
        wd_isa_use_avx512_bf16(table);
        break;
    case WD_CPU_ISA_avx512:
        wd_isa_use_avx512(table);
        break;
    case WD_CPU_ISA_avx2:
        wd_isa_use_avx2(table);
        break;
#endif
    default:
        wd_isa_use_generic(table);
    }
}

void wd_cpu_table_reference(wd_cpu_table *table)
{
    *table = (wd_cpu_table){.entry = {
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
    use_isa(table, isa);
    wd_cpu_use_onednn(table, isa);
}

size_t wd_cpu_workspace_bytes(const wd_cpu_table *table, wd_op op, const void *args)
{
    wd_cpu_workspace *workspace = table->entry[op].workspace;
    return workspace ? workspace(args) : 0;
}
