/* The table of kernels of the cpu device: see cpu/cpu.h. */
#include "core/require.h"
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/matmul.h"
#include "dev/cpu/reference.h"

/* What puts the kernels of each set into a table; NULL: this program has none of that set. */
static void (*const use_isa[WD_CPU_ISA_COUNT])(wd_cpu_table *table) = {
    [WD_CPU_ISA_generic] = wd_isa_use_generic,
#ifdef WD_BUILT_avx2
    [WD_CPU_ISA_avx2] = wd_isa_use_avx2,
#endif
#ifdef WD_BUILT_avx512
    [WD_CPU_ISA_avx512] = wd_isa_use_avx512,
#endif
#ifdef WD_BUILT_avx512_bf16
    [WD_CPU_ISA_avx512_bf16] = wd_isa_use_avx512_bf16,
#endif
#ifdef WD_BUILT_amx
    [WD_CPU_ISA_amx] = wd_isa_use_amx,
#endif
};

bool wd_cpu_isa_is_built(wd_cpu_isa isa)
{
    return use_isa[isa] != NULL;
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
    WD_REQUIRE(use_isa[isa], "kernels of %s", wd_cpu_isa_name(isa));
    use_isa[isa](table);
    wd_cpu_use_onednn(table, isa);
}

size_t wd_cpu_workspace_bytes(const wd_cpu_table *table, wd_op op, const void *args)
{
    wd_cpu_workspace *workspace = table->entry[op].workspace;
    return workspace ? workspace(args) : 0;
}
