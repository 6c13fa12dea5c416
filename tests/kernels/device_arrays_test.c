/* Tests that kernel tests on a GPU notice a launch that writes beside an array, whose result
 * depends on what an output held before, or that is given memory of the host
 * (kernels/device_arrays.h). On the stand-in, with launches that are made faulty on purpose. */
#include "testing.h"

#include <sys/wait.h>
#include <unistd.h>

#include "kernels/device_executors.h"

enum { COUNT = 1000 };

typedef enum fault { RIGHT, BEHIND, BEFORE, READS_OUTPUT, ON_HOST } fault;

static fault wanted;

void __real_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);
void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);

static void fill_at(wd_queue *queue, void *to)
{
    const wd_fill_args one = {.to = to, .type = WD_F32, .count = 1, .value = 7};
    __real_wd_queue_launch(queue, WD_OP_FILL, &one, sizeof one);
}

/* A sum of two arrays, and what the wanted fault adds to it. */
void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes)
{
    __real_wd_queue_launch(queue, op, args, bytes);
    if (op != WD_OP_COMBINE) return;
    const wd_combine_args *a = args;
    wd_combine_args more = {.y = a->y, .x = {a->y}, .factor = {2}, .terms = 1, .count = 1};
    if (wanted == BEHIND) fill_at(queue, a->y + COUNT);
    if (wanted == BEFORE) fill_at(queue, a->y - 1);
    if (wanted == READS_OUTPUT) /* whose last element it was not to write */
        more.y += COUNT - 1, more.x[0] += COUNT - 1;
    if (wanted == READS_OUTPUT) __real_wd_queue_launch(queue, op, &more, sizeof more);
}

/* The exit status of a process that runs a launch with this fault. */
static int status_with(fault f)
{
    const pid_t child = fork();
    if (child == 0) {
        wanted = f;
        char name[64];
        float *x = executor_memory(COUNT * sizeof *x), *y = executor_memory(COUNT * sizeof *y);
        for (int i = 0; i < COUNT; i++) x[i] = (float)i, y[i] = 1;
        static float on_host[COUNT];
        const wd_combine_args args = {.y = y,
                                      .x = {x, wanted == ON_HOST ? on_host : x},
                                      .factor = {1, 1},
                                      .terms = 2,
                                      .count = COUNT - 1};
        wd_cpu_table table;
        setenv("WD_TEST_FIRST_CASE", "2", 1); /* so that no failure begins this program anew */
        kernel_test_begin(NULL);
        kernel_case_begin(WD_OP_COMBINE);
        executor_use(&table, name, EXECUTOR_LIBRARIES, 0);
        table.entry[WD_OP_COMBINE].kernel(&args, NULL);
        if (kernel_test_end(NULL)) _exit(EXIT_FAILURE);
        for (int i = 0; i < COUNT - 1; i++)
            if (y[i] != 2 * (float)i || x[i] != (float)i) _exit(2);
        _exit(y[COUNT - 1] == 1 ? 0 : 3);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void faults_are_noticed(void **state)
{
    (void)state;
    assert_int_equal(status_with(RIGHT), 0);
    assert_int_equal(status_with(BEHIND), EXIT_FAILURE);
    assert_int_equal(status_with(BEFORE), EXIT_FAILURE);
    assert_int_equal(status_with(READS_OUTPUT), EXIT_FAILURE);
    if (HOST_ADDRESSES_ARE_FOUND) assert_int_equal(status_with(ON_HOST), EXIT_FAILURE);
}

/* Under a sanitizer nothing lies beside an array, which the stand-in then refuses to write. */
static void a_sanitizer_sees_bare_arrays(void **state)
{
    (void)state;
    setenv("WD_TEST_SANITIZER", "initcheck", 1);
    assert_int_equal(array_guard(), 0);
    assert_int_equal(status_with(RIGHT), 0);
    setenv("WD_TEST_SANITIZER", "memcheck", 1);
    assert_int_equal(status_with(RIGHT), 0);
    unsetenv("WD_TEST_SANITIZER");
}

/* What is added to is given to a launch once, with what it held. */
static void what_is_read_is_no_output(void **state)
{
    (void)state;
    size_t field[FIELDS_MAX];
    wd_matmul_args product = {.beta = 0};
    assert_int_equal(only_written(field, WD_OP_MATMUL, &product), 1);
    assert_int_equal(field[0], offsetof(wd_matmul_args, c));
    product.beta = 1;
    assert_int_equal(only_written(field, WD_OP_MATMUL, &product), 0);
    assert_int_equal(only_written(field, WD_OP_STEP_SAMPLES, &(wd_step_samples_args){0}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_noticed),
        cmocka_unit_test(a_sanitizer_sees_bare_arrays),
        cmocka_unit_test(what_is_read_is_no_output),
    };
    return cmocka_run_group_tests_name("arrays of a GPU", tests, NULL, NULL);
}
