/* Where ranks cannot be started, who asks for them is told why. */
#include "program.h"

static void ranks_are_refused(void **state)
{
    (void)state;
    static wd_program program;
    wd_program_run(&program, "train", "--teacher_path", WD_SOURCE_DIR "/models/wan-tiny",
                   "--data_path", WD_SOURCE_DIR "/models/wan-tiny/prompts.txt", "--output_dir",
                   wd_test_path("never"), "--nproc_per_node", "2");
#ifdef WD_HAVE_MPI
    wd_program_refused(&program, WD_NOT_FOUND, "mpirun is not there");
#else
    wd_program_refused(&program, WD_UNSUPPORTED, "built without MPI");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
