/* Folder dev/cpu. The processor as a device (oneDNN and C).
 *
 * The kernels of the cpu device, and their table. Private to src/dev/cpu.
 *
 * Every operation has a plain C version (reference_*.c, wd_ref_<name>), with which the table is
 * filled first; faster versions for the instruction set replace it at open. Tests compare every
 * entry with the plain C version. */
#ifndef WD_DEV_CPU_CPU_H
#define WD_DEV_CPU_CPU_H

#include "dev/device_impl.h"

/* The instruction sets for which kernels are compiled; each includes the previous ones. The names
 * are those of WD_CPU_ISA and the suffixes of symbols. */
#define WD_CPU_ISA_MAP(X) X(generic) X(avx2) X(avx512) X(avx512_bf16) X(amx)

typedef enum wd_cpu_isa {
#define X(name) WD_CPU_ISA_##name,
    WD_CPU_ISA_MAP(X)
#undef X
        WD_CPU_ISA_COUNT
} wd_cpu_isa;

const char *wd__cpu_isa_name(wd_cpu_isa isa);

/* Whether this program has the kernels of a set (WD_ISAS in cmake/library.cmake); generic is always
 * among them. */
bool wd__cpu_isa_is_built(wd_cpu_isa isa);

/* The best set up to `limit` that this program has and this machine can run. If amx is within the
 * limit, it asks the system to let this process use the tile registers of AMX; kernels of amx need
 * that permission. */
wd_cpu_isa wd__cpu_isa_best(wd_cpu_isa limit);

/* The context of a kernel: everything that it uses besides its arguments. */
typedef struct wd_cpu_context {
    void *workspace; /* 64-byte aligned, with at least the bytes of the workspace function */
    size_t workspace_bytes;
    wd_cpu_isa isa;
    const struct wd_cpu_table *table; /* for kernels that call others */
} wd_cpu_context;

/* Runs an operation; `args` is its wd_<name>_args. */
typedef void wd_cpu_kernel(const void *args, wd_cpu_context *context);

/* The workspace of a kernel for these arguments, in bytes. It must not dereference pointers, but
 * may compare them with NULL: a dry run calls it with addresses that are not real. */
typedef size_t wd_cpu_workspace(const void *args);

typedef struct wd_cpu_entry {
    wd_cpu_kernel *kernel;
    wd_cpu_workspace *workspace; /* NULL: none */
} wd_cpu_entry;

typedef struct wd_cpu_table {
    wd_cpu_entry entry[WD_OP_COUNT];
    wd_cpu_entry tiles;    /* the product of isa/matmul.c, if oneDNN computes most products */
    wd_cpu_entry winograd; /* the convolution of isa/winograd.c, for those that it takes */
} wd_cpu_table;

/* The plain C versions of all operations. */
void wd__cpu_table_reference(wd_cpu_table *table);
/* The fastest version of each operation that `isa`, which must be built, allows. */
void wd__cpu_table_fill(wd_cpu_table *table, wd_cpu_isa isa);

/* Bytes of workspace for one launch, and the launch itself, for callers that hold a table. */
size_t wd__cpu_workspace_bytes(const wd_cpu_table *table, wd_op op, const void *args);

/* The kernels of this machine, chosen by CPUID and WD_CPU_ISA, for the cpu device and simulated
 * devices. `threads`: 0 = OpenMP's number. */
typedef struct wd_cpu_kernels {
    wd_cpu_table table;
    wd_cpu_isa isa;
    int threads;
} wd_cpu_kernels;

wd_status wd_cpu_kernels_choose(wd_cpu_kernels *out, int threads, wd_err *err);
/* Writes the kernel set and oneDNN's version, on which the bits of results depend. */
void wd_cpu_kernels_text(char out[WD_KERNELS_TEXT], wd_cpu_isa isa);
/* The workspace in bytes. It may depend on the number of threads, since each has a part of it. */
size_t wd_cpu_kernels_workspace(const wd_cpu_kernels *kernels, wd_op op, const void *args);
/* Runs a kernel in the calling thread, which leads the team of threads. */
void wd_cpu_kernels_run(const wd_cpu_kernels *kernels, wd_op op, const void *args, void *workspace,
                        size_t workspace_bytes);

#endif
