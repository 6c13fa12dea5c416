/* The CPU's kernel tests on the kernels of cuda/kernels, run on the host by standin/blocks.h: the
 * generic kernels of the processor with one thread, then ours with threads in three orders, all of
 * which must give the same bits. See kernels/executors.h.
 */
#ifndef WD_TESTS_STANDIN_EXECUTORS_H
#define WD_TESTS_STANDIN_EXECUTORS_H

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/parallel.h"
#include "dev/cpu/cpu.h"
#include "dev/sum_order.h"
#include "sanitized.h"
#include "standin/blocks.h"

/* How far cosine and sine of an executor lie from those of the C library: C++ has versions for fp32
 * that differ in the last place of values up to 1. */
#define EXECUTOR_TURN_ERROR 6e-8

enum { EXECUTOR_IS_GPU = 0 }; /* our kernels add as the processor's do */

/* Sanitizers see the same accesses in every order, so one order is enough for them. */
enum { WAYS_LIGHT = WD_TEST_SANITIZED ? 1 : WD_STANDIN_ORDERS, WAYS_ALL = WAYS_LIGHT };
enum { SLOW_STEP = 4 };
enum { EXECUTOR_GENERIC, EXECUTOR_STANDIN, EXECUTORS };

static wd_standin *executor_standins[WAYS_ALL]; /* kept for the whole test */
static wd_standin *executor_standin;            /* the one of them that is in use */

/* Memory of an array. */
static inline void *executor_memory(size_t bytes)
{
    return malloc(bytes);
}
static inline void executor_memory_free(void *block)
{
    free(block);
}

static inline int executors(void)
{
    return EXECUTORS;
}
static inline int executor_ways(int executor, int ways)
{
    return executor == EXECUTOR_GENERIC ? 1 : ways;
}

/* Prints how the cases' shapes were computed, where an executor chooses. */
static inline void executor_report(void) {}

/* Whether an executor is a way of its own to run the operation. */
static inline bool executor_runs(int executor, wd_op op)
{
    return (void)executor, (void)op, true;
}

static inline size_t executor_workspace(wd_op op, const void *args)
{
    return wd__cuda_kernels_take(op, args) ? wd__cuda_kernels_workspace(op, args) : 0;
}

static inline void executor_run(wd_op op, const void *args, void *workspace)
{
    WD_REQUIRE(wd__cuda_kernels_take(op, args), "%s is not for our kernels", wd_op_name(op));
    wd__cuda_kernels_run(op, args, workspace, wd_standin_run, executor_standin);
}

/* Our kernels as entries of the processor's table. */
#define X(op, name)                                                                                \
    static inline void standin_##name(const void *args, wd_cpu_context *context)                   \
    {                                                                                              \
        executor_run(WD_OP_##op, args, context->workspace);                                        \
    }                                                                                              \
    static inline size_t standin_##name##_workspace(const void *args)                              \
    {                                                                                              \
        return executor_workspace(WD_OP_##op, args);                                               \
    }
WD_OP_MAP(X)
#undef X

static inline void executor_use(wd_cpu_table *table, char name[64], int executor, int way)
{
    static const char *const orders[WD_STANDIN_ORDERS] = {"ascending", "descending", "shuffled"};
    if (executor == EXECUTOR_GENERIC) {
        snprintf(name, 64, "generic CPU kernels");
        wd_parallel_set_threads(1);
        wd__cpu_table_fill(table, WD_CPU_ISA_generic);
        return;
    }
    snprintf(name, 64, "CUDA kernels, threads %s", orders[way]);
    if (!executor_standins[way])
        executor_standins[way] = wd_standin_open((wd_standin_order)way, 42);
    executor_standin = executor_standins[way];
    *table = (wd_cpu_table){.entry = {
#define X(op, name) [WD_OP_##op] = {standin_##name, standin_##name##_workspace},
                                WD_OP_MAP(X)
#undef X
                            }};
}

/* Rows that are wider than ROW_MAX the processor sums in double. Of cos, sin and exp of
 * timestep_embed the host's library and CUDA's have versions of their own. */
static inline bool executors_agree(wd_op op, const void *args)
{
    switch (op) {
    case WD_OP_LAYERNORM:
        return ((const wd_layernorm_args *)args)->width <= ROW_MAX;
    case WD_OP_LAYERNORM_BACKWARD:
        return ((const wd_layernorm_backward_args *)args)->width <= ROW_MAX;
    case WD_OP_RMSNORM:
        return ((const wd_rmsnorm_args *)args)->width <= ROW_MAX;
    case WD_OP_RMSNORM_BACKWARD:
        return ((const wd_rmsnorm_backward_args *)args)->width <= ROW_MAX;
    case WD_OP_CHANNELNORM:
        return ((const wd_channelnorm_args *)args)->width <= ROW_MAX;
    case WD_OP_TIMESTEP_EMBED:
        return false;
    default:
        return true;
    }
}

#endif
