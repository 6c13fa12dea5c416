/* The cpu device from inside: what a kernel is, and the table of those in use. Private to
 * src/dev/cpu.
 *
 * Every operation has a plain C version (reference_*.c, wd_ref_<name>), which the table starts
 * with; faster versions replace it at open, by instruction set. Tests compare any entry with the
 * reference's.
 */
#ifndef WD_DEV_CPU_CPU_H
#define WD_DEV_CPU_CPU_H

#include "dev/device_impl.h"

/* Instruction sets that kernels are compiled for, each includes the ones before it. The names are
 * what WD_CPU_ISA and the symbols' suffixes say. */
#define WD_CPU_ISA_MAP(X) X(generic) X(avx2) X(avx512) X(avx512_bf16)

typedef enum wd_cpu_isa {
#define X(name) WD_CPU_ISA_##name,
    WD_CPU_ISA_MAP(X)
#undef X
        WD_CPU_ISA_COUNT
} wd_cpu_isa;

const char *wd_cpu_isa_name(wd_cpu_isa isa);
wd_cpu_isa wd_cpu_isa_best(void); /* of this machine */

/* What a kernel may use beside its arguments. */
typedef struct wd_cpu_context {
    void *workspace; /* 64-byte aligned, at least what the operation's workspace function said */
    size_t workspace_bytes;
    wd_cpu_isa isa;
    const struct wd_cpu_table *table; /* for kernels that call others */
} wd_cpu_context;

/* Runs an operation; `args` is its wd_<name>_args. */
typedef void wd_cpu_kernel(const void *args, wd_cpu_context *context);

/* Scratch bytes that the kernel needs for these arguments. Never looks at pointers but for NULL: a
 * dry run asks it with addresses that are made up. */
typedef size_t wd_cpu_workspace(const void *args);

typedef struct wd_cpu_entry {
    wd_cpu_kernel *kernel;
    wd_cpu_workspace *workspace; /* NULL: none */
} wd_cpu_entry;

typedef struct wd_cpu_table {
    wd_cpu_entry entry[WD_OP_COUNT];
    wd_cpu_entry tiles;    /* the product that isa/matmul.c makes, where oneDNN makes most */
    wd_cpu_entry winograd; /* the convolution that isa/winograd.c makes, where it takes it */
} wd_cpu_table;

/* The plain C versions of all operations. */
void wd_cpu_table_reference(wd_cpu_table *table);
/* The fastest version of each operation that `isa` allows. */
void wd_cpu_table_fill(wd_cpu_table *table, wd_cpu_isa isa);

/* Bytes of workspace for one launch, and the launch itself, for callers that hold a table. */
size_t wd_cpu_workspace_bytes(const wd_cpu_table *table, wd_op op, const void *args);

/* The kernels of this machine, chosen by CPUID and WD_CPU_ISA: what the cpu device computes with,
 * and simulated devices, too. `threads`: 0 = what OpenMP says. */
typedef struct wd_cpu_kernels {
    wd_cpu_table table;
    wd_cpu_isa isa;
    int threads;
} wd_cpu_kernels;

wd_status wd_cpu_kernels_choose(wd_cpu_kernels *out, int threads, wd_err *err);
/* The set and oneDNN's version: what the bits of results depend on. */
void wd_cpu_kernels_text(char out[WD_KERNELS_TEXT], wd_cpu_isa isa);
/* It may depend on the number of threads: each has its own part of it. */
size_t wd_cpu_kernels_workspace(const wd_cpu_kernels *kernels, wd_op op, const void *args);
/* Runs it in the calling thread, which leads the team of threads. */
void wd_cpu_kernels_run(const wd_cpu_kernels *kernels, wd_op op, const void *args, void *workspace,
                        size_t workspace_bytes);

/* The cpu device; `guarded`: see guard.c. */
wd_status wd_cpu_open(wd_device **out, bool guarded, int threads, wd_err *err);

/* guard.c: memory whose pages are inaccessible unless the device is entered. */
wd_status wd_guard_alloc(void **out, bool entered, size_t bytes, wd_err *err);
void wd_guard_free(void *block, size_t bytes);
void wd_guard_protect(const wd_device *device, bool open); /* all blocks; device->lock is held */

#endif
