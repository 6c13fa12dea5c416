/* Functions of the kernel tests, which compare every kernel, on every instruction set of the
 * machine and with several numbers of threads (dev/cpu/executors.h), with the plain C version on
 * the same inputs.
 *
 * A test defines a case by a function that makes the arguments in a `world`: a set of arrays whose
 * contents depend only on the case. It is called again for every run. Arrays made with out_array()
 * are compared within the case's tolerance; all others must not change. In addition all instruction
 * sets and numbers of threads must give the same bits. */
#ifndef WD_DEV_CPU_KERNELS_CHECK_H
#define WD_DEV_CPU_KERNELS_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/onednn.h"
#include "dev/cpu/parallel.h"
#include "dev/cpu/reference.h"

#ifndef WD_EXECUTORS
#define WD_EXECUTORS "dev/cpu/executors.h"
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
        wd_store(data, type, i, v);
    }
    w->array[w->arrays++] = (array){data, type, count, 1, false};
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
    wd_onednn_limit_isa(wd_cpu_isa_best(WD_CPU_ISA_COUNT - 1));
    size_t bytes = wd_cpu_workspace_bytes(table, op, args);
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

static inline void run_case(world *w, const wd_cpu_table *table, wd_op op, make_fn *make,
                            const void *params)
{
    any_args args;
    *w = (world){0};
    memset(&args, 0, sizeof args);
    make(w, &args, params);
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

static inline bool close_enough(double got, double expected, double scale, wd_dtype type,
                                tolerance t)
{
    if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got);
    if (isinf(expected) || isinf(got)) return expected == got;
    /* one more rounding to the narrow type may go in the other direction */
    double step = type == WD_BF16 ? 0x1p-7 : type == WD_F16 ? 0x1p-10 : 0;
    return fabs(got - expected) <=
           t.relative * scale + t.absolute + step * fmax(fabs(got), fabs(expected));
}

static inline void compare_array(const array *got, const array *expected, const char *what,
                                 int index, tolerance t)
{
    double scale = 0;
    for (int64_t i = 0; i < got->count; i++) {
        if (i % got->width == 0) {
            scale = 0;
            for (int64_t j = i; j < i + got->width && j < got->count; j++) {
                double v = fabs(wd_load(expected->data, got->type, j));
                if (isfinite(v) && v > scale) scale = v;
            }
        }
        double g = wd_load(got->data, got->type, i), e = wd_load(expected->data, got->type, i);
        if (close_enough(g, e, scale, got->type, t)) continue;
        fail_msg("%s: array %d (%s) element %lld of %lld, width %lld: %.9g, expected %.9g", what,
                 index, wd_dtype_file_name(got->type), (long long)i, (long long)got->count,
                 (long long)got->width, g, e);
    }
}

/* Compares bits, except for sign and payload of NaN, which depend on the order of operands. */
static inline bool same_bits(const array *a, const array *b)
{
    size_t size = wd_dtype_bytes(a->type);
    if (!memcmp(a->data, b->data, (size_t)a->count * size)) return true;
    for (int64_t i = 0; i < a->count; i++) {
        size_t at = (size_t)i * size;
        if (!memcmp((char *)a->data + at, (char *)b->data + at, size)) continue;
        if (!isnan(wd_load(a->data, a->type, i)) || !isnan(wd_load(b->data, b->type, i)))
            return false;
    }
    return true;
}

/* Checks one case: see the top of this file. */
static inline void check_kernel(wd_op op, make_fn *make, const void *params, tolerance t)
{
    wd_cpu_table table;
    world expected, first = {0}, got;
    wd_cpu_table_reference(&table);
    run_case(&expected, &table, op, make, params);
    for (int executor = 0; executor < executors(); executor++)
        for (int way = 0; way < executor_ways(executor, WAYS_LIGHT); way++) {
            char name[64], what[128];
            executor_use(&table, name, executor, way);
            snprintf(what, sizeof what, "%s (%s)", wd_op_name(op), name);
            run_case(&got, &table, op, make, params);
            if (way == 0 && !got.agreed) free_world(&first); /* another executor, other bits */
            for (int i = 0; i < got.arrays; i++) {
                if (got.array[i].out)
                    compare_array(&got.array[i], &expected.array[i], what, i, t);
                else if (!same_bits(&got.array[i], &expected.array[i]))
                    fail_msg("%s: input %d was changed", what, i);
                if (first.arrays && !same_bits(&got.array[i], &first.array[i]))
                    fail_msg("%s: array %d has other bits than what ran first", what, i);
            }
            if (first.arrays)
                free_world(&got);
            else
                first = got;
        }
    free_world(&first);
    free_world(&expected);
}

/* Checks that launches of parts give the bits of one launch of all: `make_part(n)` for n < parts
 * must make the same world as make(), and arguments that cover the n-th part of it. */
typedef void make_part_fn(world *w, void *args, const void *params, int64_t part);

static inline void check_parts(wd_op op, make_fn *make, make_part_fn *make_part, int64_t parts,
                               const void *params)
{
    wd_cpu_table table;
    world whole, all = {0};
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
    for (int i = 0; i < whole.arrays; i++)
        if (!same_bits(&whole.array[i], &all.array[i]))
            fail_msg("%s: array %d has other bits when launched in %lld parts", wd_op_name(op), i,
                     (long long)parts);
    free_world(&whole);
    free_world(&all);
}

#endif
