/* The input of small runs of `wandistiller train`, and functions that read their output. */
#ifndef WD_TESTS_RUNS_H
#define WD_TESTS_RUNS_H

#include <jansson.h>
#include <time.h>

#include "program.h"

static const char teacher[] = WD_SOURCE_DIR "/models/wan-tiny";

/* Options of a run small enough to be repeated: one block at 32x32. */
#define SMALL_RUN(out)                                                                             \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", out, "--cache_dir",      \
        wd_test_path("cache"), "--height", "32", "--width", "32", "--batch_size", "2",             \
        "--trajectories", "4", "--trajectory_steps", "4", "--guidance_scale", "2", "--lr", "1e-3", \
        "--num_steps", "8", "--seed", "3", "--log_level", "warning", IN_FP32

/* A group's set-up: prompts.txt and student.json, one block, in the test folder. */
static inline int prepare(void **state)
{
    (void)state;
    static const char prompts[] = "red apple, blue background\npenguin, white background\nfox\n";
    static const char student[] = "{\"depth\": 1}";
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("prompts.txt"), prompts, sizeof prompts - 1, &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("student.json"), student, sizeof student - 1, &err),
               &err);
    return 0;
}

static inline void assert_same_weights(const char *a, const char *b)
{
    static const char file[] = "transformer/diffusion_pytorch_model.safetensors";
    char path[2][WD_PATH_MAX], hash[2][33];
    wd_err err;
    wd_test_ok(wd_path_join(path[0], a, file, &err), &err);
    wd_test_ok(wd_path_join(path[1], b, file, &err), &err);
    for (int i = 0; i < 2; i++) wd_test_ok(wd_file_hash(hash[i], path[i], &err), &err);
    assert_string_equal(hash[0], hash[1]);
}

/* Reads the rows of metrics.jsonl as one array, without figures that depend on the clock. */
static inline json_t *metrics(const char *run)
{
    char path[WD_PATH_MAX], *text, *line, *rest;
    size_t bytes;
    wd_err err;
    json_t *rows = json_array();
    wd_test_ok(wd_path_join(path, run, "metrics.jsonl", &err), &err);
    wd_test_ok(wd_file_read(&text, &bytes, path, 1 << 20, &err), &err);
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        json_object_del(row, "seconds");
        json_object_del(row, "steps_per_s");
        json_object_del(row, "memory_bytes");
        json_object_del(row, "device_memory_bytes");
        json_array_append_new(rows, row);
    }
    wd_free(text);
    return rows;
}

/* Waits until the run has done a few steps. */
static inline void wait_for_steps(const char *metrics_path)
{
    for (int i = 0; i < 3000; i++) {
        char *text = NULL;
        size_t bytes = 0;
        if (wd_file_read(&text, &bytes, metrics_path, 1 << 24, NULL) == WD_OK) {
            int lines = 0;
            for (size_t k = 0; k < bytes; k++) lines += text[k] == '\n';
            wd_free(text);
            if (lines >= 3) return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    fail_msg("no step was done in a minute");
}

#endif
