/* Tests of what the environment says of who started a process, and of what is refused then. */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dist/launch.h"

static const char *const names[] = {
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "TORCHELASTIC_RUN_ID",
};

/* "NAME", "value", ..., NULL: all there is of the names above. */
static wd_launch detect(const char *const *pairs)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    for (; *pairs; pairs += 2) setenv(pairs[0], pairs[1], 1);
    return wd_launch_detect();
}

#define DETECT(...) detect((const char *const[]){__VA_ARGS__, NULL})
#define NOBODY detect((const char *const[]){NULL})
#define MPIRUN(rank, ranks, here)                                                                  \
    DETECT("OMPI_COMM_WORLD_RANK", rank, "OMPI_COMM_WORLD_SIZE", ranks,                            \
           "OMPI_COMM_WORLD_LOCAL_SIZE", here, "PMIX_RANK", rank)
#define TORCHRUN(rank, ranks, here)                                                                \
    DETECT("RANK", rank, "WORLD_SIZE", ranks, "LOCAL_RANK", "0", "LOCAL_WORLD_SIZE", here,         \
           "MASTER_ADDR", "127.0.0.1")

static void is_seen(wd_launch l, wd_launcher launcher, int rank, int ranks, int host_ranks)
{
    assert_int_equal(l.launcher, launcher);
    assert_int_equal(l.rank, rank);
    assert_int_equal(l.ranks, ranks);
    assert_int_equal(l.host_ranks, host_ranks);
}

static void launchers_are_known(void **state)
{
    (void)state;
    is_seen(NOBODY, WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(MPIRUN("2", "8", "4"), WD_LAUNCHER_MPIRUN, 2, 8, 4);
    is_seen(TORCHRUN("1", "4", "2"), WD_LAUNCHER_TORCHRUN, 1, 4, 2);
    is_seen(DETECT("RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "0", "TORCHELASTIC_RUN_ID", "x"),
            WD_LAUNCHER_TORCHRUN, 0, 2, -1);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "3",
                   "PMIX_RANK", "3"),
            WD_LAUNCHER_SRUN, 3, 4, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "3"),
            WD_LAUNCHER_BARE, 3, 4, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2", "SLURM_PROCID", "1",
                   "PMI_RANK", "1", "PMI_SIZE", "2"),
            WD_LAUNCHER_BARE, 1, 2, 0);
    is_seen(DETECT("PMI_RANK", "1", "PMI_SIZE", "2"), WD_LAUNCHER_BARE, 1, 2, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1", "SLURM_PROCID", "0",
                   "PMI_RANK", "1", "PMI_SIZE", "2"),
            WD_LAUNCHER_BARE, 1, 2, 0);
}

/* mpirun may start as many ranks as it likes in what Slurm has allocated. */
static void cores_of_a_rank_are_what_slurm_has_for_it(void **state)
{
    (void)state;
    DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "3", "PMIX_RANK", "3",
           "SLURM_CPUS_PER_TASK", "8");
    assert_int_equal(wd_launch_cores(4), 8);
    setenv("SLURM_CPUS_ON_NODE", "64", 1);
    assert_int_equal(wd_launch_cores(4), 8);
    unsetenv("SLURM_CPUS_PER_TASK");
    assert_int_equal(wd_launch_cores(4), 16);
    assert_int_equal(wd_launch_cores(100), 1);
    unsetenv("SLURM_CPUS_ON_NODE");
    assert_int_equal(wd_launch_cores(4), 0);
    MPIRUN("2", "8", "4");
    setenv("SLURM_CPUS_PER_TASK", "8", 1);
    assert_int_equal(wd_launch_cores(4), 0);
    setenv("SLURM_CPUS_ON_NODE", "2", 1);
    assert_int_equal(wd_launch_cores(1), 2);
}

static void others_are_not_taken_for_one(void **state)
{
    (void)state;
    /* a batch script's own, without a step, and one task's, of srun --pty */
    is_seen(DETECT("SLURM_PROCID", "0", "SLURM_NTASKS", "4"), WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1", "SLURM_PROCID", "0",
                   "PMI_RANK", "0", "PMI_SIZE", "1"),
            WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(DETECT("RANK", "0", "WORLD_SIZE", "2"), WD_LAUNCHER_NONE, 0, 1, 0);
    is_seen(DETECT("OMPI_COMM_WORLD_SIZE", "many"), WD_LAUNCHER_NONE, 0, 1, 0);
    /* mpirun in a step of Slurm, or in a shell of torchrun's */
    is_seen(DETECT("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2", "SLURM_STEP_ID", "0",
                   "SLURM_STEP_NUM_TASKS", "1", "RANK", "0", "WORLD_SIZE", "1", "LOCAL_RANK", "0",
                   "MASTER_ADDR", "x"),
            WD_LAUNCHER_MPIRUN, 0, 2, -1);
}

static void accept(wd_launch l, bool wanted, int host_ranks)
{
    wd_err err = {0};
    wd_test_ok(wd_launch_check(&l, wanted, host_ranks, "wandistiller train", &err), &err);
}

