/* Functions of the kernel tests, which compare every kernel, on every instruction set of the
 * machine and with several numbers of threads (kernels/executors.h), with the plain C version on
 * the same inputs.
 *
 * A test defines a case by a function that makes the arguments in a `world`: a set of arrays whose
 * contents depend only on the case. It is called again for every run. Arrays made with out_array()
 * are compared within the case's tolerance; all others must not change. In addition all instruction
 * sets and numbers of threads must give the same bits. */
#ifndef WD_TESTS_KERNELS_KERNELS_CHECK_H
#define WD_TESTS_KERNELS_KERNELS_CHECK_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "core/parallel.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/onednn.h"
#include "dev/cpu/reference.h"
#include "kernels/kernel_case.h"

#ifndef WD_EXECUTORS
#define WD_EXECUTORS "kernels/executors.h"
#endif
#include WD_EXECUTORS

/* How an array is filled. */
typedef enum filling {
    ORDINARY, /* standard normal */
    NASTY,    /* standard normal with some NaN, infinities, denormals, zeros and large values */
    POSITIVE  /* absolute values of standard normal numbers */
} filling;

typedef struct tolerance {
    double relative; /* relative to the largest finite value of the row */
    double absolute;
} tolerance;

typedef struct array {
    void *data;
    wd_dtype type;
    int64_t count, width; /* width: of a row, within which errors are relative */
    bool out;
    bool own; /* executors are compared with one another alone: plain C makes other last bits */
} array;

enum { ARRAYS_MAX = 12 };

typedef struct world {
    array array[ARRAYS_MAX];
    int arrays;
    bool agreed; /* all executors must give the same bits */
} world;

/* A case: fills `args` (large enough for every operation) and makes the arrays. */
typedef void make_fn(world *w, void *args, const void *params);

static inline float nasty_value(float normal, uint64_t i)
{
    switch (i % 37) {
    case 3:
        return 0.0f;
    case 7:
        return normal * 1e-40f; /* denormal */
    case 11:
        return normal * 1e15f; /* its square is still finite */
    case 17:
        return normal * 1e-20f;
    case 20:
        return -0.0f;
    case 30:
        return i % 5 == 0 ? NAN : normal * 20;
    case 33:
        return i % 7 == 0 ? INFINITY : normal * 90;
    case 35:
        return i % 7 == 0 ? -INFINITY : -1e5f;
    default:
        return normal;
    }
}

/* About standard normal: the sum of four uniform numbers, from a hash of the index (splitmix64). */
static inline float normal_value(uint64_t i)
{
    i *= 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    i = (i ^ i >> 27) * 0x94d049bb133111ebu;
    i ^= i >> 31;
    uint64_t sum = (i & 0xffff) + (i >> 16 & 0xffff) + (i >> 32 & 0xffff) + (i >> 48);
    return ((float)sum - 131070.0f) * (1 / 37837.0f);
}

static inline void *make_array(world *w, wd_dtype type, int64_t count, filling how)
{
    assert_true(w->arrays < ARRAYS_MAX);
    void *data = executor_memory((size_t)(count ? count : 1) * wd_dtype_bytes(type));
    for (int64_t i = 0; i < count; i++) {
        float v = normal_value((uint64_t)i + ((uint64_t)w->arrays << 40) + 1);
        if (how == POSITIVE) v = fabsf(v);
        if (how == NASTY) v = nasty_value(v, (uint64_t)(i + 5 * w->arrays));
        wd__store(data, type, i, v);
    }
    w->array[w->arrays++] = (array){data, type, count, 1, false, false};
    return data;
}

/* Makes an array that the kernel writes, and may read before. */
static inline void *out_array(world *w, wd_dtype type, int64_t count, int64_t width, filling how)
{
    void *data = make_array(w, type, count, how);
    w->array[w->arrays - 1].out = true;
    w->array[w->arrays - 1].width = width;
    return data;
}

static inline void free_world(world *w)
{
    for (int i = 0; i < w->arrays; i++) executor_memory_free(w->array[i].data);
    w->arrays = 0;
}

/* Runs a kernel with a workspace of exactly its size, full of NaN. oneDNN is limited to the
 * instructions that a device allows: on processors with AMX it would use these, and then the bits
 * of a row depend on the number of rows. */
static inline void run_kernel(const wd_cpu_table *table, wd_op op, const void *args)
{
    wd__onednn_limit_isa(wd__cpu_isa_best(WD_CPU_ISA_COUNT - 1));
    size_t bytes = wd__cpu_workspace_bytes(table, op, args);
    void *workspace = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (bytes) memset(workspace, 0xff, bytes);
    wd_cpu_context context = {workspace, bytes, WD_CPU_ISA_generic, table};
    table->entry[op].kernel(args, &context);
    free(workspace);
}

