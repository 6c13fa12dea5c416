/* The program runs where the stack is limited to little: `ulimit -s 512` is what some batch systems
 * give, and threads inherit it. */
#include "runs.h"

#include <sys/resource.h>

#include "sanitized.h"

static wd_program program;

enum { STACK_BYTES = 256 << 10 };

#define SMALL "--height", "32", "--width", "32"

static void run_with_small_stack(const char *const *arguments)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_STACK, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_STACK, &(struct rlimit){STACK_BYTES, before.rlim_max}), 0);
    const pid_t pid = wd_program_start(arguments);
    assert_int_equal(setrlimit(RLIMIT_STACK, &before), 0);
    wd_program_wait(&program, pid);
}

/* run(WD_OK, "inspect", path) */
#define run(code_, ...)                                                                            \
    do {                                                                                           \
        run_with_small_stack((const char *const[]){__VA_ARGS__, NULL});                            \
        if (program.code != (code_)) fail_msg("exit code %d: %s", program.code, program.err);      \
    } while (0)

static void every_command_runs(void **state)
{
    (void)state;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer needs more stack");
    const char *data = wd_test_path("prompts.txt"), *out = wd_test_path("out");
    run(WD_OK, "inspect", teacher);
    run(WD_OK, "plan", "--teacher_path", teacher, "--data_path", data, SMALL);
    run(WD_OK, "plan", "--teacher_preset", "wan2.2-a14b", "--ranks", "8", "--devices",
        "sim:8x80GiB@link=50GB/s,compute=500TFLOP/s,cpu=4TFLOP/s,memory=80GB/s");
    /* the plan's advice plans again */
    run(WD_OK, "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype", "bfloat16",
        "--mixed_precision", "bf16", "--batch_size", "16", "--guidance_scale", "1",
        "--student_steps", "4", "--trajectory_steps", "8", "--gradient_checkpointing",
        "--host_memory", "64GiB", "--optimizer_device", "device", "--devices",
        "sim:1x18GiB@link=25GB/s,compute=150TFLOP/s,cpu=2TFLOP/s");
    assert_non_null(strstr(program.err, "Add --"));
    run(WD_OK, "train", "--teacher_path", teacher, "--data_path", data, "--output_dir", out,
        "--num_steps", "1", "--batch_size", "2", "--trajectories", "2", "--save_samples",
        "--sample_steps", "1", SMALL);
    run(WD_DOES_NOT_FIT, "train", "--teacher_path", teacher, "--data_path", data, "--output_dir",
        wd_test_path("none"), "--devices", "sim:1x10MiB@link=50GB/s,compute=500GFLOP/s",
        "--teacher_device_strategy", "gpu", SMALL);
    run(WD_OK, "sample", "--model", out, "--prompt", "fox", "--steps", "1", "--out",
        wd_test_path("fox.png"));
    run(WD_OK, "eval", "--teacher", teacher, "--student", out, "--prompts", data, "--steps", "1");
    run(WD_OK, "convert", "--model", out, "--to", "comfyui", "--out",
        wd_test_path("out.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_command_runs)};
    return cmocka_run_group_tests(tests, prepare, NULL);
}
