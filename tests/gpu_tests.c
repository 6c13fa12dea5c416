/* All tests that run on a GPU, in one program, which a bundle for other machines can carry: the
 * library is in it once. Each test is a test program of its own, whose main was given another name.
 * Usage: gpu_tests TEST      runs one
 *        gpu_tests           lists them
 * A kernel test that begins anew after a fault (kernels/kernel_case.h) finds its name in
 * WD_TEST_NAME. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of cmake/tests.cmake: X(name) for each test. */
#define X(name) int wd_gpu_test_##name(void);
WD_GPU_TESTS(X)
#undef X

static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {
#define X(name) {#name, wd_gpu_test_##name},
    WD_GPU_TESTS(X)
#undef X
};

enum { TESTS = sizeof tests / sizeof *tests };

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : getenv("WD_TEST_NAME");
    for (int i = 0; i < TESTS; i++) {
        if (!name) puts(tests[i].name);
        if (!name || strcmp(name, tests[i].name)) continue;
        setenv("WD_TEST_NAME", name, 1);
        return tests[i].run();
    }
    if (name) fprintf(stderr, "gpu_tests: no test is called %s\n", name);
    return name ? 2 : EXIT_SUCCESS;
}
