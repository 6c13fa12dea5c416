/* Cases of the kernel tests: which one runs, and what failed in it.
 *
 * A case is one check of one operation. A failure ends neither its case nor the program: it is
 * printed with the case's number, operation and shapes, and the cmocka test in which the case runs
 * fails at its end (kernel_test). After a failure that no later launch could survive, such as an
 * illegal access on a GPU, the program begins anew behind the case (kernel_case_restart).
 *
 * WD_TEST_CASES=1 in the environment prints every case, also those that pass, with its largest
 * error.
 */
#ifndef WD_TESTS_KERNELS_KERNEL_CASE_H
#define WD_TESTS_KERNELS_KERNEL_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "dev/ops.h"

static struct {
    int number; /* of the case that runs, from 1 */
    int first;  /* cases before this one are left out: they ran before a restart */
    int failed; /* cases that failed in this program, also before a restart */
    int failed_in_test;
    bool goes_on;     /* a kernel_test runs, which a failed case does not end */
    bool has_failed;  /* the case that runs */
    char shapes[320]; /* of its launch; "": no launch was made yet */
    double error;     /* its largest error, in units of its tolerance */
    const char *what; /* the operation of the case that runs; "": none runs */
} kernel_case = {.what = ""};

/* ---- shapes ---- */

#define CASE_TEXT(...) snprintf(out, bytes, __VA_ARGS__)
#define CASE_INT(x) ((long long)(x))

static inline void matmul_text(char *out, size_t bytes, const wd_matmul_args *a)
{
    CASE_TEXT(
        "m %lld, n %lld, k %lld, batch %lld, %s%s x %s%s -> %s%s%s%s%s, strides %lld %lld %lld",
        CASE_INT(a->m), CASE_INT(a->n), CASE_INT(a->k), CASE_INT(a->batch),
        wd_dtype_file_name(a->a_type), a->transpose_a ? " transposed" : "",
        wd_dtype_file_name(a->b_type), a->transpose_b ? " transposed" : "",
        wd_dtype_file_name(a->c_type), a->bias ? ", bias " : "",
        a->bias ? wd_dtype_file_name(a->bias_type) : "", a->act ? ", GELU" : "",
        a->beta != 0 ? ", added" : "", CASE_INT(a->lda), CASE_INT(a->ldb), CASE_INT(a->ldc));
}

static inline void conv_text(char *out, size_t bytes, const wd_conv_args *a)
{
    CASE_TEXT("%s, weights %s, samples %lld, in %lldx%lldx%lldx%lld, out %lldx%lldx%lldx%lld, "
              "kernel %lldx%lldx%lld, taps %lld to %lld, stride %lld %lld %lld%s",
              wd_dtype_file_name(a->type), wd_dtype_file_name(a->w_type), CASE_INT(a->samples),
              CASE_INT(a->in[0]), CASE_INT(a->in[1]), CASE_INT(a->in[2]), CASE_INT(a->ci),
              CASE_INT(a->out[0]), CASE_INT(a->out[1]), CASE_INT(a->out[2]), CASE_INT(a->co),
              CASE_INT(a->kernel[0]), CASE_INT(a->kernel[1]), CASE_INT(a->kernel[2]),
              CASE_INT(a->tap0), CASE_INT(a->tap1), CASE_INT(a->stride[0]), CASE_INT(a->stride[1]),
              CASE_INT(a->stride[2]), a->bias ? ", bias" : "");
}

/* The members that forward and backward pass of attention have in common. */
#define ATTENTION_TEXT(a)                                                                          \
    CASE_TEXT("%s, samples %lld, heads %lld x %lld, queries %lld, keys %lld, the last one stands " \
              "for %lld, strides %lld %lld %lld",                                                  \
              wd_dtype_file_name((a)->type), CASE_INT((a)->samples), CASE_INT((a)->heads),         \
              CASE_INT((a)->head_dim), CASE_INT((a)->q_tokens), CASE_INT((a)->kv_tokens),          \
              CASE_INT((a)->last_key_repeat ? (a)->last_key_repeat : 1), CASE_INT((a)->q_stride),  \
              CASE_INT((a)->kv_stride), CASE_INT((a)->o_stride))

/* Writes the shapes and dtypes of a product, attention or convolution, "m 28, n 65, k 31, ...".
 * False: the operation is another one, and nothing is written. */
