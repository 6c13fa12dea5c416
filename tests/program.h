/* Runs the built program as a user does, with arguments, and returns its exit code, output and
 * errors. It uses no shell. */
#ifndef WD_TESTS_PROGRAM_H
#define WD_TESTS_PROGRAM_H

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

#include "io/picture/png.h"

extern char **environ;

/* The device that tests compute on: the processor, unless WD_TEST_DEVICE names another, such as
 * cuda:0. */
static inline const char *wd_test_device(void)
{
    const char *said = getenv("WD_TEST_DEVICE");
    return said ? said : "cpu";
}

/* Options of a run that computes in fp32, whatever its devices: it has the bits of the processor's
 * run with default dtypes. */
#define IN_FP32 "--teacher_dtype", "float32", "--mixed_precision", "no"

typedef struct wd_program {
    int code;          /* exit code; 128 + n: ended by signal n */
    char out[1 << 19]; /* what it printed, cut to this size */
    char err[1 << 16];
} wd_program;

static inline void wd_program_read_(char *to, size_t bytes, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(to, 1, bytes - 1, file) : 0;
    to[n] = 0;
    if (file) fclose(file);
}

/* Starts `name` (found in PATH) with output and errors redirected to files in the test folder. */
static inline pid_t wd_program_start_as(const char *name, const char *const *arguments)
{
    const char *argv[128] = {name};
    char out[128], err[128];
    int n = 1;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    while (*arguments && n < 127) argv[n++] = *arguments++;
    assert_null(*arguments);
    argv[n] = NULL;
    snprintf(out, sizeof out, "%s/stdout", wd_test_folder());
    snprintf(err, sizeof err, "%s/stderr", wd_test_folder());
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int rc = posix_spawnp(&pid, name, &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc) fail_msg("%s: %s", name, strerror(rc));
    return pid;
}

/* The program that was built with the tests, unless WD_TEST_PROGRAM in the environment names
 * another. */
static inline pid_t wd_program_start(const char *const *arguments)
{
    const char *said = getenv("WD_TEST_PROGRAM");
    return wd_program_start_as(said ? said : WD_PROGRAM, arguments);
}

static inline void wd_program_wait(wd_program *result, pid_t pid)
{
    char path[128];
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    result->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    snprintf(path, sizeof path, "%s/stdout", wd_test_folder());
    wd_program_read_(result->out, sizeof result->out, path);
    snprintf(path, sizeof path, "%s/stderr", wd_test_folder());
    wd_program_read_(result->err, sizeof result->err, path);
}

static inline void wd_program_run_(wd_program *result, const char *const *arguments)
{
    wd_program_wait(result, wd_program_start(arguments));
}

/* wd_program_run(&p, "inspect", path); */
#define wd_program_run(result, ...)                                                                \
    wd_program_run_(result, (const char *const[]){__VA_ARGS__, NULL})

static inline void wd_program_succeeded(const wd_program *p)
{
    if (p->code) fail_msg("exit code %d: %s", p->code, p->err);
}

/* The arguments of mpirun, for wd_program_start_as. */
#define MPIRUN(ranks, ...)                                                                         \
    (const char *const[])                                                                          \
    {                                                                                              \
        "-n", ranks, "--oversubscribe", "--bind-to", "none", WD_PROGRAM, __VA_ARGS__, NULL         \
    }

/* Checks that the program ended with the status' exit code, and that its errors contain `text`. */
static inline void wd_program_refused(const wd_program *p, wd_status status, const char *text)
{
    const char *found = strstr(p->err, text), *line = found;
    while (line && line > p->err && line[-1] != '\n') line--;
    if (p->code != (int)status || !found || strncmp(line, "wandistiller: ", 14))
        fail_msg("expected exit code %d and an error naming \"%s\", found %d: %s", status, text,
                 p->code, p->err);
}

/* "<test folder>/name"; the text lives for the next 63 calls. */
static inline const char *wd_test_path(const char *name)
{
    static char path[64][256];
    static int next;
    char *out = path[next++ % 64];
    snprintf(out, sizeof path[0], "%s/%s", wd_test_folder(), name);
    return out;
}

/* Compares tensor `name` of two files (one absolute, one below the source folder): shapes equal,
 * relative error at most `tolerance`. Returns the error. */
static inline double wd_test_compare(const char *found, const char *expected, const char *name,
                                     double tolerance)
{
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, found, &err), &err);
    const wd_safetensors_entry *entry = wd_safetensors_find(set, name);
    if (!entry) fail_msg("%s has no \"%s\"", found, name);
    wd_tensor want = wd_test_load(expected, name);
    assert_int_equal(entry->tensor.ndim, want.ndim);
    assert_memory_equal(entry->tensor.dim, want.dim, (size_t)want.ndim * sizeof want.dim[0]);
    assert_int_equal(entry->tensor.dtype, WD_F32);
    double error = wd_test_rel_error(entry->tensor.data, want.data, wd_tensor_count(&want));
    if (!(error <= tolerance))
        fail_msg("%s of %s: relative error %.3g, at most %.3g allowed", name, expected, error,
                 tolerance);
    wd_free(want.data);
    wd_safetensors_close(set);
    return error;
}

/* Whether two PNG files have the same pixels: what they say of seed and model may differ. */
static inline bool wd_test_pixels_equal(const char *a, const char *b)
{
    wd_err err;
    wd_image x, y;
    wd_test_ok(wd_png_read(&x, a, &err), &err);
    wd_test_ok(wd_png_read(&y, b, &err), &err);
    const bool equal = x.height == y.height && x.width == y.width &&
                       !memcmp(x.rgb, y.rgb, (size_t)(3 * x.height * x.width));
    wd_image_close(&x);
    wd_image_close(&y);
    return equal;
}

#endif
