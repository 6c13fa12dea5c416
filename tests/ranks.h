/* Training with several ranks as a user runs it: by mpirun, or started by the program itself. */
#ifndef WD_TESTS_RANKS_H
#define WD_TESTS_RANKS_H

#include <dirent.h>

#include "runs.h"

static wd_program program;

#define RUN(out)                                                                                   \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", out, "--height", "32",   \
        "--width", "32", "--batch_size", "2", "--trajectories", "8", "--trajectory_steps", "4",    \
        "--guidance_scale", "2", "--lr", "1e-3", "--warmup_steps", "1", "--num_steps", "40",       \
        "--seed", "3", IN_FP32

/* Checks that the program was refused with an error that contains `text`, which need not be the
 * first message. */
static inline void refused(wd_status status, const char *text)
{
    if (program.code != (int)status || !strstr(program.err, text))
        fail_msg("expected exit code %d and \"%s\", found %d: %s", status, text, program.code,
                 program.err);
}

static inline void run_ranks(const char *const *arguments)
{
    wd_program_wait(&program, wd_program_start_as("mpirun", arguments));
}

static inline int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

/* The number of files of a run's folder whose names start with `begin`. */
static inline int count_files(const char *folder, const char *begin)
{
    int n = 0;
    struct dirent *item;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while ((item = readdir(dir))) n += !strncmp(item->d_name, begin, strlen(begin));
    closedir(dir);
    return n;
}

#endif
