/* Functions of the tests of matrix products, attention and convolution, in addition to
 * kernels_check.h.
 *
 * These kernels use fused multiply-adds if the processor has them, so instruction sets may differ
 * in the last bits, and each is compared with the plain C version. On one instruction set a result
 * must have the same bits for any number of threads, and for any division of a launch into smaller
 * ones. */
#ifndef WD_TESTS_KERNELS_MATRIX_CHECK_H
#define WD_TESTS_KERNELS_MATRIX_CHECK_H

#include "kernels/kernels_check.h"

/* Of a product with sums of k products.
 *
 * The processor's kernels add up blocks of 256: measured up to 4e-7 of the row's largest.
 *
 * A GPU adds up fp32 products one after another: with rounding to nearest, whose errors are a
 * random walk of about 2^-24 sqrt(k) of the row's largest; measured in a model with normal numbers
 * and k up to 16,384: at most 0.8 of that.
 *
 * Its tensor cores add 16 bf16 products (8 before sm_90) at a time to the sum and cut the new sum
 * off, towards zero: errors of one sign, 2^-24 of the sum on average, so that they grow with k: at
 * most k/8 2^-24 of the largest sum on the way. Measured in models of sm_90 and sm_80, with k from
 * 257 to 16,384: at most 2.3e-9 k and 2.9e-9 k of the row's largest, 0.4 of k/8 2^-24.
 *
 * cuBLASLt's GELU of a bf16 result may round its argument to bf16, or take the GPU's own tanh, with
 * a relative error of 2^-11: each may be 1e-3 at results that are nearly 0. */
static inline tolerance product_tolerance(wd_dtype type, wd_dtype c_type, wd_act act, int64_t k,
                                          bool on_gpu)
{
    tolerance t = {3e-6, 1e-6};
    if (!on_gpu) return t;
    t.relative += type == WD_BF16 ? (double)k / 8 * 0x1p-24 : sqrt((double)k) * 0x1p-24;
    if (act != WD_ACT_NONE && c_type == WD_BF16) t.absolute += 1e-3;
    return t;
}

static inline void check_matrix(wd_op op, make_fn *make, const void *params, tolerance t)
{
    wd_cpu_table table;
    world expected, first, got;
    const world none = {0};
    if (!kernel_case_begin(op)) return;
    wd__cpu_table_reference(&table);
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
