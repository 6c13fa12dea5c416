/* Several ranks of the whole program, which are processes that mpirun has started, each on a GPU of
 * its own that the stand-in driver shows. They train the student of one rank, bit for bit, whether
 * gradients go by way of host memory or by NCCL, in the memory that was planned. */
#include "standin_runs.h"

#define RANKS_RUN(out)                                                                             \
    GPU_RUN(out), "--deterministic_reduce", "--teacher_device_strategy", "gpu",                    \
        "--profile_memory", "--log_level", "info"

static void a_student_of_one_rank(void **state)
{
    (void)state;
    wd_program_run(&program, RANKS_RUN(wd_test_path("one")), "--devices", ONE,
                   "--gradient_accumulation_steps", "2");
    wd_program_succeeded(&program);
}

static void two_ranks_give_it_by_host_memory(void **state)
{
    (void)state;
    const char *out = wd_test_path("host");
    wd_program_run(&program, RANKS_RUN(out), "--devices", TWO, "--nproc_per_node", "2", "--nccl",
                   "off");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "NCCL"));
    assert_as_planned("cuda:0");
    assert_same_weights(wd_test_path("one"), out);
}

static void two_ranks_give_it_by_nccl(void **state)
{
    (void)state;
    const char *out = wd_test_path("nccl");
    setenv("WD_STANDIN_NCCL", "1", 1);
    wd_program_run(&program, RANKS_RUN(out), "--devices", TWO, "--nproc_per_node", "2", "--nccl",
                   "on", "--shard_optimizer");
    unsetenv("WD_STANDIN_NCCL");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "gradients go from GPU to GPU, by NCCL"));
    assert_as_planned("cuda:0");
    assert_same_weights(wd_test_path("one"), out);
}

/* Bytes of the first GPU's memory that libraries take, by a plan of two ranks. */
static json_int_t planned_beside(const char *nccl)
{
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path",
                   wd_test_path("prompts.txt"), "--student_config", wd_test_path("student.json"),
                   "--cache_dir", wd_test_path("cache"), "--height", "32", "--width", "32",
                   "--num_threads", "1", "--devices", TWO, "--ranks", "2", "--nccl", nccl,
                   "--json");
    wd_program_succeeded(&program);
    json_t *plan = json_loads(program.out, 0, NULL);
    const json_t *gpu = json_array_get(json_object_get(plan, "devices"), 0);
    const json_int_t bytes = json_integer_value(json_object_get(gpu, "bytes_beside"));
    assert_true(bytes > 0);
    json_decref(plan);
    return bytes;
}

/* NCCL's stand-in takes 6 MiB, which the job before has measured. */
static void a_plan_counts_the_memory_of_nccl(void **state)
{
    (void)state;
    setenv("WD_STANDIN_NCCL", "1", 1);
    const json_int_t without = planned_beside("off"), with = planned_beside("on");
    assert_int_equal(with - without, 6 << 20);
    assert_null(strstr(program.err, "no memory for NCCL"));
    setenv("XDG_CACHE_HOME", wd_test_path("no-rates"), 1);
    assert_int_equal(planned_beside("on"), without);
    assert_non_null(strstr(program.err, "the plan has no memory for NCCL 2.28.9"));
    setenv("XDG_CACHE_HOME", wd_test_path("rates"), 1);
    unsetenv("WD_STANDIN_NCCL");
}

static void ranks_without_nccl_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, RANKS_RUN(wd_test_path("missing")), "--devices", TWO,
                   "--nproc_per_node", "2", "--nccl", "on");
    assert_int_equal(program.code, WD_UNSUPPORTED);
    assert_non_null(strstr(program.err, "--nccl on: rank 0: NCCL is missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_student_of_one_rank),
        cmocka_unit_test(two_ranks_give_it_by_host_memory),
        cmocka_unit_test(two_ranks_give_it_by_nccl),
        cmocka_unit_test(a_plan_counts_the_memory_of_nccl),
        cmocka_unit_test(ranks_without_nccl_are_refused),
    };
    setenv("WD_TEST_PROGRAM", WD_STANDIN_PROGRAM, 1);
    setenv("XDG_CACHE_HOME", wd_test_path("rates"), 1); /* what is measured, is measured here */
    return cmocka_run_group_tests(tests, prepare, NULL);
}