static void refuse(wd_launch l, bool wanted, int host_ranks, wd_status status, const char *text)
{
    wd_err err = {0};
    wd_test_refused(wd_launch_check(&l, wanted, host_ranks, "wandistiller train", &err), &err,
                    status, text);
}

static void ranks_that_are_wanted_pass(void **state)
{
    (void)state;
    accept(NOBODY, false, 0);
    accept(MPIRUN("0", "1", "1"), false, 0);
    accept(MPIRUN("0", "1", "1"), true, 0);
    accept(MPIRUN("3", "4", "4"), true, 0);
    accept(MPIRUN("3", "8", "4"), true, 4);
    accept(TORCHRUN("0", "1", "1"), false, 0);
    accept(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "PMIX_RANK", "3"), true, 0);
    accept(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1"), false, 0);
}

static void errors_say_what_to_run(void **state)
{
    (void)state;
    refuse(NOBODY, true, 0, WD_INVALID_ARGUMENT, "wandistiller train --nproc_per_node 2");
    refuse(MPIRUN("0", "4", "4"), false, 0, WD_INVALID_ARGUMENT,
           "mpirun -n 4 wandistiller train --distributed");
    refuse(MPIRUN("0", "4", "4"), true, 2, WD_INVALID_ARGUMENT, "expected 2 ranks on this machine");
    refuse(TORCHRUN("0", "4", "2"), true, 0, WD_INVALID_ARGUMENT,
           "mpirun -n 4 --bind-to none wandistiller train --distributed");
    refuse(TORCHRUN("0", "4", "2"), false, 0, WD_INVALID_ARGUMENT,
           "wandistiller train --nproc_per_node 2");
    refuse(TORCHRUN("0", "1", "1"), true, 0, WD_INVALID_ARGUMENT, "torchrun has started");
    refuse(TORCHRUN("0", "1", "1"), true, 2, WD_INVALID_ARGUMENT, "--nproc_per_node 2");
    refuse(TORCHRUN("0", "3", "1"), true, 2, WD_INVALID_ARGUMENT, "mpirun -n 6 --bind-to none");
    refuse(DETECT("RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "0", "MASTER_ADDR", "x"), true, 4,
           WD_INVALID_ARGUMENT, "mpirun -n 4 --bind-to none");
    refuse(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4"), true, 0, WD_UNSUPPORTED,
           "srun --mpi=pmix -n 4 wandistiller train --distributed");
    refuse(DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "4", "PMIX_RANK", "3"), false, 0,
           WD_INVALID_ARGUMENT, "srun --mpi=pmix -n 4 wandistiller train --distributed");
    refuse(DETECT("PMI_RANK", "0", "PMI_SIZE", "2"), true, 0, WD_UNSUPPORTED, "another MPI");
}

static void ranks_are_counted_when_they_meet(void **state)
{
    (void)state;
    wd_err err = {0};
    const wd_launch l = DETECT("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "1", "PMIX_RANK", "0");
    accept(l, true, 4);
    wd_test_ok(wd_launch_check_host(&l, 0, 1, &err), &err);
    wd_test_ok(wd_launch_check_host(&l, 1, 1, &err), &err);
    wd_test_refused(wd_launch_check_host(&l, 4, 1, &err), &err, WD_INVALID_ARGUMENT,
                    "expected 4 ranks on this machine, found 1, which srun has started");
}

/* Not the ranks' own program, but what stands in PATH as mpirun: what it is given, how it ends. */
static void mpirun_is_run(void **state)
{
    (void)state;
    wd_err err = {0};
    char folder[] = "/tmp/wd_launch_XXXXXX", path[64], text[4096] = "";
    char *const argv[] = {(char *)"train", (char *)"--batch_size", (char *)"a b"};
    int code = -1;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/mpirun", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\nfor a; do echo \"[$a]\"; done >%s/seen\nexit 7\n", folder);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
    char *before = strdup(getenv("PATH"));
    assert_non_null(before);
    setenv("PATH", folder, 1);
    wd_test_ok(wd_launch_run(&code, 3, 3, argv, &err), &err);
    assert_int_equal(code, 7);
    assert_int_equal(unlink(path), 0);
    wd_test_refused(wd_launch_run(&code, 3, 3, argv, &err), &err, WD_NOT_FOUND, "openmpi-bin");
    setenv("PATH", before, 1);
    free(before);
    snprintf(path, sizeof path, "%s/seen", folder);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_memory_equal(text, "[-n]\n[3]\n[--oversubscribe]\n[--bind-to]\n[none]\n", 45);
    assert_non_null(strstr(text, "test_dist_launch]\n[train]\n[--batch_size]\n[a b]\n"));
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_are_known),
        cmocka_unit_test(cores_of_a_rank_are_what_slurm_has_for_it),
        cmocka_unit_test(others_are_not_taken_for_one),
        cmocka_unit_test(ranks_that_are_wanted_pass),
        cmocka_unit_test(errors_say_what_to_run),
        cmocka_unit_test(ranks_are_counted_when_they_meet),
        cmocka_unit_test(mpirun_is_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