typedef union any_args {
    char room[512];
    double align;
} any_args;

/* Says which launch the case is about, by its shapes or, where these would say little, by its
 * arrays: "F32 [28, 65], BF16 [65]". */
static inline void describe_case(const world *w, wd_op op, const void *args)
{
    char *out = kernel_case.shapes;
    const size_t bytes = sizeof kernel_case.shapes;
    if (out[0] || kernel_case_text(out, bytes, op, args)) return;
    for (int i = 0; i < w->arrays; i++) {
        const array *a = &w->array[i];
        wd_append_text(out, bytes, strlen(out), "%s%s [%lld, %lld]", i ? ", " : "",
                       wd_dtype_file_name(a->type), (long long)(a->count / a->width),
                       (long long)a->width);
    }
}

/* In how many ways an executor runs the operation; 0: it is left to the others. */
static inline int ways_of(int executor, wd_op op, int ways)
{
    return executor_runs(executor, op) ? executor_ways(executor, ways) : 0;
}

static inline void run_case(world *w, const wd_cpu_table *table, wd_op op, make_fn *make,
                            const void *params)
{
    any_args args;
    *w = (world){0};
    memset(&args, 0, sizeof args);
    make(w, &args, params);
    describe_case(w, op, &args);
    w->agreed = executors_agree(op, &args);
    run_kernel(table, op, &args);
}

/* Fills the table with the last executor, for tests that use only one. */
static inline void use_last(wd_cpu_table *table)
{
    char name[64];
    int last = executors() - 1;
    executor_use(table, name, last, executor_ways(last, WAYS_LIGHT) - 1);
}

/* The error of a value in units of what is allowed: at most 1 where it is close enough. */
static inline double error_of(double got, double expected, double scale, wd_dtype type, tolerance t)
{
    if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got) ? 0 : INFINITY;
    if (isinf(expected) || isinf(got)) return expected == got ? 0 : INFINITY;
    /* one more rounding to the narrow type may go in the other direction */
    double step = type == WD_BF16 ? 0x1p-7 : type == WD_F16 ? 0x1p-10 : 0;
    double most = t.relative * scale + t.absolute + step * fmax(fabs(got), fabs(expected));
    if (type == WD_I8 || type == WD_U8 || type == WD_I16) most = 1;
    return got == expected ? 0 : fabs(got - expected) / most;
}

static inline double row_scale(const array *a, int64_t row)
{
    double scale = 0;
    for (int64_t i = row * a->width; i < (row + 1) * a->width && i < a->count; i++) {
        double v = fabs(wd__load(a->data, a->type, i));
        if (isfinite(v) && v > scale) scale = v;
    }
    return scale;
}

/* The elements of an array that are wrong. */
typedef struct wrong {
    int64_t count, first, worst; /* indices of the first one, and of that with the largest error */
    double error;                /* of the worst element, also of a right one: see error_of */
} wrong;

static inline void compare_array(const array *got, const array *expected, const char *what,
                                 int index, tolerance t)
{
    double scale = 0;
    wrong w = {0};
    for (int64_t i = 0; i < got->count; i++) {
        if (i % got->width == 0) scale = row_scale(expected, i / got->width);
        double error = error_of(wd__load(got->data, got->type, i),
                                wd__load(expected->data, got->type, i), scale, got->type, t);
        if (error > w.error) w.worst = i;
        if (error > w.error) w.error = error;
        if (error > 1 && !w.count++) w.first = i;
    }
    kernel_case.error = fmax(kernel_case.error, w.error);
    if (!w.count) return;
    kernel_case_fail(
        "%s: array %d (%s, width %lld): %lld of %lld elements are wrong; the first is "
        "[%lld] = %.9g, expected %.9g; the largest error, %.3g of the tolerance, has "
        "[%lld] = %.9g, expected %.9g",
        what, index, wd_dtype_file_name(got->type), (long long)got->width, (long long)w.count,
        (long long)got->count, (long long)w.first, wd__load(got->data, got->type, w.first),
        wd__load(expected->data, got->type, w.first), w.error, (long long)w.worst,
        wd__load(got->data, got->type, w.worst), wd__load(expected->data, got->type, w.worst));
}

/* Whether an element of both arrays has the same bits, except for sign and payload of NaN, which
 * depend on the order of operands. */
static inline bool same_element(const array *a, const array *b, int64_t i)
{
    size_t size = wd_dtype_bytes(a->type), at = (size_t)i * size;
    return !memcmp((char *)a->data + at, (char *)b->data + at, size) ||
           (isnan(wd__load(a->data, a->type, i)) && isnan(wd__load(b->data, b->type, i)));
}

