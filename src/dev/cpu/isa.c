/* The instruction sets that this machine's processor supports. */
#include "dev/cpu/cpu.h"

const char *wd_cpu_isa_name(wd_cpu_isa isa)
{
    static const char *const names[] = {
#define X(name) #name,
        WD_CPU_ISA_MAP(X)
#undef X
    };
    return names[isa];
}

#if defined(__x86_64__)

/* The builtins also check that the operating system saves the wide registers (XCR0). clang 14 has
 * no name for avx512_bf16, so this bit is read from CPUID leaf 7, subleaf 1. */
#include <cpuid.h>

static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

wd_cpu_isa wd_cpu_isa_best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return WD_CPU_ISA_generic;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return WD_CPU_ISA_avx2;
    return has_avx512_bf16() ? WD_CPU_ISA_avx512_bf16 : WD_CPU_ISA_avx512;
}

#else

wd_cpu_isa wd_cpu_isa_best(void)
{
    return WD_CPU_ISA_generic;
}

#endif
