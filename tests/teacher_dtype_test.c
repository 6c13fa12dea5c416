/* --teacher_dtype float8_e4m3fn and int8: wherever the weights are kept the student is that of the
 * dequantised twin, and plans have the sizes before anything is written. */
#include "program.h"
#include "quantised.h"
#include "tiny_teacher.h"

#include "io/json/json.h"

static const char tiny[] = WD_SOURCE_DIR "/models/wan-tiny";

static wd_program program;

#define TRAIN(name)                                                                                \
    "--data_path", WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt", "--num_steps", "2",      \
        "--trajectories", "4", "--trajectory_steps", "4", "--target_replay", "16",                 \
        "--save_samples", "false", "--num_threads", "1", "--max_sequence_length", "24",            \
        "--height", "32", "--width", "32", "--teacher_path", tiny, "--cache_dir",                  \
        wd_test_path("cache"), "--output_dir", wd_test_path(name), "--mixed_precision", "no"

static const char *student_of(const char *name)
{
    static char path[2][WD_PATH_MAX];
    static int next;
    char *out = path[next++ % 2];
    wd_err err;
    wd_test_ok(wd_path_join(out, wd_test_path(name),
                            "transformer/diffusion_pytorch_model.safetensors", &err),
               &err);
    return out;
}

/* Writes the values of an expert's quantised weights as F32; returns the path. */
static const char *write_twin(wd_component c, wd_dtype dtype, const char *name)
{
    static char path[2][WD_PATH_MAX];
    static int next;
    char *out = path[next++ % 2], folder[WD_PATH_MAX];
    wd_err err;
    wd_safetensors *set;
    wd_pipeline p = teacher;
    wd_test_file *twin = calloc(1, sizeof *twin);
    snprintf(folder, sizeof folder, "%s", wd_test_path("cache"));
    p.overlay = (wd_overlay){.folder = folder, .dtype = WD_BF16, .quantised = dtype};
    snprintf(folder, sizeof folder, "%s", wd_test_path("twins"));
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_copy_config(folder, tiny, "transformer");
    wd_test_ok(wd_path_join(out, folder, name, &err), &err);
    snprintf(folder, sizeof folder, "%s", wd_test_path("cache"));
    wd_test_ok(wd_pipeline_open_weights(&set, &p, c, &err), &err);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        const wd_tensor *t = &e->tensor;
        if (t->dtype != dtype) {
            wd_test_add(twin, e->name, "", t->dtype, t->ndim, t->dim,
                        wd_test_copy(t->data, wd_tensor_bytes(t)));
            continue;
        }
        assert_non_null(t->data); /* a run has written it */
        float *wide = malloc((size_t)wd_tensor_count(t) * sizeof *wide);
        for (int64_t k = 0; k < wd_tensor_count(t); k++)
            wide[k] = wd_test_decode(((const uint8_t *)t->data)[k], dtype) *
                      ((const float *)t->scales.data)[k / t->dim[1]];
        wd_test_add(twin, e->name, "", WD_F32, t->ndim, t->dim, wide);
    }
    wd_test_write_file(twin, out, NULL);
    wd_safetensors_close(set);
    return out;
}

static void the_students_bits(void **state)
{
    (void)state;
    static const char *const where[][3] = {{"cpu", "cpu", "cpu"},
                                           {"disk", "disk", "sim:1x1GiB@link=20GB/s"},
                                           {"offload", "offload", "sim:1x1GiB@link=20GB/s"}};
    for (int d = 0; d < 2; d++) {
        const wd_dtype dtype = d ? WD_I8 : WD_F8_E4M3;
        const char *asked = d ? "int8" : "float8_e4m3fn";
        char first[64], name[64];
        snprintf(first, sizeof first, "cpu-%s", asked);
        for (int i = 0; i < (d ? 1 : 3); i++) {
            snprintf(name, sizeof name, "%s-%s", where[i][0], asked);
            wd_program_run(&program, "train", TRAIN(name), "--teacher_dtype", asked,
                           "--teacher_device_strategy", where[i][1], "--devices", where[i][2]);
            wd_program_succeeded(&program);
            assert_true((strstr(program.err, "transformer_2: quantised to") != NULL) == !i);
            if (i) wd_test_same_files(student_of(first), student_of(name));
        }
        snprintf(name, sizeof name, "twin-%s", asked);
        wd_program_run(
            &program, "train", TRAIN(name), "--teacher_dtype", "bfloat16", "--devices", "cpu",
            "--transformer", write_twin(WD_COMPONENT_TRANSFORMER, dtype, "high.safetensors"),
            "--transformer_2", write_twin(WD_COMPONENT_TRANSFORMER_2, dtype, "low.safetensors"));
        wd_program_succeeded(&program);
        wd_test_same_files(student_of(first), student_of(name));
    }
}

/* A run goes on with the dtype that it was begun with. */
static void resumed(void **state)
{
    (void)state;
    wd_program_run(&program, "train", TRAIN("resumed"), "--teacher_dtype", "int8", "--devices",
                   "cpu");
    wd_program_succeeded(&program);
    wd_program_run(&program, "train", TRAIN("resumed"), "--teacher_dtype", "bfloat16", "--devices",
                   "cpu", "--resume", "auto", "--num_steps", "3");
    wd_program_refused(&program, WD_MISMATCH, "teacher_dtype");
    wd_program_run(&program, "train", TRAIN("resumed"), "--teacher_dtype", "int8", "--devices",
                   "cpu", "--resume", "auto", "--num_steps", "3");
    wd_program_succeeded(&program);
}

/* The bytes that will be written, and those that are read from disk in a step, of a plan. */
static double planned(const char *dtype, double *read_bytes)
{
    wd_err err;
    json_t *json;
    wd_program_run(&program, "plan", TRAIN("planned"), "--cache_dir", wd_test_path("no-cache"),
                   "--teacher_dtype", dtype, "--teacher_device_strategy", "disk", "--devices",
                   "sim:1x1GiB@link=20GB/s,compute=1TFLOP/s,cpu=1TFLOP/s", "--json");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&json, program.out, strlen(program.out), "the plan", &err), &err);
    const json_t *all = json_object_get(json, "strategies"), *one;
    size_t i;
    *read_bytes = 0;
    json_array_foreach(all, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "strategy"));
        if (name && !strcmp(name, "disk"))
            *read_bytes = json_number_value(json_object_get(one, "bytes_read_per_step"));
    }
    const double bytes = json_number_value(json_object_get(json, "merged_bytes"));
    json_decref(json);
    return bytes;
}

static void plans(void **state)
{
    (void)state;
    double read[2];
    assert_true(planned("bfloat16", &read[0]) == 0);
    const double bytes = planned("float8_e4m3fn", &read[1]);
    /* of both experts: a byte for each weight, 4 for each row */
    const double d = 160, e = 640, layers = (double)teacher.dit.layers;
    assert_true(bytes == 2 * layers * (8 * d * d + 2 * d * e + 4 * (9 * d + e)));
    assert_false(wd_path_exists(wd_test_path("no-cache")));
    assert_true(read[1] > 0 && read[1] < 0.7 * read[0]); /* the files are BF16 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_students_bits),
        cmocka_unit_test(resumed),
        cmocka_unit_test(plans),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