static inline bool same_bits(const array *a, const array *b)
{
    int64_t i = 0;
    if (!memcmp(a->data, b->data, (size_t)a->count * wd_dtype_bytes(a->type))) return true;
    while (i < a->count && same_element(a, b, i)) i++;
    return i == a->count;
}

/* Fails the case where the arrays have other bits: "matmul (AVX2): array 1 was changed". */
static inline void require_same(const array *a, const array *b, const char *what, int index,
                                const char *otherwise)
{
    wrong w = {0};
    if (same_bits(a, b)) return;
    for (int64_t i = 0; i < a->count; i++)
        if (!same_element(a, b, i) && !w.count++) w.first = i;
    kernel_case_fail("%s: array %d %s: %lld of %lld elements have other bits, the first is [%lld] "
                     "= %.9g, expected %.9g",
                     what, index, otherwise, (long long)w.count, (long long)a->count,
                     (long long)w.first, wd__load(a->data, a->type, w.first),
                     wd__load(b->data, b->type, w.first));
}

/* Ends a program of kernel tests; returns its exit status. */
static inline int kernel_tests_end(int failed_tests)
{
    if (kernel_case_number_in("WD_TEST_CASES")) executor_report();
    return kernel_cases_report(failed_tests);
}

#define kernel_tests_run(tests) kernel_tests_end(cmocka_run_group_tests(tests, NULL, NULL))

/* Compares what one executor made with what was expected, and with what the first one made. */
static inline void compare_world(const world *got, const world *expected, const world *first,
                                 const char *what, tolerance t)
{
    for (int i = 0; i < got->arrays; i++) {
        if (got->array[i].out && !got->array[i].own)
            compare_array(&got->array[i], &expected->array[i], what, i, t);
        else if (!got->array[i].out)
            require_same(&got->array[i], &expected->array[i], what, i,
                         "is an input and was changed");
        if (first->arrays)
            require_same(&got->array[i], &first->array[i], what, i, "differs from what ran first");
    }
}

/* Checks one case: see the top of this file. */
static inline void check_kernel(wd_op op, make_fn *make, const void *params, tolerance t)
{
    wd_cpu_table table;
    world expected, first = {0}, got;
    if (!kernel_case_begin(op)) return;
    wd__cpu_table_reference(&table);
    run_case(&expected, &table, op, make, params);
    for (int executor = 0; executor < executors(); executor++)
        for (int way = 0; way < ways_of(executor, op, WAYS_LIGHT); way++) {
            char name[64], what[128];
            executor_use(&table, name, executor, way);
            snprintf(what, sizeof what, "%s (%s)", wd_op_name(op), name);
            run_case(&got, &table, op, make, params);
            if (way == 0 && !got.agreed) free_world(&first); /* another executor, other bits */
            compare_world(&got, &expected, &first, what, t);
            if (first.arrays)
                free_world(&got);
            else
                first = got;
        }
    free_world(&first);
    free_world(&expected);
    kernel_case_end();
}

/* Checks that launches of parts give the bits of one launch of all: `make_part(n)` for n < parts
 * must make the same world as make(), and arguments that cover the n-th part of it. On a GPU, to
 * and from which each launch brings all arrays, many parts are checked in every fourth case only.
 */
typedef void make_part_fn(world *w, void *args, const void *params, int64_t part);
enum { MANY_PARTS = 8 };

static inline void check_parts(wd_op op, make_fn *make, make_part_fn *make_part, int64_t parts,
                               const void *params)
{
    static int many;
    wd_cpu_table table;
    world whole, all = {0};
    char otherwise[64];
    if (EXECUTOR_IS_GPU && parts > MANY_PARTS && many++ % 4) return;
    if (!kernel_case_begin(op)) return;
    use_last(&table);
    run_case(&whole, &table, op, make, params);
    for (int64_t part = 0; part < parts; part++) {
        any_args args;
        world next = {0};
        memset(&args, 0, sizeof args);
        make_part(&next, &args, params, part);
        for (int i = 0; i < all.arrays; i++) /* continues with the results of the earlier parts */
            memcpy(next.array[i].data, all.array[i].data,
                   (size_t)all.array[i].count * wd_dtype_bytes(all.array[i].type));
        free_world(&all);
        run_kernel(&table, op, &args);
        all = next;
    }
    snprintf(otherwise, sizeof otherwise, "was launched in %lld parts", (long long)parts);
    for (int i = 0; i < whole.arrays; i++)
        require_same(&all.array[i], &whole.array[i], wd_op_name(op), i, otherwise);
    free_world(&whole);
    free_world(&all);
    kernel_case_end();
}

#endif