static inline bool kernel_case_text(char *out, size_t bytes, wd_op op, const void *args)
{
    switch (op) {
    case WD_OP_MATMUL:
        matmul_text(out, bytes, args);
        return true;
    case WD_OP_ATTENTION:
        ATTENTION_TEXT((const wd_attention_args *)args);
        return true;
    case WD_OP_ATTENTION_BACKWARD:
        ATTENTION_TEXT((const wd_attention_backward_args *)args);
        return true;
    case WD_OP_CONV:
        conv_text(out, bytes, args);
        return true;
    default:
        return false;
    }
}

#undef CASE_TEXT
#undef CASE_INT
#undef ATTENTION_TEXT

/* ---- cases ---- */

static inline int kernel_case_number_in(const char *variable)
{
    const char *said = getenv(variable);
    return said ? atoi(said) : 0;
}

/* Begins the next case. False: it is one that ran before a restart, so leave it out. */
static inline bool kernel_case_begin(wd_op op)
{
    if (!kernel_case.number) {
        kernel_case.first = kernel_case_number_in("WD_TEST_FIRST_CASE");
        kernel_case.failed = kernel_case_number_in("WD_TEST_FAILED_CASES");
    }
    kernel_case.number++;
    kernel_case.has_failed = false;
    kernel_case.shapes[0] = 0;
    kernel_case.error = 0;
    kernel_case.what = wd_op_name(op);
    return kernel_case.number >= kernel_case.first;
}

/* Counts and prints a failure of the case that runs. Where no kernel_test runs it ends the test. */
__attribute__((format(printf, 1, 2))) static inline void kernel_case_fail(const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!kernel_case.goes_on) fail_msg("%s: %s", kernel_case.shapes, text);
    if (!kernel_case.has_failed) {
        kernel_case.has_failed = true;
        kernel_case.failed++;
        kernel_case.failed_in_test++;
        printf("case %d failed: %s: %s\n", kernel_case.number, kernel_case.what,
               kernel_case.shapes);
    }
    printf("    %s\n", text);
    fflush(stdout);
}

static inline void kernel_case_end(void)
{
    if (!kernel_case.has_failed && kernel_case_number_in("WD_TEST_CASES"))
        printf("case %d: %s: %s: largest error %.2g of its tolerance\n", kernel_case.number,
               kernel_case.what, kernel_case.shapes, kernel_case.error);
    kernel_case.what = "";
}

/* Runs the program once more, from the case behind this one, since what failed prevents every later
 * launch of this process. Ends the program where the last start came no further. */
static inline void kernel_case_restart(void)
{
    char next[16], failed[16];
    char program[] = "/proc/self/exe";
    char *const arguments[] = {program, NULL};
    if (kernel_case.number >= kernel_case.first && kernel_case.what[0]) {
        snprintf(next, sizeof next, "%d", kernel_case.number + 1);
        snprintf(failed, sizeof failed, "%d", kernel_case.failed);
        setenv("WD_TEST_FIRST_CASE", next, 1);
        setenv("WD_TEST_FAILED_CASES", failed, 1);
        printf("the program begins anew at case %s\n", next);
        fflush(stdout);
        execv(program, arguments);
    }
    printf("the program cannot go on\n");
    fflush(stdout);
    exit(EXIT_FAILURE);
}

/* ---- tests of cmocka ---- */

static inline int kernel_test_begin(void **state)
{
    (void)state;
    kernel_case.goes_on = true;
    kernel_case.failed_in_test = 0;
    return 0;
}

/* Fails the cmocka test whose cases have failed. */
static inline int kernel_test_end(void **state)
{
    (void)state;
    kernel_case.goes_on = false;
    if (kernel_case.failed_in_test)
        printf("%d cases of this test failed\n", kernel_case.failed_in_test);
    return kernel_case.failed_in_test ? -1 : 0;
}

/* A test whose cases may fail one by one. */
#define kernel_test(function)                                                                      \
    cmocka_unit_test_setup_teardown(function, kernel_test_begin, kernel_test_end)

/* Says how many cases ran; fails where one failed before a restart. */
static inline int kernel_cases_report(int failed_tests)
{
    printf("%d cases, %d failed\n", kernel_case.number, kernel_case.failed);
    return failed_tests || kernel_case.failed;
}

#endif
