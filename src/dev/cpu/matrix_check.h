/* What the tests of matrix products, attention and convolution share, on top of kernels_check.h.
 *
 * These kernels use fused multiply-adds where the processor has them, so instruction sets may
 * differ in the last bits: each is compared with the plain C version. On one instruction set a
 * result must have the same bits for any number of threads, and for any cut of a launch into
 * smaller ones.
 */
#ifndef WD_DEV_CPU_MATRIX_CHECK_H
#define WD_DEV_CPU_MATRIX_CHECK_H

#include "dev/cpu/kernels_check.h"

/* More threads than the machine has, too: cuts for many threads must work anywhere. oneDNN (2.6)
 * shares sums among 12 threads where it does not among 13. */
static const int matrix_threads[] = {1, 2, 5, 12};
enum { MATRIX_THREADS = sizeof matrix_threads / sizeof *matrix_threads };

static inline void check_matrix(wd_op op, make_fn *make, const void *params, tolerance t)
{
    wd_cpu_table table;
    world expected, first, got;
    wd_cpu_table_reference(&table);
    run_case(&expected, &table, op, make, params);
    for (int isa = 0; isa <= (int)wd_cpu_isa_best(); isa++) {
        wd_cpu_table_fill(&table, (wd_cpu_isa)isa);
        for (int n = 0; n < MATRIX_THREADS; n++) {
            char what[64];
            snprintf(what, sizeof what, "%s (%s, %d threads)", wd_op_name(op),
                     wd_cpu_isa_name((wd_cpu_isa)isa), matrix_threads[n]);
            wd_parallel_set_threads(matrix_threads[n]);
            run_case(n ? &got : &first, &table, op, make, params);
            for (int i = 0; i < first.arrays; i++) {
                if (n && !same_bits(&got.array[i], &first.array[i]))
                    fail_msg("%s: array %d has other bits than with one thread", what, i);
                if (!n && !first.array[i].out && !same_bits(&first.array[i], &expected.array[i]))
                    fail_msg("%s: input %d was changed", what, i);
                if (!n && first.array[i].out)
                    compare_array(&first.array[i], &expected.array[i], what, i, t);
            }
            if (n) free_world(&got);
        }
        free_world(&first);
    }
    free_world(&expected);
}

/* Narrows `args`, which cover everything, to the rows or samples [begin, end). */
typedef void slice_fn(void *args, const void *params, int64_t begin, int64_t end);

/* Launches of [0, cuts[0]), [cuts[0], cuts[1]) ... must give the bits of one launch of all. */
static inline void check_slices(wd_op op, make_fn *make, slice_fn *slice, const int64_t *cuts,
                                int count, const void *params)
{
    for (int isa = 0; isa <= (int)wd_cpu_isa_best(); isa++) {
        wd_cpu_table table;
        world whole, sliced = {0};
        any_args args, part;
        wd_cpu_table_fill(&table, (wd_cpu_isa)isa);
        wd_parallel_set_threads(2);
        run_case(&whole, &table, op, make, params);
        memset(&args, 0, sizeof args);
        make(&sliced, &args, params);
        for (int i = 0; i < count; i++) {
            wd_parallel_set_threads(matrix_threads[i % MATRIX_THREADS]);
            part = args;
            slice(&part, params, i ? cuts[i - 1] : 0, cuts[i]);
            run_kernel(&table, op, &part);
        }
        for (int i = 0; i < whole.arrays; i++)
            if (!same_bits(&whole.array[i], &sliced.array[i]))
                fail_msg("%s (%s): array %d has other bits when launched in %d slices",
                         wd_op_name(op), wd_cpu_isa_name((wd_cpu_isa)isa), i, count);
        free_world(&whole);
        free_world(&sliced);
    }
}

#endif
