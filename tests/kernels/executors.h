/* The executors of the kernel tests: every instruction set of this machine, with several numbers of
 * threads. A test that is built with another such header as WD_EXECUTORS tests other kernels with
 * the same cases, as standin/executors.h does. */
#ifndef WD_TESTS_KERNELS_EXECUTORS_H
#define WD_TESTS_KERNELS_EXECUTORS_H

#include <stdio.h>
#include <stdlib.h>

#include "core/parallel.h"
#include "dev/cpu/cpu.h"

/* Also more threads than the machine has, since divisions for many threads must work everywhere.
 * oneDNN (2.6) divides sums among 12 threads that it does not divide among 13. Light kernels use
 * the first two numbers. */
static const int executor_threads[] = {1, 3, 2, 12};
enum { WAYS_LIGHT = 2, WAYS_ALL = sizeof executor_threads / sizeof *executor_threads };

/* The maximal error of an executor's cosine and sine; here they are those of the C library. */
#define EXECUTOR_TURN_ERROR 0

/* Whether libraries of a GPU compute products: see product_tolerance of kernels/matrix_check.h. */
enum { EXECUTOR_IS_GPU = 0 };

/* Long tests use every SLOW_STEP-th of their sizes if kernels are slow. */
enum { SLOW_STEP = 1 };

/* Memory of an array. */
static inline void *executor_memory(size_t bytes)
{
    return malloc(bytes);
}
static inline void executor_memory_free(void *block)
{
    free(block);
}

/* The number of executors. Tests that use only one take the last. Each executor has several ways
 * (numbers of threads), which must give equal bits. */
static inline int executors(void)
{
    int count = 0;
    for (int isa = (int)wd__cpu_isa_best(WD_CPU_ISA_COUNT - 1); isa >= 0; isa--)
        count += wd__cpu_isa_is_built((wd_cpu_isa)isa);
    return count;
}
static inline int executor_ways(int executor, int ways)
{
    return (void)executor, ways;
}

/* Prints how the cases' shapes were computed, where an executor chooses. */
static inline void executor_report(void) {}

/* Whether an executor is a way of its own to run the operation. */
static inline bool executor_runs(int executor, wd_op op)
{
    return (void)executor, (void)op, true;
}

/* The instruction set of an executor: each one that is built. */
static inline wd_cpu_isa executor_isa(int executor)
{
    int isa = 0;
    while (!wd__cpu_isa_is_built((wd_cpu_isa)isa) || executor-- > 0) isa++;
    return (wd_cpu_isa)isa;
}

/* Fills the table, and writes the name of the executor into `name`. */
static inline void executor_use(wd_cpu_table *table, char name[64], int executor, int way)
{
    snprintf(name, 64, "%s, %d threads", wd__cpu_isa_name(executor_isa(executor)),
             executor_threads[way]);
    wd_parallel_set_threads(executor_threads[way]);
    wd__cpu_table_fill(table, executor_isa(executor));
}

/* Whether all executors give the same bits for an operation, and not only all ways of one executor.
 */
static inline bool executors_agree(wd_op op, const void *args)
{
    return (void)op, (void)args, true;
}

#endif
