/* Functions of the tests of matrix products, attention and convolution, in addition to
 * kernels_check.h.
 *
 * These kernels use fused multiply-adds if the processor has them, so instruction sets may differ
 * in the last bits, and each is compared with the plain C version. On one instruction set a result
 * must have the same bits for any number of threads, and for any division of a launch into smaller
 * ones. */
#ifndef WD_DEV_CPU_MATRIX_CHECK_H
#define WD_DEV_CPU_MATRIX_CHECK_H

#include "dev/cpu/kernels_check.h"

static inline void check_matrix(wd_op op, make_fn *make, const void *params, tolerance t)
{
    wd_cpu_table table;
    world expected, first, got;
    const world none = {0};
    if (!kernel_case_begin(op)) return;
    wd_cpu_table_reference(&table);
    run_case(&expected, &table, op, make, params);
    for (int executor = 0; executor < executors(); executor++) {
        first = none;
        for (int n = 0; n < ways_of(executor, op, WAYS_ALL); n++) {
            char name[64], what[128];
            executor_use(&table, name, executor, n);
            snprintf(what, sizeof what, "%s (%s)", wd_op_name(op), name);
            run_case(n ? &got : &first, &table, op, make, params);
            for (int i = 0; n && i < first.arrays; i++)
                require_same(&got.array[i], &first.array[i], what, i,
                             "differs from what ran first");
            if (!n) compare_world(&first, &expected, &none, what, t);
            if (n) free_world(&got);
        }
        free_world(&first);
    }
    free_world(&expected);
    kernel_case_end();
}

/* Restricts `args` to the rows or samples [begin, end). */
typedef void slice_fn(void *args, const void *params, int64_t begin, int64_t end);

/* Launches of [0, cuts[0]), [cuts[0], cuts[1]) ... must give the bits of one launch of all. */
static inline void check_slices(wd_op op, make_fn *make, slice_fn *slice, const int64_t *cuts,
                                int count, const void *params)
{
    if (!kernel_case_begin(op)) return;
    for (int executor = 0; executor < executors(); executor++) {
        wd_cpu_table table;
        world whole, sliced = {0};
        any_args args, part;
        char name[64], what[128], otherwise[64];
        if (!executor_runs(executor, op)) continue;
        executor_use(&table, name, executor, 0);
        run_case(&whole, &table, op, make, params);
        memset(&args, 0, sizeof args);
        make(&sliced, &args, params);
        for (int i = 0; i < count; i++) {
            executor_use(&table, name, executor, i % executor_ways(executor, WAYS_ALL));
            part = args;
            slice(&part, params, i ? cuts[i - 1] : 0, cuts[i]);
            run_kernel(&table, op, &part);
        }
        snprintf(what, sizeof what, "%s (%s)", wd_op_name(op), name);
        snprintf(otherwise, sizeof otherwise, "was launched in %d slices", count);
        for (int i = 0; i < whole.arrays; i++)
            require_same(&sliced.array[i], &whole.array[i], what, i, otherwise);
        free_world(&whole);
        free_world(&sliced);
    }
    kernel_case_end();
}

#endif
