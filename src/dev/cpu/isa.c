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
 * no names for the newest sets, so their bits are read from CPUID. */
#include <cpuid.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

/* Whether bf16 tiles may be used: Linux gives a process the state of AMX (component 18) only if it
 * asks for it (ARCH_REQ_XCOMP_PERM), since 8 KiB are saved for every thread. It fails on older
 * kernels, which do not know the request, and where the state is disabled. */
static bool has_amx(void)
{
    unsigned a, b, c, d;
    bool tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) && (d >> 22 & 1);
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return tiles && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return tiles && false;
#endif
}

wd_cpu_isa wd_cpu_isa_best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return WD_CPU_ISA_generic;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return WD_CPU_ISA_avx2;
    if (!has_avx512_bf16()) return WD_CPU_ISA_avx512;
    return has_amx() ? WD_CPU_ISA_amx : WD_CPU_ISA_avx512_bf16;
}

#else

wd_cpu_isa wd_cpu_isa_best(void)
{
    return WD_CPU_ISA_generic;
}

#endif
