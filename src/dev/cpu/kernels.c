/* The table of kernels of each instruction set, and the choice of one for this machine: see
 * dev/cpu/cpu.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/parallel.h"
#include "core/text.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/matmul.h"
#include "dev/cpu/onednn.h"
#include "dev/cpu/reference.h"

/* ---- the table of kernels ---- */

#ifndef WD_BUILT_generic
#error "cmake/library.cmake defines WD_BUILT_x for this file, for every set x that is built"
#endif

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

bool wd__cpu_isa_is_built(wd_cpu_isa isa)
{
    return use_isa[isa] != NULL;
}

void wd__cpu_table_reference(wd_cpu_table *table)
{
    *table = (wd_cpu_table){.entry = {
#define X(op, name) [WD_OP_##op] = {wd_ref_##name, NULL},
                                WD_OP_MAP(X)
#undef X
                            }};
    table->entry[WD_OP_ATTENTION].workspace = wd_ref_attention_workspace;
    table->entry[WD_OP_ATTENTION_BACKWARD].workspace = wd_ref_attention_backward_workspace;
}

void wd__cpu_table_fill(wd_cpu_table *table, wd_cpu_isa isa)
{
    wd__cpu_table_reference(table);
    WD_REQUIRE(use_isa[isa], "kernels of %s", wd__cpu_isa_name(isa));
    use_isa[isa](table);
    wd__cpu_use_onednn(table, isa);
}

size_t wd__cpu_workspace_bytes(const wd_cpu_table *table, wd_op op, const void *args)
{
    wd_cpu_workspace *workspace = table->entry[op].workspace;
    return workspace ? workspace(args) : 0;
}

/* ---- the choice of a set ---- */

static _Atomic int most = WD_CPU_ISA_COUNT - 1; /* see wd_device_limit_kernels */

static wd_status not_built(const char *asked, wd_err *err)
{
    char sets[64] = "";
    size_t used = 0;
    for (int isa = 0; isa < WD_CPU_ISA_COUNT; isa++)
        if (wd__cpu_isa_is_built((wd_cpu_isa)isa))
            used = wd_append_text(sets, sizeof sets, used, "%s%s", isa ? ", " : "",
                                  wd__cpu_isa_name((wd_cpu_isa)isa));
    return wd_fail(err, WD_UNSUPPORTED,
                   "WD_CPU_ISA=%s: this program was built with the kernels of %s only; unset it, "
                   "choose one of these, or build the program with -DWD_ISAS=all",
                   asked, sets);
}

/* The machine's best instruction set, or the lower one that WD_CPU_ISA asks for. */
static wd_status best_isa(wd_cpu_isa *isa, wd_err *err)
{
    const char *asked = getenv("WD_CPU_ISA");
    int limit = WD_CPU_ISA_COUNT - 1;
    if (asked && *asked)
        while (limit >= 0 && strcmp(asked, wd__cpu_isa_name((wd_cpu_isa)limit))) limit--;
    if (limit < 0)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "WD_CPU_ISA=%s: expected generic, avx2, avx512, avx512_bf16 or amx", asked);
    if (asked && *asked && !wd__cpu_isa_is_built((wd_cpu_isa)limit)) return not_built(asked, err);
    *isa = wd__cpu_isa_best((wd_cpu_isa)limit);
    if (asked && *asked && (int)*isa < limit)
        return wd_fail(err, WD_UNSUPPORTED,
                       "WD_CPU_ISA=%s: this machine allows only %s; unset it or lower it", asked,
                       wd__cpu_isa_name(*isa));
    return WD_OK;
}

static wd_status choose_isa(wd_cpu_isa *isa, wd_err *err)
{
    WD_TRY(best_isa(isa, err));
    if ((int)*isa > most) *isa = wd__cpu_isa_best((wd_cpu_isa)most);
    return WD_OK;
}

wd_status wd_device_kernel_set(int *out, wd_err *err)
{
    wd_cpu_isa isa;
    WD_TRY(best_isa(&isa, err));
    *out = (int)isa;
    return WD_OK;
}

void wd_device_limit_kernels(int limit)
{
    WD_REQUIRE(limit >= 0 && limit < WD_CPU_ISA_COUNT, "kernel set %d", limit);
    most = limit;
}

wd_status wd_device_kernels(char out[WD_KERNELS_TEXT], wd_err *err)
{
    wd_cpu_isa isa;
    WD_TRY(choose_isa(&isa, err));
    wd_cpu_kernels_text(out, isa);
    return WD_OK;
}

void wd_cpu_kernels_text(char out[WD_KERNELS_TEXT], wd_cpu_isa isa)
{
    char library[32];
    wd__onednn_version(library);
    snprintf(out, WD_KERNELS_TEXT, "%s, %s", wd__cpu_isa_name(isa), library);
}

wd_status wd_cpu_kernels_choose(wd_cpu_kernels *out, int threads, wd_err *err)
{
    wd_cpu_isa isa;
    WD_TRY(choose_isa(&isa, err));
    out->isa = isa;
    out->threads = threads > 0 ? threads : wd_parallel_threads();
    wd__onednn_limit_isa(isa);
    wd__cpu_table_fill(&out->table, isa);
    return WD_OK;
}

wd_status wd_device_check_kernels(wd_err *err)
{
    return wd__onednn_take_miss(err);
}

/* ---- the chosen kernels ---- */

size_t wd_cpu_kernels_workspace(const wd_cpu_kernels *kernels, wd_op op, const void *args)
{
    int before = wd_parallel_threads();
    wd_parallel_set_threads(kernels->threads);
    size_t bytes = wd__cpu_workspace_bytes(&kernels->table, op, args);
    wd_parallel_set_threads(before);
    return bytes;
}

void wd_cpu_kernels_run(const wd_cpu_kernels *kernels, wd_op op, const void *args, void *workspace,
                        size_t workspace_bytes)
{
    wd_parallel_set_threads(kernels->threads);
    wd_cpu_context context = {workspace, workspace_bytes, kernels->isa, &kernels->table};
    kernels->table.entry[op].kernel(args, &context);
}
