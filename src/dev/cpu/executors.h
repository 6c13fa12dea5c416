/* What the kernel tests run kernels on: every instruction set of this machine, with several numbers
 * of threads. A test that is built with another header of such functions as WD_EXECUTORS tests
 * other kernels with the same cases: cuda/standin/executors.h.
 */
#ifndef WD_DEV_CPU_EXECUTORS_H
#define WD_DEV_CPU_EXECUTORS_H

#include <stdio.h>
#include <stdlib.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/parallel.h"

/* More threads than the machine has, too: cuts for many threads must work anywhere. oneDNN (2.6)
 * shares sums among 12 threads where it does not among 13. Light kernels take the first two. */
static const int executor_threads[] = {1, 3, 2, 12};
enum { WAYS_LIGHT = 2, WAYS_ALL = sizeof executor_threads / sizeof *executor_threads };

/* How far cosine and sine of an executor lie from those of the C library: these are the same. */
#define EXECUTOR_TURN_ERROR 0

/* Tests that take long leave all but every SLOW_STEP-th of their sizes out where kernels are
 * slow. */
enum { SLOW_STEP = 1 };

/* Memory of an array. */
static inline void *executor_memory(size_t bytes) { return malloc(bytes); }
static inline void executor_memory_free(void *block) { free(block); }

/* Executors are numbered, the one that tests take if they take one only comes last; each has `ways`
 * ways of doing the same. */
static inline int executors(void)
{
    return (int)wd_cpu_isa_best() + 1;
}
static inline int executor_ways(int executor, int ways)
{
    return (void)executor, ways;
}

/* Fills the table, and says in `name` what runs. */
static inline void executor_use(wd_cpu_table *table, char name[64], int executor, int way)
{
    snprintf(name, 64, "%s, %d threads", wd_cpu_isa_name((wd_cpu_isa)executor),
             executor_threads[way]);
    wd_parallel_set_threads(executor_threads[way]);
    wd_cpu_table_fill(table, (wd_cpu_isa)executor);
}

/* Whether all executors give the same bits, and not only all ways of one; of operations for which
 * check_kernel is called. */
static inline bool executors_agree(wd_op op, const void *args)
{
    return (void)op, (void)args, true;
}

#endif
