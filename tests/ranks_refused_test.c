/* What cannot work is refused by all ranks in one report, with what to run instead. */
#include "ranks.h"

static void who_was_started_otherwise_is_named(void **state)
{
    (void)state;
    run_ranks(MPIRUN("1", RUN(wd_test_path("never")), "--distributed", ":", "-n", "1", WD_PROGRAM,
                     RUN(wd_test_path("never")), "--distributed", "--target_reuse", "3"));
    refused(WD_MISMATCH, "rank 0 and rank 1 differ in target_reuse: 0 and 3");
    static const char deeper[] = "{\"depth\": 2}";
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("deeper.json"), deeper, sizeof deeper - 1, &err), &err);
    run_ranks(MPIRUN("1", RUN(wd_test_path("never")), "--distributed", ":", "-n", "1", WD_PROGRAM,
                     RUN(wd_test_path("never")), "--distributed", "--student_config",
                     wd_test_path("deeper.json")));
    refused(WD_MISMATCH, "rank 0 and rank 1 differ in student's num_layers: 1 and 2");
    static const char fewer[] = "red apple\ngreen pear\nblue plum\n";
    wd_test_ok(wd_file_write(wd_test_path("fewer.txt"), fewer, sizeof fewer - 1, &err), &err);
    run_ranks(MPIRUN("1", RUN(wd_test_path("never")), "--distributed", ":", "-n", "1", WD_PROGRAM,
                     RUN(wd_test_path("never")), "--distributed", "--data_path",
                     wd_test_path("fewer.txt")));
    refused(WD_MISMATCH, "rank 0 and rank 1 differ in the prompts: ");

    run_ranks(MPIRUN("1", RUN(wd_test_path("never")), "--distributed", "--init_student",
                     WD_SOURCE_DIR "/models/wan-tiny/transformer", ":", "-n", "1", WD_PROGRAM,
                     RUN(wd_test_path("never")), "--distributed", "--init_student",
                     WD_SOURCE_DIR "/models/wan-tiny/transformer_2"));
    refused(WD_MISMATCH, "rank 0 and rank 1 differ in the weights that the student starts from: ");
    assert_false(wd_path_exists(wd_test_path("never/run.json")));
}

static void a_failure_is_everybodys(void **state)
{
    (void)state;
    wd_program_run(&program, RUN(wd_test_path("never")), "--nproc_per_node", "2", "--teacher_path",
                   "no-such-teacher");
    refused(WD_NOT_FOUND, "no-such-teacher");
    wd_program_run(&program, RUN(wd_test_path("never")), "--nproc_per_node", "2", "--devices",
                   "sim:3x64MiB");
    refused(WD_INVALID_ARGUMENT, "2 ranks of a host can share equally, found 3");
    assert_false(wd_path_exists(wd_test_path("never/run.json")));
}

/* Every rank finds it out, and one report says it, with the memory of all. */
static void a_plan_that_does_not_fit_is_one_report(void **state)
{
    (void)state;
    run_ranks(MPIRUN("3", RUN(wd_test_path("never")), "--distributed", "--host_memory", "10MB"));
    refused(WD_DOES_NOT_FIT, "the run does not fit");
    assert_int_equal(count(program.err, "wandistiller: [Rank "), 1 + 3);
    assert_int_equal(count(program.err, ", host "), 1);
    assert_int_equal(count(program.err, "cpu: allocated"), 3);
    assert_int_equal(count(program.err, "what would fit, fastest first"), 1);
    assert_false(wd_path_exists(wd_test_path("never/run.json")));
}

/* Whatever is wrong before there is a job: an option that there is not, a value, what was not asked
 * for. Of one rank alone as well. */
static void a_bad_command_line_is_one_report(void **state)
{
    (void)state;
    static const char *const more[][2] = {{"--distributed", "--no_such_option"},
                                          {"--distributed", "--lr=x"},
                                          {"--distributed", "--height=40"},
                                          {"--distributed", "--nproc_per_node=2"},
                                          {"--batch_size=2", "--num_epochs=1"}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        run_ranks(MPIRUN("3", RUN(wd_test_path("never")), more[i][0], more[i][1]));
        refused(WD_INVALID_ARGUMENT, "wandistiller: [Rank ");
        assert_int_equal(count(program.err, ", host "), 1);
        assert_int_equal(count(program.err, "host memory: reserved"), 3);
    }
    run_ranks(MPIRUN("2", "train", "--distributed", "--teacher_path", teacher, "--data_path",
                     wd_test_path("prompts.txt"), ":", "-n", "1", WD_PROGRAM, "train",
                     "--no_such_option"));
    refused(WD_INVALID_ARGUMENT, "wandistiller: [Rank 2, host ");
    assert_int_equal(count(program.err, "train has no option --no_such_option"), 1);
    assert_false(wd_path_exists(wd_test_path("never")));
}

static void ranks_must_be_asked_for(void **state)
{
    (void)state;
    run_ranks(MPIRUN("2", RUN(wd_test_path("never"))));
    refused(WD_INVALID_ARGUMENT, "mpirun -n 2 wandistiller train");
    run_ranks(MPIRUN("2", RUN(wd_test_path("never")), "--nproc_per_node", "3"));
    refused(WD_INVALID_ARGUMENT, "expected 3 ranks on this machine, found 2");
    assert_false(wd_path_exists(wd_test_path("never")));
}

static void launchers_that_cannot_are_told_what_to_run(void **state)
{
    (void)state;
    wd_program_run(&program, RUN(wd_test_path("never")), "--distributed");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "nobody has started ranks");
    setenv("RANK", "0", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    wd_program_run(&program, RUN(wd_test_path("never")), "--local_rank=0");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "torchrun has started");
    setenv("RANK", "1", 1); /* the first says it for all */
    wd_program_run(&program, RUN(wd_test_path("never")));
    refused(WD_INVALID_ARGUMENT, "");
    assert_string_equal(program.err, "");
    setenv("RANK", "0", 1);
    wd_program_run(&program, RUN(wd_test_path("never")));
    refused(WD_INVALID_ARGUMENT, "mpirun -n 2 --bind-to none wandistiller train --teacher_path");
    unsetenv("RANK");
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    wd_program_run(&program, RUN(wd_test_path("never")), "--distributed");
    wd_program_refused(&program, WD_UNSUPPORTED, "srun has started 2");
    unsetenv("SLURM_STEP_ID");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_started_otherwise_is_named),
        cmocka_unit_test(a_failure_is_everybodys),
        cmocka_unit_test(a_plan_that_does_not_fit_is_one_report),
        cmocka_unit_test(a_bad_command_line_is_one_report),
        cmocka_unit_test(ranks_must_be_asked_for),
        cmocka_unit_test(launchers_that_cannot_are_told_what_to_run),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
