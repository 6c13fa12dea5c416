/* The instruction sets that this machine's processor supports. */
#include "dev/cpu/cpu.h"

/* The best set up to `isa` of which this program has kernels. */
static wd_cpu_isa built(wd_cpu_isa isa)
{
    while (!wd__cpu_isa_is_built(isa)) isa = (wd_cpu_isa)((int)isa - 1);
    return isa;
}

const char *wd__cpu_isa_name(wd_cpu_isa isa)
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
#include <pthread.h>

#if defined(WD_AMX) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool avx512_bf16, amx; /* as CPUID says */

/* CPUID is slow in a virtual machine, which it leaves, so it is asked once. */
static void read_cpuid(void)
{
    unsigned a, b, c, d;
    avx512_bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
    amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) && (d >> 22 & 1);
}

#if defined(WD_AMX) && defined(__linux__)

static bool allowed; /* tile registers, to this process */

/* Linux lets a process use the state of AMX (component 18) if it asks for it, since 8 KiB are then
 * saved for every thread. It refuses where it is older than the request, where the state is
 * disabled, and if a thread's alternate signal stack is too small for it. */
static void ask_for_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    allowed = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

/* Whether bf16 products may run on tile registers. It asks Linux once, so that the answer stays. */
static bool has_amx(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!amx) return false;
    pthread_once(&once, ask_for_tiles);
    return allowed;
}

#else /* the compiler cannot compile these kernels, or the system gives no permission */

static bool has_amx(void)
{
    return false;
}

#endif

wd_cpu_isa wd__cpu_isa_best(wd_cpu_isa limit)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    wd_cpu_isa best = WD_CPU_ISA_generic;
    pthread_once(&once, read_cpuid);
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) best = WD_CPU_ISA_avx2;
    if (best == WD_CPU_ISA_avx2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        best = avx512_bf16 ? WD_CPU_ISA_avx512_bf16 : WD_CPU_ISA_avx512;
    if (best == WD_CPU_ISA_avx512_bf16 && limit > best && has_amx()) best = WD_CPU_ISA_amx;
    return built(best < limit ? best : limit);
}

#else

wd_cpu_isa wd__cpu_isa_best(wd_cpu_isa limit)
{
    (void)limit;
    return built(WD_CPU_ISA_generic);
}

#endif
