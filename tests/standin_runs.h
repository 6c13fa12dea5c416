/* Runs of the whole program on GPUs that the stand-in driver shows
 * (tests/standin/program.c).
 */
#ifndef WD_TESTS_STANDIN_RUNS_H
#define WD_TESTS_STANDIN_RUNS_H

#include "runs.h"

static wd_program program;

#define GPU_RUN(out)                                                                               \
    SMALL_RUN(out), "--num_steps", "4", "--num_threads", "1", "--save_samples", "false"

/* Speeds are given, since a stand-in's are not worth measuring. */
#define ONE "cuda:0@link=25GB/s,compute=1TFLOP/s"
#define TWO "cuda:0,1@link=25GB/s,compute=1TFLOP/s"

/* Checks the line of --profile_memory about a GPU, "cuda:0: planned 12 MiB, measured 12 MiB". */
static inline void assert_as_planned(const char *gpu)
{
    char begin[32], planned[32], measured[32];
    snprintf(begin, sizeof begin, "%s: planned ", gpu);
    const char *line = strstr(program.err, begin);
    if (!line) fail_msg("nothing is said of %s: %s", gpu, program.err);
    assert_int_equal(sscanf(line + strlen(begin), "%31[^,], measured %31[^\n]", planned, measured),
                     2);
    assert_string_equal(planned, measured);
}

#endif
