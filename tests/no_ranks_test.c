/* Where ranks cannot be started, who asks for them is told why. */
#include "program.h"

#define RUN                                                                                        \
    "train", "--teacher_path", WD_SOURCE_DIR "/models/wan-tiny", "--data_path",                    \
        WD_SOURCE_DIR "/models/wan-tiny/prompts.txt", "--output_dir", wd_test_path("never")

static wd_program program;

#ifdef WD_HAVE_MPI

static void ranks_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, RUN, "--nproc_per_node", "2");
    wd_program_refused(&program, WD_NOT_FOUND, "mpirun is not there");
}

#else

/* Refused, and told first what works in this build: the same without ranks. */
static void told(const char *how)
{
    char expected[64];
    snprintf(expected, sizeof expected, "Run it once, %s:\n  wandistiller train ", how);
    wd_program_refused(&program, WD_UNSUPPORTED, "built without MPI, so it has no ranks. Run");
    if (!strstr(program.err, expected) || strstr(program.err, "--distributed"))
        fail_msg("expected \"%s...\", without --distributed, found: %s", expected, program.err);
}

static void ranks_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, RUN, "--nproc_per_node", "2");
    told("alone");
    wd_program_run(&program, RUN, "--distributed");
    told("alone");
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    wd_program_run(&program, RUN);
    told("and not by mpirun");
    wd_program_run(&program, RUN, "--distributed");
    told("and not by mpirun");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("RANK", "0", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    wd_program_run(&program, RUN, "--nproc_per_node", "2");
    told("and not by torchrun");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
